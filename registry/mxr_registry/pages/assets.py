"""The style sheet and the script of the pages."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from mxr.errors import NotFoundError
from mxr.util.hashing import sha256_hex
from mxr_registry.server.ranges import IfNoneMatch, SharedResponse, not_modified

from .site import SAFE

router = APIRouter(include_in_schema=False)

ASSETS = {"mxr.css": "text/css", "mxr.js": "text/javascript", "mxr.svg": "image/svg+xml"}


@router.get("/page/{name}")
def show_page_asset(name: str, known: IfNoneMatch = None) -> Response:
    """Return one of the files, which anybody may read."""
    if name not in ASSETS:
        raise NotFoundError(f"The pages have no file {name[:64]!r}.", hint="Open `/`.")
    data, tag = _read(name)
    headers = {**SAFE, "etag": tag, "cache-control": "no-cache"}
    return not_modified(known, tag) or SharedResponse(data, headers=headers, media_type=ASSETS[name])


@cache
def _read(name: str) -> tuple[bytes, str]:
    data = (files(__package__) / "static" / name).read_bytes()
    return data, f'"{sha256_hex(data)[:32]}"'
