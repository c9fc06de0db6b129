"""Responses with immutable bytes: range requests and entity tags.

A request for a single range gets that range. A request for several ranges gets the whole content, which RFC 9110
permits. Source: RFC 9110, sections 13 (conditional requests) and 14 (range requests).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated

from fastapi import Header, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from mxr.errors import UsageError
from mxr_registry.storage.store import ChunkSize, Reader

from .download_buffers import MIN_CHUNK, DownloadBuffers
from .error_replies import error_reply

IF_NONE_MATCH = "An entity tag: 304 says that it is still the one of the object."


class RangeHeaders(BaseModel, frozen=True):
    """The headers of a request for bytes."""

    if_none_match: str | None = Field(None, alias="If-None-Match", description=IF_NONE_MATCH)
    range: str | None = Field(None, alias="Range", description="One range of bytes, such as `bytes=0-1048575`.")
    if_range: str | None = Field(
        None, alias="If-Range", description="An entity tag: the range counts only if it is the one of the file."
    )


IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description=IF_NONE_MATCH)]
RangesDep = Annotated[RangeHeaders, Header()]

_GAP = r"[ \t]{0,8}"
RANGE = re.compile(rf"bytes{_GAP}={_GAP}([0-9]{{0,18}}){_GAP}-{_GAP}([0-9]{{0,18}})", re.ASCII | re.IGNORECASE)
"""Bounded white space: two unlimited runs of it side by side take quadratic time. Source: RFC 9110, section 14.1.1."""

MAX_RANGE = 200
"""Characters of a Range header. A longer one asks for several ranges, or is wrong, and counts as none."""

Chunks = Callable[[int, int, ChunkSize], Iterator[bytes]]
"""Given an offset, a length and the size of chunks, returns those bytes in chunks.

Raises before the first chunk if they are damaged.
"""


class SharedResponse(Response):
    """A response with bytes that all clients share: each holds the pieces only that its connection has not taken.

    It takes nothing of `reply_memory`, so that who needs no token stops nobody who has one.
    """

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for at in range(0, len(self.body), MIN_CHUNK):
            await send({"type": "http.response.body", "body": self.body[at : at + MIN_CHUNK], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class FileResponse(StreamingResponse):
    """A response with the bytes of a file, in chunks whose size follows the memory that all downloads share.

    Closes its chunks, and with them the file, also if the client leaves before the end.
    """

    def __init__(
        self,
        chunks: Callable[[ChunkSize], Iterator[bytes]],
        status: int,
        headers: Mapping[str, str],
        buffers: DownloadBuffers,
    ) -> None:
        self._size = 0
        self._chunks = chunks(lambda: self._size)
        self._buffers = buffers
        super().__init__(self._chunks, status, headers, media_type="application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()

    async def stream_response(self, send: Send) -> None:
        """Send the chunks. The server keeps a chunk until the next one is sent, and so it counts until then.

        The first chunk is read before the response begins, so that damaged bytes are an error and not a cut.
        """
        held: list[int] = []
        begun = False
        try:
            while True:
                self._size = self._buffers.take()
                held.append(self._size)
                chunk = await self._buffers.read(self._chunks)
                if not begun:
                    begun = True
                    await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": chunk, "more_body": bool(chunk)})
                if not chunk:
                    return
                if len(held) > 1:
                    self._buffers.give_back(held.pop(0))
        finally:
            for size in held:
                self._buffers.give_back(size)


class Unsatisfiable(Exception):
    """The range starts beyond the end of the content."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return offset and length of the single range in a Range header, or None for the whole content.

    Raises `Unsatisfiable`.
    """
    found = RANGE.fullmatch(header.strip()) if header and len(header) <= MAX_RANGE else None
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


def bytes_response(
    request: Request,
    wanted: RangeHeaders,
    sha256: str,
    size: int,
    chunks: Chunks,
    extra: Mapping[str, str],
    buffers: DownloadBuffers,
) -> Response:
    """Return the response to GET or HEAD for immutable bytes with this sha256 and size."""
    tag = f'"{sha256}"'
    headers = {"etag": tag, "accept-ranges": "bytes", **extra}
    if _matches(wanted.if_none_match, tag):
        return Response(status_code=304, headers=headers)
    use_range = wanted.if_range is None or wanted.if_range.strip() == tag
    try:
        part = parse_range(wanted.range, size) if use_range and request.method == "GET" else None
    except Unsatisfiable:
        problem = UsageError(
            f"The range starts beyond the end: there are {size} bytes.", hint="Request a range within them."
        )
        return error_reply(problem, 416, {**headers, "content-range": f"bytes */{size}"})
    start, length = part or (0, size)
    headers["content-length"] = str(length)
    if part:
        headers["content-range"] = f"bytes {start}-{start + length - 1}/{size}"
    if request.method == "HEAD" or length == 0:
        return Response(status_code=200, headers=headers, media_type="application/octet-stream")
    status = 206 if part else 200
    return FileResponse(partial(chunks, start, length), status, headers, buffers)


ZSTD = re.compile(
    r"(?:^|,)\s{0,8}zstd\s{0,8}(?:;\s{0,8}q=(?:1|0?\.\d{0,2}[1-9]).{0,8})?(?=,|$)", re.IGNORECASE | re.ASCII
)


def accepts_zstd(request: Request) -> bool:
    """Whether a client takes zstd. Source: RFC 9110, 12.5.3; RFC 8878, 7.2."""
    return ZSTD.search(request.headers.get("accept-encoding", "")[:MAX_RANGE]) is not None


def packed_response(
    sha256: str, size: int, reader: Reader, extra: Mapping[str, str], buffers: DownloadBuffers
) -> Response:
    """Return the response with all bytes of a blob as they are stored: in zstd."""

    def chunks(chunk: ChunkSize) -> Iterator[bytes]:
        reader.chunk = chunk
        return iter(reader)

    headers = {"etag": f'"{sha256}.zst"', "content-encoding": "zstd", "content-length": str(size), **extra}
    return FileResponse(chunks, 200, headers, buffers)


def not_modified(known: str | None, tag: str) -> Response | None:
    """Return the response 304 if If-None-Match (`known`) has this entity tag, else None."""
    return Response(status_code=304, headers={"etag": tag}) if _matches(known, tag) else None


def _matches(header: str | None, tag: str) -> bool:
    """Whether If-None-Match matches this tag by weak comparison."""
    if header is None:
        return False
    return any(each.strip().removeprefix("W/") in (tag.removeprefix("W/"), "*") for each in header.split(","))
