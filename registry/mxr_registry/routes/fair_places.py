"""Divides places among clients: none has all of them, by its address or by its token, and some are kept for workers.

A token can be used from many addresses, and an address can have many tokens: a client has a share by each of the two.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from anyio import CapacityLimiter

from mxr.errors import TemporaryError, TooManyRequestsError

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
        if full[0] in (OTHERS, ALL):
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
