"""Reads MessagePack tokens (kinds, numbers and spans) through a small window on a source.

Source: the MessagePack specification, https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from mxr.errors import DamagedError
from mxr.program.source import Source, Span

NIL, FALSE, TRUE, INT, SIGNED, FLOAT, DOUBLE, TEXT, BIN, ARRAY, MAP, FOREIGN = range(12)
"""The kinds of values. FOREIGN stands for extension types, which MIGraphX rejects."""

MAX_TEXT_LENGTH = 1 << 16
"""Maximum bytes of a string that is read. A longer one is skipped like a binary."""

_FIRST_WINDOW, _LAST_WINDOW = 1 << 12, 1 << 18


def _kinds() -> list[tuple[int, int, int]]:
    kinds = [(INT, 0, tag) for tag in range(0x80)]
    kinds += [(MAP, 0, n) for n in range(16)] + [(ARRAY, 0, n) for n in range(16)] + [(TEXT, 0, n) for n in range(32)]
    kinds += [(NIL, 0, 0), (FOREIGN, 0, 0), (FALSE, 0, 0), (TRUE, 0, 0)]
    kinds += [(BIN, width, 0) for width in (1, 2, 4)] + [(FOREIGN, 0, 0)] * 3
    kinds += [(FLOAT, 4, 0), (DOUBLE, 8, 0)]
    kinds += [(kind, width, 0) for kind in (INT, SIGNED) for width in (1, 2, 4, 8)] + [(FOREIGN, 0, 0)] * 5
    kinds += [(TEXT, width, 0) for width in (1, 2, 4)]
    kinds += [(kind, width, 0) for kind in (ARRAY, MAP) for width in (2, 4)]
    return kinds + [(INT, 0, tag - 256) for tag in range(0xE0, 0x100)]


KINDS = _kinds()
"""By first byte: the kind, the number of bytes of the number that follows, and the number itself if none follow."""

SCALARS: dict[int, Callable[[int], object]] = {
    NIL: lambda _: None,
    FALSE: lambda _: False,
    TRUE: lambda _: True,
    INT: lambda number: number,
    SIGNED: lambda number: number,
    FLOAT: lambda bits: struct.unpack(">f", bits.to_bytes(4, "big"))[0],
    DOUBLE: lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0],
}
"""By kind: the value that its number represents."""


class Binary(NamedTuple):
    """A binary that was skipped: the spans of its chunks in the source."""

    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Total bytes of all chunks."""
        return sum(span.size for span in self.spans)


def damaged(message: str, offset: int) -> DamagedError:
    """Return the error for damage at a byte of the file; `message` has no full stop."""
    return DamagedError(f"{message} at byte {offset}.", context={"offset": offset})


class TokenReader:
    """Reads one token after the other in small windows. It does not read what it skips."""

    __slots__ = ("_base", "_end", "_head", "_next_window", "_pos", "_source", "_window", "size")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._window = b""
        self._base = self._pos = self._end = self._head = 0
        self._next_window = _FIRST_WINDOW
        self.size = source.size

    @property
    def position(self) -> int:
        """Offset of the next value in the source."""
        return self._base + self._pos

    def _token(self) -> tuple[int, int]:
        pos = self._pos
        if self._end - pos < 9:
            pos = self._fill(9)
            if pos >= self._end:
                raise damaged("The file ends before a value", self.size)
        self._head = self._base + pos
        kind, width, number = KINDS[self._window[pos]]
        pos += 1
        if width:
            number = int.from_bytes(self._window[pos : pos + width], "big", signed=kind == SIGNED)
            pos += width
            if pos > self._end:
                raise damaged("The file ends inside a number", self.size)
        self._pos = pos
        return kind, number

    def _fill(self, size: int) -> int:
        """Read until the window contains `size` more bytes or the source ends; return the position in the window."""
        here = self.position
        if self._base + self._end < self.size:
            self._window = self._source.read_at(here, min(max(size, self._next_window), self.size - here))
            self._base, self._pos, self._end = here, 0, len(self._window)
            self._next_window = min(4 * self._next_window, _LAST_WINDOW)
        return self._pos

    def _peek(self) -> int:
        if self._pos >= self._end:
            self._fill(1)
        return self._window[self._pos] if self._pos < self._end else 0xC1

    def _text(self, size: int) -> object:
        if size > MAX_TEXT_LENGTH:
            return Binary((self._span(size),))
        pos = self._pos
        if self._end - pos < size:
            pos = self._fill(size)
            if self._end - pos < size:
                raise damaged("The file ends inside a string", self.size)
        self._pos = pos + size
        return self._window[pos : pos + size].decode("utf-8", "backslashreplace")

    def _span(self, size: int) -> Span:
        span = Span(self.position, size)
        self._step_over(size)
        return span

    def _step_over(self, size: int) -> None:
        self._pos += size
        if self._pos > self._end:
            if self.position > self.size:
                raise damaged(f"The file ends inside a binary or string of {size} bytes", self.size)
            self._base, self._pos, self._end, self._window = self.position, 0, 0, b""
            self._next_window = _FIRST_WINDOW
