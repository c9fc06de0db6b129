"""Bounds the memory of all downloads together: the more bytes wait for their clients, the smaller the next chunks."""

from __future__ import annotations

from collections.abc import Iterator

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from mxr.util.hashing import CHUNK

SMALLEST_CHUNK = 32 << 10
"""Bytes of a chunk where there is no memory left: what every connection may hold in any case."""

THREADS = 16
"""Chunks that are read at the same time."""

COPIES = 2
"""A chunk that a client does not take is held by the response and by the connection."""

FRACTION = 32
"""A chunk takes at most this part of what is left."""


class DownloadBuffers:
    """The bytes that wait for clients, and from them the size of the next chunk. Used in the event loop only.

    Chunks are read in `THREADS` threads: hundreds of downloads must not take the threads of all other requests.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.held = 0
        self._limiter: CapacityLimiter | None = None

    async def read(self, chunks: Iterator[bytes]) -> bytes:
        """Return the next chunk, empty at the end, read in another thread."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(THREADS)
        return await run_sync(next, chunks, b"", limiter=self._limiter)

    def take(self) -> int:
        """Return the bytes of the next chunk of a download, which it holds until `give_back`."""
        size = max(SMALLEST_CHUNK, min(CHUNK, (self._total - self.held) // (COPIES * FRACTION)))
        self.held += COPIES * size
        return size

    def give_back(self, size: int) -> None:
        """Give back a chunk that the client took."""
        self.held -= COPIES * size
