"""Bounds the uploads that run at one time, and with them their memory, threads and requests of the store.

The others wait without a thread, and nothing of their bodies is read. One client, known by its address, has at most
three quarters of the slots: clients that send slowly do not stop those of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CapacityLimiter

from mxr.util.hashing import CHUNK

from .checking_pool import client_of

SLOTS = 64
"""Uploads at one time."""

MAX_BUFFERED_BYTES = 128 << 20
"""Bytes that all uploads together hold."""

CHUNKS_EACH = 5
"""Chunks that one upload holds: one that arrives, one that is held back until the sha256 is known, two that wait for
the store, and one that is being sent.
"""


class UploadSlots:
    """The uploads that run, and from their number the size of the chunks in which they are written."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        self._all: CapacityLimiter | None = None
        self._shares: dict[str, CapacityLimiter] = {}

    @asynccontextmanager
    async def slot(self, address: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for the block. `address`: that of the client. Used in the event loop only."""
        self._all = self._all or CapacityLimiter(self._slots)
        client = client_of(address)
        share = self._shares.setdefault(client, CapacityLimiter(max(1, self._slots * 3 // 4)))
        try:
            async with share, self._all:
                yield
        finally:
            if not share.borrowed_tokens and not share.statistics().tasks_waiting:
                self._shares.pop(client, None)

    @property
    def chunk(self) -> int:
        """Bytes per chunk at this moment."""
        running = self._all.borrowed_tokens if self._all else 0
        return min(CHUNK, MAX_BUFFERED_BYTES // (CHUNKS_EACH * max(1, int(running))))
