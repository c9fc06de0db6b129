"""Why no reply of the registry came: the network, TLS, a proxy on the way to it, or one in front of it.

Source for nginx: nginx.org, modules ngx_http_core_module and ngx_http_proxy_module (`client_max_body_size` is 1 MiB and
`proxy_read_timeout` 60 s where nothing sets them). Source for certificates: OpenSSL, x509_vfy.h.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, TypeVar

from mxr.configuration.proxies import Proxy
from mxr.errors import MxrError, NotARegistryError, TemporaryError, TooLargeError, UnreachableError

if TYPE_CHECKING:
    import ssl

E = TypeVar("E", bound=BaseException)

PAGE = "The section on proxies in docs/operate.md has a configuration that works."

HINTS = {
    429: "Send fewer requests at the same time, or raise the limit of the proxy.",
    413: f"Raise its limit of a request's body to 5 GiB; in nginx: `client_max_body_size 5g;`. {PAGE}",
    502: "See whether the registry runs, and whether the proxy has its address.",
    503: "See whether the registry runs, and whether the proxy has its address.",
    504: "The registry took longer than the proxy waits. Let it wait for 20 minutes; in nginx: "
    f"`proxy_read_timeout 20m;`. {PAGE}",
}

CLOUD = range(520, 531)
"""What Cloudflare answers where it gets no valid reply. Source: developers.cloudflare.com, Cloudflare 5xx errors."""

EXEMPT = "NO_PROXY=HOST exempts the host of a registry that is reached without it."

NEEDS_ACCOUNT = 407
NOT_YET_VALID, EXPIRED, OTHER_NAME, OTHER_ADDRESS = 9, 10, 62, 64


def proxy_error(status: int, server: str, proxy: Proxy | None = None) -> MxrError | None:
    """Return the error for a reply that does not come from the registry, None where it may come from anything.

    `server`: the Server header of the reply. `proxy`: the one that this client was told to use.
    """
    if proxy is not None and status == NEEDS_ACCOUNT:
        return _needs_account(proxy)
    hint = HINTS.get(502 if status in CLOUD else status)
    if hint is None:
        return None
    name = f"A proxy{f' ({server[:60]})' if server else ''} in front of the registry"
    if proxy is not None:
        name = f"The {proxy}, or one behind it,"
        hint = f"{hint} {EXEMPT}"
    if status == 413:
        return TooLargeError(f"{name} does not take a body of this size.", hint=hint)
    if status == 429:
        return TemporaryError(f"{name} limits the rate of requests.", hint=hint)
    what = "gave up waiting for the registry" if status == 504 else "does not reach the registry"
    return TemporaryError(f"{name} {what} (HTTP status {status}).", hint=hint)


def connection_error(url: str, problem: Exception, proxy: Proxy | None) -> MxrError:
    """Return the error for a request of the registry at `url` that got no reply."""
    import ssl

    import urllib3

    certificate = _cause(problem, ssl.SSLCertVerificationError)
    reason = _reason(problem)
    if certificate is not None:
        theirs = isinstance(problem, urllib3.exceptions.ProxyError)
        return _certificate_error(f"the {proxy}" if theirs else url, certificate, None if theirs else proxy)
    if proxy is not None and (refused := re.search(r"Tunnel connection failed: (\d+)", str(problem))):
        if int(refused[1]) == NEEDS_ACCOUNT:
            return _needs_account(proxy)
        return UnreachableError(
            f"The {proxy} does not lead to {url}: it answers with HTTP status {refused[1]}.", hint=EXEMPT
        )
    if proxy is not None and isinstance(problem, urllib3.exceptions.ProxyError):
        return UnreachableError(f"The {proxy} does not answer: {reason}.", hint=EXEMPT)
    if proxy is not None:
        return UnreachableError(f"The registry at {url} does not answer through the {proxy}: {reason}.", hint=EXEMPT)
    if url.startswith("https:") and isinstance(problem, urllib3.exceptions.SSLError):
        return UnreachableError(
            f"{url} does not speak TLS as https does: {reason}.", hint="See whether its URL begins with http:// there."
        )
    if url.startswith("http:") and _cause(problem, ConnectionError) and "refused" not in reason:
        return UnreachableError(f"The registry at {url} does not answer: {reason}.", hint=try_https(url))
    return UnreachableError(f"The registry at {url} does not answer: {reason}.")


def try_https(url: str) -> str:
    """Return the hint for a port that does not speak plain http."""
    return (
        f"If it is served with TLS, its URL is https{url.removeprefix('http')}. Else check that `mxr-registry serve` "
        "is running there."
    )


def _needs_account(proxy: Proxy) -> MxrError:
    wrong = "refuses this user and password" if proxy.account else "asks for a user and a password"
    return NotARegistryError(
        f"The {proxy} {wrong} (HTTP status 407).",
        hint=f"Set {proxy.variable}=http://USER:PASSWORD@HOST:PORT. {EXEMPT}",
    )


def _certificate_error(where: str, problem: ssl.SSLCertVerificationError, proxy: Proxy | None) -> MxrError:
    said = problem.verify_message.rstrip(".")
    hint = "Set MXR_CA_FILE to the certificates (PEM) of the authority that signed it."
    if proxy is not None:
        hint += f" Where the {proxy} reads what is inside of TLS, that is the authority of the proxy."
    message = f"The certificate of {where} is not trusted: {said}."
    if problem.verify_code in (NOT_YET_VALID, EXPIRED):
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        message = f"The certificate of {where} is not valid at the time of this host, {now}: {said}."
        hint = "If that time is wrong, set the clock of this host. Else the certificate has to be renewed there."
    elif problem.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        message = f"The certificate of {where} is for another name: {said}."
        hint = "Use a URL with a name that the certificate has, or have it made for this one (subjectAltName)."
    return NotARegistryError(message, hint=hint)


def _cause(problem: BaseException, kind: type[E]) -> E | None:
    """Return what of this kind led to a problem. urllib3 puts it among the arguments of its own errors."""
    left: list[object] = [problem]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if isinstance(each, kind):
            return each
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            left += [*each.args, getattr(each, "reason", None), each.__cause__]
    return None


def _reason(problem: Exception) -> str:
    """Return the innermost reason in one line, without addresses of Python objects."""
    import urllib3

    while isinstance(problem, urllib3.exceptions.MaxRetryError) and problem.reason is not None:
        problem = problem.reason
    if isinstance(problem, urllib3.exceptions.ProxyError):
        problem = problem.original_error
    # urllib3 names the connection first: an address of a Python object, or host and port, which the error has already.
    text = re.sub(r"^(?:<[^>]*>|\w+\([^()]*\)): ", "", str(problem))
    return text.rstrip(".") or type(problem).__name__
