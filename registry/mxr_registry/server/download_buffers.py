"""Bounds the memory of all downloads together: the more bytes wait for their clients, the smaller the next chunks."""

from __future__ import annotations

from collections.abc import Iterator

from mxr.util.hashing import CHUNK

from .threads import DOWNLOADS, ThreadPool

MIN_CHUNK = 32 << 10
"""Bytes of a chunk where there is no memory left: what every connection may hold in any case."""

COPIES = 2
"""A chunk that a client does not take is held by the response and by the connection."""

FRACTION = 32
"""A chunk takes at most this part of what is left."""


class DownloadBuffers:
    """The bytes that wait for clients, and from them the size of the next chunk. Used in the event loop only.

    Chunks are read in threads of their own: hundreds of downloads must not take those of all other requests.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.held = 0
        self._threads = ThreadPool(DOWNLOADS)

    async def read(self, chunks: Iterator[bytes]) -> bytes:
        """Return the next chunk, empty at the end, read in another thread."""
        return await self._threads.run(next, chunks, b"")

    def take(self) -> int:
        """Return the bytes of the next chunk of a download, which it holds until `give_back`."""
        size = max(MIN_CHUNK, min(CHUNK, (self._total - self.held) // (COPIES * FRACTION)))
        self.held += COPIES * size
        return size

    def give_back(self, size: int) -> None:
        """Give back a chunk that the client took."""
        self.held -= COPIES * size
