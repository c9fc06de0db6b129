"""One test for all rows of a table, where each row is not a subject of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call a test for each row: its arguments, or its only argument. A failure tells the row."""
    table = list(rows)
    assert table

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        single = len(inspect.signature(test).parameters) == 1

        def run() -> None:
            for row in table:
                try:
                    test(row) if single else test(*row)
                except Exception as problem:
                    raise AssertionError(f"{row!r}: {problem}") from problem

        functools.update_wrapper(run, test)
        # Pytest would take the rows for fixtures.
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate
