"""Divides places among clients: none has all of them, by its address or by its token, and some are kept for workers.

A token can be used from many addresses, and an address can have many tokens: a client has a share by each of the two.

UploadSlots   bounds the uploads that run at one time, and with them their memory, threads and requests of the store.
              The others wait without a thread, and nothing of their bodies is read. No upload takes longer than its
              size explains.
CheckingPool  threads for requests that take long: publications, finished jobs and registrations of models read every
              byte and start a process; surveys compare a thousand requests. In the pool of all requests, some dozens of
              them would stop even the heartbeats of workers.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, move_on_after

from mxr.errors import InterruptionError, TemporaryError, TooManyRequestsError
from mxr.util.hashing import CHUNK
from mxr_registry import counters
from mxr_registry.server.threads import ThreadPool

RETRY_AFTER = 5.0
"""Seconds after which a client is asked to try again."""

Parts = Mapping[str, Callable[[int], int]]
"""Names, each with how many of so many places it has at most."""

ALL, OTHERS = "all", "all but workers"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sends a request: address, and principal of the token. `works`: it may take the places kept for workers."""

    address: str
    principal: str
    works: bool = False

    @property
    def shares(self) -> Parts:
        """The names of its shares, and how many of so many places each has.

        The smaller one comes first: a request that waits for it holds nothing of the other.
        """
        return {f"principal {self.principal}": _half, f"address {network_of(self.address)}": _three_quarters}

    @property
    def pools(self) -> Parts:
        """The names of what it shares with all clients, and how many of so many places each has."""
        return {ALL: int} if self.works else {OTHERS: _without_kept, ALL: int}


def network_of(address: str) -> str:
    """Return what stands for one client: an IPv4 address, or the /64 network of an IPv6 address."""
    with suppress(ValueError):
        found = ipaddress.ip_address(address)
        if found.version == 6 and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
    return address


def _three_quarters(places: int) -> int:
    return max(1, places * 3 // 4)


def _half(places: int) -> int:
    return (places + 1) // 2


def _without_kept(places: int) -> int:
    """An eighth of the places is for workers: what they compiled for hours has to arrive."""
    return places - max(1, places // 8) if places > 2 else places


class FairPlaces:
    """So many places, and at most `waiting` requests that wait for one; None: any number. For the event loop only."""

    def __init__(self, places: int, waiting: int | None = None) -> None:
        self._places, self._waiting = places, waiting
        self._requests: Counter[str] = Counter()
        self._limiters: dict[str, CapacityLimiter] = {}

    @property
    def taken(self) -> int:
        """The places that are taken at this moment."""
        return int(self._limiters[ALL].borrowed_tokens) if ALL in self._limiters else 0

    @property
    def requests(self) -> int:
        """The requests that have a place or wait for one."""
        return self._requests[ALL]

    @asynccontextmanager
    async def place(self, client: Requester) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block. Raises as `share` does."""
        async with self.share(client), self.place_in_share(client):
            yield

    @asynccontextmanager
    async def share(self, client: Requester) -> AsyncIterator[None]:
        """Wait until the client has less than its share, and count it for the block.

        Raises `TooManyRequestsError` if too many requests of this client wait, and `TemporaryError` if too many do.
        """
        parts = {**client.shares, **client.pools}
        self._refuse_too_many(parts)
        # Counted before they wait, so that no limiter is dropped that somebody is about to enter.
        self._requests.update(parts.keys())
        try:
            async with self._within(client.shares):
                yield
        finally:
            self._requests.subtract(parts.keys())
            for name in parts:
                if not self._requests[name]:
                    del self._requests[name]
                    self._limiters.pop(name, None)

    @asynccontextmanager
    async def place_in_share(self, client: Requester) -> AsyncIterator[None]:
        """Within `share`: wait for a place, and hold it for the block."""
        async with self._within(client.pools):
            yield

    def _refuse_too_many(self, parts: Parts) -> None:
        if self._waiting is None:
            return
        full = [name for name, part in parts.items() if self._requests[name] >= part(self._places + self._waiting)]
        if not full:
            return
        common = full[0] in (OTHERS, ALL)
        counters.REFUSED.labels("places" if common else "client").inc()
        if common:
            error = TemporaryError("The registry has too many requests of this kind at the same time.")
        else:
            error = TooManyRequestsError("This client has too many requests of this kind at the same time.")
        error.retry_after = RETRY_AFTER
        raise error

    @asynccontextmanager
    async def _within(self, parts: Parts) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name, part in parts.items():
                limiter = self._limiters.setdefault(name, CapacityLimiter(part(self._places)))
                await stack.enter_async_context(limiter)
            yield


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


T = TypeVar("T")


class CheckingPool:
    """Runs at most `running` calls at once, and lets at most `waiting` others wait."""

    def __init__(self, running: int, waiting: int) -> None:
        self._places = FairPlaces(running, waiting)
        self._threads = ThreadPool(running)
        self._turns: dict[str, _Turn] = {}

    @property
    def running(self) -> int:
        """The calls that run at this moment."""
        return self._places.taken

    @property
    def waiting(self) -> int:
        """The calls that wait at this moment."""
        return self._places.requests - self._places.taken

    async def run(self, client: Requester, call: Callable[..., T], *arguments: object, turn: str | None = None) -> T:
        """Return the result of a call in a thread of this pool. Calls with the same `turn` run one after the other.

        Raises `TemporaryError` if too many calls wait, and `TooManyRequestsError` if too many of this client do.
        """
        # Calls of one client with the same turn wait for each other without a place.
        own = None if turn is None else f"{client.principal} {turn}"
        # The turn of all comes after the share: a client queued behind itself must not block others.
        async with self._turn(own), self._places.share(client), self._turn(turn), self._places.place_in_share(client):
            return await self._threads.run(call, *arguments)

    @asynccontextmanager
    async def _turn(self, name: str | None) -> AsyncIterator[None]:
        if name is None:
            yield
            return
        turn = self._turns.setdefault(name, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
