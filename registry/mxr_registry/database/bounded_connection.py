"""A connection to PostgreSQL that waits for the server no longer than its request may."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import psycopg

from mxr_registry import wait_budget


class BoundedConnection(psycopg.Connection[Any]):
    """Where the time is over, it closes itself: nobody knows what the server still does with its transaction.

    `answered`: when the server last answered any connection. One that answers others does not hang: this statement is
    slow, or waits for a lock.
    """

    answered: ClassVar[float] = 0.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Return what the server answers. Raises `psycopg.OperationalError` when it does not in time."""
        begun = time.monotonic()
        with wait_budget.waiting() as seconds:
            bounds = [each for each in (seconds, timeout) if each is not None]
            try:
                found = super().wait(gen, interval, min(bounds, default=None))
            except psycopg.errors._WaitTimeout:
                if seconds is None or (timeout is not None and timeout < seconds):
                    raise
                self.pgconn.finish()
                hangs = BoundedConnection.answered < begun
                what = "the server did not answer" if hangs else "the statement had no answer"
                raise psycopg.OperationalError(f"{what} within {seconds:.1f} s") from None
        BoundedConnection.answered = time.monotonic()
        return found
