"""A thread pool for requests that read whole programs or models, apart from the pool of all other requests.

Publications, finished jobs and registrations of models read every byte and start a process. In the pool of all
requests, some dozens of them would stop even the resolves. Here, few run at once; the others wait without a thread.
One client, known by its address, has at most all threads but one, and three quarters of the places.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from anyio import CapacityLimiter

from mxr.errors import TemporaryError, TooManyRequestsError

from .threads import ThreadPool

T = TypeVar("T")

RETRY_AFTER = 5.0
"""Seconds after which a client is asked to try again."""


class CheckingPool:
    """Runs at most `running` calls at once, and lets at most `waiting` others wait."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running, self._most = running, running + waiting
        self._threads = ThreadPool(running)
        self._count = 0
        self._shares: dict[str, _Share] = {}
        self._turns: dict[str, _Turn] = {}

    async def run(self, client: str, call: Callable[..., T], *arguments: object, turn: str | None = None) -> T:
        """Return the result of a call in a thread of this pool. Raises `TemporaryError` if too many calls wait, and
        `TooManyRequestsError` if too many of this client do.

        `client`: the address of the client. Calls with the same `turn` run one after the other.
        """
        name = client_of(client)
        # Calls of one client with the same turn wait for each other without a place.
        async with self._turn(None if turn is None else f"{name} {turn}"):
            return await self._run(name, partial(call, *arguments), turn)

    async def _run(self, client: str, call: Callable[[], T], turn: str | None) -> T:
        share = self._shares.get(client) or _Share(CapacityLimiter(max(1, self._running - 1)))
        error: TemporaryError | None = None
        if self._count >= self._most:
            error = TemporaryError("The registry is checking too many programs and models at the same time.")
        elif share.users >= max(1, self._most * 3 // 4):
            error = TooManyRequestsError("This client has too many programs and models checked at the same time.")
        if error is not None:
            error.retry_after = RETRY_AFTER
            raise error
        self._shares[client] = share
        self._count += 1
        share.users += 1
        try:
            # The turn comes last: who waits for its own other calls must not hold what others wait for.
            async with share.limiter, self._turn(turn):
                return await self._threads.run(call)
        finally:
            self._count -= 1
            share.users -= 1
            if not share.users:
                del self._shares[client]

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


class _Share:
    def __init__(self, limiter: CapacityLimiter) -> None:
        self.limiter = limiter
        self.users = 0


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


def client_of(address: str) -> str:
    """Return what stands for one client: an IPv4 address, or the /64 network of an IPv6 address."""
    with suppress(ValueError):
        found = ipaddress.ip_address(address)
        if found.version == 6 and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
    return address
