"""Bounds the memory of all uploads together: the more there are, the smaller the chunks in which they are written."""

from __future__ import annotations

from mxr.util.hashing import CHUNK

MAX_BUFFERED_BYTES = 128 << 20
"""Bytes that all uploads together may buffer, as long as the chunks do not become smaller than `MIN_CHUNK`."""

MIN_CHUNK = 64 << 10


class UploadBuffers:
    """The number of uploads in progress, and from it the size of the chunks that each collects before it writes."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> UploadBuffers:
        self._count += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1

    @property
    def chunk(self) -> int:
        """Bytes per chunk at this moment."""
        return max(MIN_CHUNK, min(CHUNK, MAX_BUFFERED_BYTES // max(1, self._count)))
