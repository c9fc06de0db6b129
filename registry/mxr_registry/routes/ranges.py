"""Bytes over HTTP: ranges, entity tags, and chunks large enough to be worth a thread's while.

One range is served; several at once are answered with the whole, which a server may always do.
Source: RFC 9110, sections 13 (conditional requests) and 14 (range requests).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from mxr.errors import Usage

RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})", re.ASCII | re.IGNORECASE)

Chunks = Callable[[int, int], Iterator[bytes]]
"""Makes the bytes from an offset, so many of them; raises before the first one when they are not fit to be sent."""


class Unsatisfiable(Exception):
    """The range lies outside of what there is."""


def wanted(header: str | None, size: int) -> tuple[int, int] | None:
    """Offset and length of the one range that a Range header names; None for all of it.

    Raises `Unsatisfiable`.
    """
    found = RANGE.fullmatch(header.strip()) if header else None
    if not found or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < int(first):
            return None
    if start >= stop:
        raise Unsatisfiable
    return start, stop - start


def answer(request: Request, sha256: str, size: int, chunks: Chunks, extra: Mapping[str, str]) -> Response:
    """The reply to GET or HEAD for immutable bytes of this sha256 and size."""
    tag = f'"{sha256}"'
    headers = {"etag": tag, "accept-ranges": "bytes", **extra}
    if _names(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    honoured = request.headers.get("if-range", tag).strip() == tag
    try:
        part = wanted(request.headers.get("range"), size) if honoured and request.method == "GET" else None
    except Unsatisfiable:
        problem = Usage(f"The range lies outside of the {size} bytes that there are.", hint="Ask for less.")
        return JSONResponse(problem.to_json(), 416, headers={**headers, "content-range": f"bytes */{size}"})
    start, length = part or (0, size)
    headers["content-length"] = str(length)
    if part:
        headers["content-range"] = f"bytes {start}-{start + length - 1}/{size}"
    if request.method == "HEAD" or length == 0:
        return Response(status_code=200, headers=headers, media_type="application/octet-stream")
    status = 206 if part else 200
    return StreamingResponse(chunks(start, length), status, headers, media_type="application/octet-stream")


def _names(header: str | None, tag: str) -> bool:
    """Whether If-None-Match names this tag; weak ones count here."""
    if header is None:
        return False
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in header.split(","))
