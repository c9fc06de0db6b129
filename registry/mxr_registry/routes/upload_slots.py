"""Bounds the uploads that run at one time, and with them their memory, threads and requests of the store.

The others wait without a thread, and nothing of their bodies is read. Clients that send slowly do not stop those of
others: each has a share of the slots, and no upload takes longer than its size explains.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import move_on_after

from mxr.errors import InterruptionError
from mxr.util.hashing import CHUNK

from .fair_places import FairPlaces, Requester

SLOTS = 64
"""Uploads at one time."""

MAX_BUFFERED_BYTES = 128 << 20
"""Bytes that all uploads together hold."""

CHUNKS_EACH = 5
"""Chunks that one upload holds: one that arrives, one that is held back until the sha256 is known, two that wait for
the store, and one that is being sent.
"""


SLOWEST = 1 << 20
"""Bytes per second of an upload, beyond the time that each may take (`limits.upload_seconds`)."""


class UploadSlots:
    """The uploads that run, and from their number the size of the chunks in which they are written.

    `seconds`: the time of an upload, in addition to that of its bytes at the `SLOWEST` rate.
    """

    def __init__(self, seconds: float, slots: int = SLOTS) -> None:
        self._seconds, self._places = seconds, FairPlaces(slots)

    @asynccontextmanager
    async def slot(self, client: Requester, size: int) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for the block: the upload of so many bytes. Used in the event loop only.

        Raises `InterruptionError` if the block takes longer than it may.
        """
        async with self._places.place(client):
            seconds = self._seconds + size / SLOWEST
            with move_on_after(seconds) as scope:
                yield
        if scope.cancelled_caught:
            raise InterruptionError(f"The upload took longer than {seconds:.0f} s, the limit for {size} bytes.")

    @property
    def chunk(self) -> int:
        """Bytes per chunk at this moment."""
        return min(CHUNK, MAX_BUFFERED_BYTES // (CHUNKS_EACH * max(1, self._places.taken)))
