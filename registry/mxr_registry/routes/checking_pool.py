"""A thread pool for requests that read whole programs or models, apart from the pool of all other requests.

Publications, finished jobs and registrations of models read every byte and start a process. In the pool of all
requests, some dozens of them would stop even the resolves. Here, few run at once; the others wait without a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from mxr.errors import Temporary

T = TypeVar("T")

RETRY_AFTER = 5.0
"""Seconds after which a client is asked to try again."""


class CheckingPool:
    """Runs at most `running` calls at once, and lets at most `waiting` others wait."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running, self._most = running, running + waiting
        self._limiter: CapacityLimiter | None = None
        self._count = 0
        self._turns: dict[str, _Turn] = {}

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Return the result of a call in a thread of this pool. Raises `Temporary` if too many calls wait."""
        if self._count >= self._most:
            error = Temporary("The registry is checking too many programs and models at the same time.")
            error.retry_after = RETRY_AFTER
            raise error
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._running)
        self._count += 1
        try:
            return await run_sync(partial(call, *arguments), limiter=self._limiter)
        finally:
            self._count -= 1

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Let the blocks of the same name run one after the other. Those that wait hold no thread."""
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
