"""Replies of a proxy in front of the registry: what each status means, and the setting of the proxy to change.

Source: nginx.org, modules ngx_http_core_module and ngx_http_proxy_module (`client_max_body_size` is 1 MiB and
`proxy_read_timeout` 60 s where nothing sets them).
"""

from __future__ import annotations

from mxr.errors import MxrError, TemporaryError, TooLargeError

PAGE = "The section on proxies in docs/operate.md has a configuration that works."

HINTS = {
    429: "Send fewer requests at the same time, or raise the limit of the proxy.",
    413: f"Raise its limit of a request's body to 5 GiB; in nginx: `client_max_body_size 5g;`. {PAGE}",
    502: "See whether the registry runs, and whether the proxy has its address.",
    503: "See whether the registry runs, and whether the proxy has its address.",
    504: "The registry took longer than the proxy waits. Let it wait for 20 minutes; in nginx: "
    f"`proxy_read_timeout 20m;`. {PAGE}",
}


def proxy_error(status: int, server: str) -> MxrError | None:
    """Return the error for a reply that does not come from the registry, None where it may come from anything.

    `server`: the Server header of the reply.
    """
    hint = HINTS.get(status)
    if hint is None:
        return None
    name = f" ({server[:60]})" if server else ""
    if status == 413:
        return TooLargeError(f"A proxy{name} in front of the registry does not take a body of this size.", hint=hint)
    if status == 429:
        return TemporaryError(f"A proxy{name} in front of the registry limits the rate of requests.", hint=hint)
    what = "gave up waiting for the registry" if status == 504 else "does not reach the registry"
    return TemporaryError(f"A proxy{name} in front of the registry {what} (HTTP status {status}).", hint=hint)
