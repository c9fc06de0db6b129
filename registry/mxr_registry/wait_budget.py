"""How long one request may wait for the database: a budget that all its statements share.

A server that hangs (a stopped process, a lost state of a firewall) takes connections and answers nothing, and no
timeout of its own ends that. What runs outside of a request, such as a sweep or a migration, has no budget.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST = 0.05
"""Seconds that a wait has at least, where the budget is used up."""


class WaitBudget:
    """Seconds that are left. Threads of one request wait one after the other."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self._waits = False

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Take the time of the block off, once where one is inside of another."""
        if self._waits:
            yield
            return
        self._waits, begun = True, time.monotonic()
        try:
            yield
        finally:
            self._waits = False
            self.left -= time.monotonic() - begun


_current: ContextVar[WaitBudget | None] = ContextVar("_current", default=None)


def begin(seconds: float) -> None:
    """Give this request a budget; its threads have it, too."""
    _current.set(WaitBudget(seconds))


def left() -> float | None:
    """Return the seconds that are left; None outside of a request."""
    budget = _current.get()
    return None if budget is None else max(LEAST, budget.left)


@contextmanager
def waiting() -> Iterator[float | None]:
    """Yield the seconds that the block may wait, and take off what it takes; None outside of a request."""
    budget = _current.get()
    if budget is None:
        yield None
        return
    seconds = max(LEAST, budget.left)
    with budget.spend():
        yield seconds
