"""The bytes of an ONNX file: read on demand in windows, from a blob store, or from a file without a memory map.

A file that another process truncates kills the reader of its memory map with SIGBUS, as does a share that fails; and
some mounts have no shared maps. Positioned reads return an error instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.errors import TemporaryError
from mxr.util import disk
from mxr.util.hashing import identity

if TYPE_CHECKING:
    from .protobuf import Bytes

SIZE = 1 << 18
KEPT = 16 << 20
"""Bytes of the windows that are kept."""

FILE_SIZE = 1 << 12
"""Bytes of a window of a file: the heads of tensors are far apart, and reading what lies between costs more."""

WHOLE = 1 << 26
"""Bytes up to which a file is read whole."""


OVERLAP = 20
"""Bytes of the next window that a window also has: those of the longest tag with its value or its size."""


class Window:
    """A sequence of `size` bytes that `read_at(offset, length)` reads. A long slice reads only its own bytes."""

    def __init__(self, size: int, read_at: Callable[[int, int], bytes], window: int = SIZE) -> None:
        self._size, self._read_at, self._window = size, read_at, window
        self._kept: dict[int, bytes] = {}
        self._start, self._data = -window, b""

    def __len__(self) -> int:
        return self._size

    def part(self, at: int) -> tuple[bytes, int, int]:
        """Return the bytes of the window of byte `at`, the offset of their first one, and the size of the window."""
        if not 0 <= at - self._start < self._window:
            self._move_to(at)
        return self._data, self._start, self._window

    def __getitem__(self, key: slice) -> bytes:
        start, stop = key.start, min(key.stop, self._size)
        at = start - self._start
        if at >= 0 and stop - self._start <= len(self._data):
            return self._data[at : stop - self._start]
        if stop <= start:
            return b""
        if stop - start <= self._window:
            self._move_to(start)
        if not self._start <= start < stop <= self._start + len(self._data):
            return self._read_at(start, stop - start)
        return self._data[start - self._start : stop - self._start]

    def _move_to(self, at: int) -> None:
        """Make the window of byte `at` the current one."""
        number = at // self._window
        data = self._kept.pop(number, None) or self._read_at(number * self._window, self._window + OVERLAP)
        if len(self._kept) * self._window >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[number] = data
        self._start, self._data = number * self._window, data


@contextmanager
def opened(path: Path) -> Iterator[Bytes]:
    """Yield the bytes of a file for the block.

    Raises `OSError`, and `TemporaryError` for a file that changes until the end of the block, or that its file system
    fails to read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)

        def read_at(offset: int, length: int) -> bytes:
            wanted = min(length, before.st_size - offset)
            try:
                data = os.pread(descriptor, wanted, offset)
                while 0 < len(data) < wanted and (more := os.pread(descriptor, wanted - len(data), offset + len(data))):
                    data += more
            except OSError as problem:
                raise disk.fault(problem, path, "read") from problem
            if len(data) < wanted:
                raise _changed(path)
            return data

        try:
            whole = before.st_size <= WHOLE
            yield read_at(0, before.st_size) if whole else Window(before.st_size, read_at, FILE_SIZE)
        finally:
            # What was read may be from two files, whatever came of it.
            if identity(os.fstat(descriptor))[:4] != identity(before)[:4]:
                raise _changed(path)
    finally:
        os.close(descriptor)


def _changed(path: Path) -> TemporaryError:
    return TemporaryError(
        f"{path} changed while it was read.",
        hint="Another program writes it: wait until it is complete, then try again.",
    )
