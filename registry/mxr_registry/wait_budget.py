"""How long one request may wait for an answer of the database: a budget that all its statements share.

A server that hangs (a stopped process, a lost state of a firewall) takes connections and answers nothing, and no
timeout of its own ends that. An answer fills the budget up again: a slow server is none that hangs, and a stream of
events lasts for hours. What runs outside of a request, such as a sweep or a migration, has no budget.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST = 0.05
"""Seconds that a wait has at least, where the budget is used up."""


class WaitBudget:
    """Seconds that a request may wait, and those that are left. Its threads wait one after the other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self._waits = False

    @contextmanager
    def spend(self) -> Iterator[float]:
        """Yield the seconds that the block may wait. They are gone where it fails, once where one is in another."""
        seconds = max(LEAST, self.left)
        if self._waits:
            yield seconds
            return
        self._waits, begun = True, time.monotonic()
        try:
            yield seconds
        except BaseException:
            self.left -= time.monotonic() - begun
            raise
        else:
            self.left = self.seconds
        finally:
            self._waits = False


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
    """Yield the seconds that the block may wait; None outside of a request."""
    budget = _current.get()
    if budget is None:
        yield None
        return
    with budget.spend() as seconds:
        yield seconds
