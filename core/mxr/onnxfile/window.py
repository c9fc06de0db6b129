"""Bytes that are read on demand in windows, so that a file in a blob store can be read like a memory map."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

SIZE = 1 << 18
MAX_WINDOWS = 64
"""Number of windows that are kept, 16 MiB in total."""


class Window:
    """A sequence of `size` bytes that `read_at(offset, length)` reads. A slice reads only its own bytes."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes]) -> None:
        self._size, self._read_at = size, read_at
        self._kept: dict[int, bytes] = {}
        self._start, self._data = 0, b""

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> bytes: ...

    def __getitem__(self, key: int | slice) -> int | bytes:
        if isinstance(key, slice):
            start, stop, _ = key.indices(self._size)
            return self._read_at(start, max(0, stop - start))
        at = key - self._start
        if not 0 <= at < len(self._data):
            at = self._move_to(key)
        return self._data[at]

    def _move_to(self, key: int) -> int:
        """Make the window of byte `key` the current one; return the position of the byte in it."""
        number, at = divmod(key, SIZE)
        data = self._kept.pop(number, None) or self._read_at(number * SIZE, SIZE)
        if len(self._kept) >= MAX_WINDOWS:
            del self._kept[next(iter(self._kept))]
        self._kept[number] = data
        self._start, self._data = number * SIZE, data
        return at
