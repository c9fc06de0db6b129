"""Memory that requests share: whoever finds none is asked to come back, instead of growing the process."""

from __future__ import annotations

import threading

from mxr.errors import TemporaryError
from mxr_registry import counters

RETRY_AFTER = 5.0
"""Seconds after which a client is asked to try again."""

RESERVATION = "mxr.reservation"
"""The name under which the ASGI scope of a request has its `Reservation`."""


class MemoryBudget:
    """The bytes that all requests of one kind may hold together. Can be used from several threads."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        self._guard = threading.Lock()

    def take(self, size: int) -> bool:
        """Take so many bytes. Returns false if there are not as many."""
        with self._guard:
            if self.held + size > self.total:
                return False
            self.held += size
            return True

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken."""
        with self._guard:
            self.held -= size


class Reservation:
    """What one request holds of a budget."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._size = 0

    @property
    def largest(self) -> int:
        """The bytes that this request could hold if it were alone."""
        return self._budget.total - self._size

    def grow(self, size: int) -> None:
        """Hold so many more bytes. Raises `TemporaryError` if there are not as many."""
        if not self._budget.take(size):
            counters.REFUSED.labels("body_memory").inc()
            error = TemporaryError(
                "The registry is handling too many large requests.", hint="Try again in some seconds."
            )
            error.retry_after = RETRY_AFTER
            raise error
        self._size += size

    def release(self) -> None:
        """Give everything back."""
        if self._size:
            self._budget.give_back(self._size)
            self._size = 0
