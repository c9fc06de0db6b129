"""The threads that requests run in: few, and apart for each kind of work.

Python runs one thread at a time, and each further one that wants to run makes the others wait longer, among them the
event loop, which accepts connections and reads requests. A request that waits for a thread costs almost nothing.
Those that use the database are fewer than its connections (`database.pool`), so that a resolve finds one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter, run_sync

T = TypeVar("T")

SHARED = 11
"""Threads of all requests that have none of their own."""

LEASES = 3
"""Threads of workers that claim jobs, keep their leases and end them: a lease that nobody renews loses a compile."""

SURVEYS = 2
"""Threads of surveys, each of which compares up to a thousand requests."""

BODIES = 1
"""Threads that count the values of bodies, which takes a processor only."""

RESOLVES = 6
"""Threads of resolves that find a program: hosts that start wait for them."""

UPLOADS = 16
"""Threads that write uploads to the store."""

DOWNLOADS = 4
"""Threads that read chunks of downloads."""


class ThreadPool:
    """Runs calls in so many threads at most; the others wait without a thread. Used in the event loop only."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limiter: CapacityLimiter | None = None

    async def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Return the result of a call in a thread."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._threads)
        return await run_sync(call, *arguments, limiter=self._limiter)


def bound_shared_threads() -> None:
    """Bound the threads in which FastAPI runs the routes that are plain functions. Call it in the event loop."""
    current_default_thread_limiter().total_tokens = SHARED
