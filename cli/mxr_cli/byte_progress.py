"""The progress of hashing, transfers and copies: one line that is updated on a terminal, a line each ten seconds else.

click's progress bar has no rate, no sizes in bytes and no lines for a log, and rich takes 51 ms to import.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from mxr.display import streams

from .output import format_duration, format_size, note

FIRST, AGAIN, LINES = 0.5, 0.1, 10.0
"""Seconds after which an action is shown on a terminal, updated there, and told in another line elsewhere."""

WINDOW = 10.0
"""Seconds over which the rate is averaged."""

MIN_BAR, MAX_BAR = 8, 30
"""Columns of a bar. Where there is no room for the least, one word less is shown."""


class ByteProgress:
    """An action of `total` bytes: a `mxr.display.progress.Step`. What is done within `FIRST` seconds is never shown."""

    def __init__(self, action: str, total: int) -> None:
        self._action, self._total, self._done = action, total, 0
        self._live = streams.on_terminal()
        now = time.monotonic()
        self._next = now + (FIRST if self._live else LINES)
        self._samples = deque([(now, 0)])
        self._lock = threading.Lock()

    def __call__(self, part: int) -> None:
        """Count the bytes of a part, negative for one that is done again, and show it if it is time. For any thread."""
        with self._lock:
            self._done += part
            now = time.monotonic()
            if self._done >= self._total:
                streams.clear_line()
            elif now >= self._next:
                self._next = now + (AGAIN if self._live else LINES)
                self._show(now)

    def _show(self, now: float) -> None:
        self._samples.append((now, self._done))
        while len(self._samples) > 2 and self._samples[0][0] < now - WINDOW:
            self._samples.popleft()
        begun, before = self._samples[0]
        rate = max(0.0, (self._done - before) / (now - begun)) if now > begun else 0.0
        if self._live:
            streams.update_line(bar_line(self._action, self._done, self._total, rate, streams.terminal_size()[0] - 1))
        else:
            note(f"mxr: {self._action}: {', '.join(_words(self._done, self._total, rate))}")


def bar_line(action: str, done: int, total: int, rate: float, columns: int) -> str:
    """An action with a bar, its share, sizes, rate (from bytes/s) and the time left: as much as fits the columns."""
    share, sizes, *rest = _words(done, total, rate)
    for words in ([sizes, *rest], rest, rest[1:], []):
        text = "  ".join([share, *words])
        width = min(MAX_BAR, columns - len(f"{action} [] {text}"))
        if width >= MIN_BAR:
            full = width * done // total
            return f"{action} [{'#' * full}{'.' * (width - full)}] {text}"
    return f"{share} {action}"


def _words(done: int, total: int, rate: float) -> list[str]:
    words = [f"{done * 100 // total:3}%", f"{format_size(done)} of {format_size(total)}"]
    if rate >= 1:
        words += [f"{format_size(int(rate))}/s", f"{format_duration((total - done) / rate)} left"]
    return words
