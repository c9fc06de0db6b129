"""The page `/docs`: the OpenAPI document for people, by Swagger UI, whose files are part of the package.

Nothing comes from another host, and the page's own policy forbids the browser to load or to send anything elsewhere.
Source of the files: swagger-ui-dist 5.35.0 on the npm registry, unchanged (Apache-2.0; LICENSE and NOTICE are beside
them).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from mxr.errors import NotFoundError
from mxr.util.hashing import sha256_hex
from mxr_registry.server.ranges import IfNoneMatch, SharedResponse, not_modified

router = APIRouter(include_in_schema=False)

ASSETS = {
    "page.js": "text/javascript",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles inline; it needs no inline script and no `eval`."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@router.get("/openapi.json")
def show_document(request: Request) -> Response:
    """The OpenAPI document, encoded once."""
    app = request.app
    if not hasattr(app.state, "document"):
        app.state.document = json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()
    return SharedResponse(app.state.document, media_type="application/json")


@router.get("/docs")
def show_page(known: IfNoneMatch = None) -> Response:
    """The page. It names its files relative to itself, so that it works below any path of a proxy."""
    return _reply(known, "page.html", "text/html")


@router.get("/docs/{name}")
def show_asset(name: str, known: IfNoneMatch = None) -> Response:
    """A file of the page."""
    if name not in ASSETS:
        raise NotFoundError(f"The page has no file {name[:64]!r}.", hint="Open `/docs`.")
    return _reply(known, name, ASSETS[name])


def _reply(known: str | None, name: str, media_type: str) -> Response:
    data, tag = _read(name)
    headers = {**HEADERS, "etag": tag}
    return not_modified(known, tag) or SharedResponse(data, headers=headers, media_type=media_type)


@cache
def _read(name: str) -> tuple[bytes, str]:
    data = (files(__package__) / "swagger_ui" / name).read_bytes()
    return data, f'"{sha256_hex(data)[:32]}"'
