"""Refuses requests that a web page of another site can make a browser send, on every address, and long queries.

    Host            an IP address, `localhost`, or a name given with --allowed-host: a foreign name that resolves to
                    this address (DNS rebinding) is refused
    Origin          absent, or the origin of the registry itself; `null` is refused
    Sec-Fetch-Site  absent, `same-origin` or `none`, or a page that navigates to a GET
    Content-Type    `application/json` or `application/octet-stream` for every body: the types of forms, and bodies
                    without a type, can be sent by a page without the consent of the server
    a form          only to `FORMS`, with the Origin of the registry itself
    a token         in no path and in no query, where logs and histories keep it

Source: Fetch Standard (CORS-safelisted request headers; "Origin" header), W3C Fetch Metadata.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from mxr.errors import MxrError, NotAllowedError, UsageError

from .middleware import send_error

AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s\[\]:@/?#]+)(?::[0-9]{1,5})?", re.ASCII)
BODY_TYPES = ("application/json", "application/octet-stream")
FORMS = ("/sign-in", "/sign-out", "/explain")
"""Where the pages of the registry send a form."""
FORM = "application/x-www-form-urlencoded"
SECRET = re.compile(rb"mxr_[0-9a-f]{12}_[0-9a-f]{16}")
MAX_HOST = 300
"""Characters of a Host header: a name of 253 characters with a port, or an address with a zone."""
MAX_URL = 4 << 10
"""Bytes of a path, and of a query: FastAPI splits both before it looks for the token. 60 KB take 24 ms."""
NAMES = (b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding")
BROWSER = b"sec-fetch-"

Headers = dict[bytes, list[str]]


class RequestGuard:
    """ASGI middleware that answers such requests with 403, 400, 414 or 415. `allowed`: further names for `Host`."""

    def __init__(self, app: ASGIApp, allowed: Collection[str] = ()) -> None:
        self.app = app
        names = frozenset(each.lower().rstrip(".") for each in allowed)
        # The same few values come with every request.
        self._is_own_host = lru_cache(maxsize=256)(lambda host: is_own_host(host, names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        refused = self._refusal(scope)
        if refused is None:
            await self.app(scope, receive, send)
        else:
            error, status = refused
            await send_error(send, error, status)

    def _refusal(self, scope: Scope) -> tuple[MxrError, int] | None:
        if len(scope["query_string"]) > MAX_URL or len(scope["path"]) > MAX_URL:
            return UsageError(f"The path or the query exceeds {MAX_URL} bytes.", hint="Shorten it."), 414
        if SECRET.search(scope["query_string"]) or SECRET.search(scope["path"].encode("utf-8", "replace")):
            return UsageError(
                "A token is in the URL.", hint="Send it in the header Authorization; revoke this one."
            ), 400
        headers: Headers = {}
        for name, value in scope["headers"]:
            if name in NAMES or name.startswith(BROWSER):
                headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        if len(hosts) != 1:
            return UsageError(
                "A request needs exactly one Host header.", hint="Send the address of the registry as Host."
            ), 400
        if len(hosts[0]) > MAX_HOST or not self._is_own_host(hosts[0]):
            return _foreign_host(hosts[0]), 403
        origins = headers.get(b"origin", [])
        own = (f"http://{hosts[0]}".lower(), f"https://{hosts[0]}".lower())
        if any(origin.lower() not in own for origin in origins) or _is_cross_site(scope["method"], headers):
            return _foreign_page(origins), 403
        if scope["path"] in FORMS and scope["method"] == "POST":
            return None if origins and _is_form(headers.get(b"content-type", [])) else (_foreign_page(origins), 403)
        if _has_body(headers) and not _is_typed(headers.get(b"content-type", [])):
            return _untyped_body(headers.get(b"content-type", [])), 415
        return None


def is_own_host(value: str, allowed: Collection[str]) -> bool:
    """Whether a Host header is an IP address, `localhost` or one of these lower-case names, with or without a port."""
    found = AUTHORITY.fullmatch(value)
    if found is None:
        return False
    name = found[1].lower().rstrip(".")
    if name == "localhost" or name in allowed:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_cross_site(method: str, headers: Headers) -> bool:
    sites = headers.get(b"sec-fetch-site", [])
    if all(site in ("same-origin", "none") for site in sites):
        return False
    navigates = headers.get(b"sec-fetch-mode") == ["navigate"] and headers.get(b"sec-fetch-dest") == ["document"]
    return not (navigates and method in ("GET", "HEAD"))


def _has_body(headers: Headers) -> bool:
    return b"transfer-encoding" in headers or any(each.strip("0 ") for each in headers.get(b"content-length", []))


def _is_typed(types: list[str]) -> bool:
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() in BODY_TYPES


def _is_form(types: list[str]) -> bool:
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() == FORM


def _foreign_host(host: str) -> NotAllowedError:
    return NotAllowedError(
        f"This registry is not served under the name {host[:120]!a} (header Host).",
        hint="Use its IP address, or start it with `mxr-registry serve --allowed-host NAME`.",
    )


def _foreign_page(origins: list[str]) -> NotAllowedError:
    page = f"from the origin {origins[0][:120]!a}" if origins else "from another site"
    return NotAllowedError(
        f"A web page {page} sent this request.", hint="Use mxr, or a page that the registry itself serves."
    )


def _untyped_body(types: list[str]) -> UsageError:
    found = repr(types[0][:80]) if types else "none"
    return UsageError(
        f"The Content-Type of a body must be {' or '.join(BODY_TYPES)}, found {found}.",
        hint="Send JSON as application/json, and the bytes of a blob as application/octet-stream.",
    )
