"""A thread pool for requests that take long, apart from the pool of all other requests.

Publications, finished jobs and registrations of models read every byte and start a process; surveys compare a thousand
requests. In the pool of all requests, some dozens of them would stop even the heartbeats of workers. Here, few run at
once; the others wait without a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from .fair_places import FairPlaces, Requester
from .threads import ThreadPool

T = TypeVar("T")


class CheckingPool:
    """Runs at most `running` calls at once, and lets at most `waiting` others wait."""

    def __init__(self, running: int, waiting: int) -> None:
        self._places = FairPlaces(running, waiting)
        self._threads = ThreadPool(running)
        self._turns: dict[str, _Turn] = {}

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
