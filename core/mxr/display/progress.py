"""The progress of what takes long: hashing, transfers, copies. Whoever shows it sets `display`; else it is not shown.

step = progress.begin("fetching model.onnx", 4 << 30)
step(1 << 20)  # this many bytes more
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Step: TypeAlias = Callable[[int], object]
"""Is called with the bytes of each part that is done; negative where a part is done again. By any thread."""

Display: TypeAlias = Callable[[str, int], Step]
"""Is called before an action with what is done and the total number of bytes, which can be 0."""

display: ContextVar[Display | None] = ContextVar("display", default=None)


notice: ContextVar[Callable[[str], object] | None] = ContextVar("notice", default=None)
"""Is called with a sentence about what the user waits for."""


@contextmanager
def shown_by(show: Display | None) -> Iterator[None]:
    """Show the progress of what the block does by `show`; None: as before."""
    token = display.set(show or display.get())
    try:
        yield
    finally:
        display.reset(token)


def ignore(done: int) -> None:
    """A step that shows nothing."""


def begin(action: str, total: int) -> Step:
    """Begin an action of `total` bytes, such as "hashing model.onnx". Returns what is called with each part."""
    show = display.get()
    return ignore if show is None else show(action, total)


def tell(sentence: str) -> None:
    """Tell the user what he waits for."""
    show = notice.get()
    if show is not None:
        show(sentence)
