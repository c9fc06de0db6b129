"""A connection to PostgreSQL that waits for the server no longer than its request may."""

from __future__ import annotations

from typing import Any

import psycopg

from mxr_registry import wait_budget


class BoundedConnection(psycopg.Connection[Any]):
    """Where the time is over, it closes itself: nobody knows what the server still does with its transaction."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Return what the server answers. Raises `psycopg.OperationalError` when it does not in time."""
        with wait_budget.waiting() as seconds:
            bounds = [each for each in (seconds, timeout) if each is not None]
            try:
                return super().wait(gen, interval, min(bounds, default=None))
            except psycopg.errors._WaitTimeout:
                if seconds is None or (timeout is not None and timeout < seconds):
                    raise
                self.pgconn.finish()
                raise psycopg.OperationalError(f"the server did not answer within {seconds:.1f} s") from None
