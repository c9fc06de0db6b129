"""The MessagePack container of an .mxr: a walk that steps over weight bytes and never trusts a count.

What MIGraphX writes is one MessagePack value: maps with string keys, no extension types, an empty map written as an
empty array, a binary written plainly (file version 6 and older, and Hygon's fork) or as an array of chunks.
Source: MIGraphX's src/msgpack.cpp at the tags rocm-5.0.0 to rocm-7.2.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from mxr.errors import Damaged
from mxr.program.source import Source, Span
from mxr.program.tokens import ARRAY, BIN, FOREIGN, KINDS, MAP, SCALARS, SIGNED, TEXT

DEPTH = 128
"""Containers within containers, at most: programs need about a dozen, and MIGraphX itself crashes on 100,000."""
CHUNKS = 4096
"""Chunks of one binary, at most: a real chunk holds 4 GiB."""
LONGEST_TEXT = 1 << 16
"""Bytes of a text that is read; a longer one is stepped over like a binary."""
VALUES = 250_000
"""Values that one tree may hold, at most: a node of a real program has some hundreds."""

_FIRST_WINDOW, _LAST_WINDOW = 1 << 12, 1 << 18
_FLAT_RUN = re.compile(rb"[\x00-\x80\x90\xa0\xc0\xc2\xc3\xe0-\xff]+")
_BINS = (0xC4, 0xC5, 0xC6)


class Binary(NamedTuple):
    """A binary that was stepped over: where its chunks lie in the source."""

    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Bytes in all chunks."""
        return sum(span.size for span in self.spans)


class Folding(NamedTuple):
    """A kind of map that comes again and again: what matches `pattern` is made once and then known by its bytes."""

    pattern: re.Pattern[bytes]
    make: Callable[[dict[str, object]], object]


def damaged(message: str, offset: int) -> Damaged:
    """The error for something wrong at a byte of the file."""
    return Damaged(f"{message} at byte {offset}.", detail={"offset": offset})


class Walker:
    """Walks over MessagePack values in a source, reading it in small windows; nothing that is skipped is read.

    Every method raises `Damaged` with `detail.offset` where the bytes are not what they should be.
    """

    __slots__ = ("_base", "_end", "_folded", "_folding", "_next_window", "_pos", "_source", "_window", "budget", "size")

    def __init__(self, source: Source, folding: Folding | None = None) -> None:
        self._source = source
        self._folding = folding
        self._folded: dict[bytes, object] = {}
        self._window = b""
        self._base = self._pos = self._end = 0
        self._next_window = _FIRST_WINDOW
        self.size = source.size
        self.budget = VALUES

    @property
    def position(self) -> int:
        """The offset of the next value in the source."""
        return self._base + self._pos

    def map_size(self) -> int:
        """Enter a map (or the empty array that stands for an empty map): how many pairs follow."""
        start = self.position
        kind, number = self._token()
        if kind == MAP or (kind == ARRAY and number == 0):
            return self._count(number, 2, start)
        raise damaged("There should be a map", start)

    def array_size(self) -> int:
        """Enter an array: how many values follow."""
        start = self.position
        kind, number = self._token()
        if kind != ARRAY:
            raise damaged("There should be an array", start)
        return self._count(number, 1, start)

    def key(self) -> str:
        """The next value, which must be a text of moderate length."""
        start = self.position
        kind, number = self._token()
        text = self._text(number) if kind == TEXT else None
        if not isinstance(text, str):
            raise damaged("There should be a name", start)
        return text

    def tree(self, depth: int = 8) -> object:
        """The next value whole, and no more than `VALUES` values of it. Binaries and long texts become `Binary`."""
        self.budget = VALUES
        return self._value(depth)

    def skip(self, least: int = 0, found: list[Span] | None = None, depth: int = 0) -> None:
        """Step over the next value, noting in `found` the binaries of at least `least` bytes."""
        left, above = 1, [0] * depth
        while left or len(above) > depth:
            if not left:
                left = above.pop()
                continue
            start = self.position
            kind, number = self._token()
            left -= 1
            if kind in (BIN, TEXT):
                self._note_span(number, least, found if kind == BIN else None)
            elif kind in (ARRAY, MAP):
                above.append(left)
                if len(above) > DEPTH:
                    self._too_deep(start)
                left = self._children(kind, number, start)
            elif kind == FOREIGN:
                self._foreign(start)

    def _children(self, kind: int, number: int, start: int) -> int:
        """How many values of a container are left to skip, after what can be skipped at one stroke."""
        if kind == MAP:
            matched = self._match_folding(number)
            if matched is not None:
                self._pos = matched.end()
                return 0
        count = self._count(number, 1 + (kind == MAP), start) * (1 + (kind == MAP))
        if kind == ARRAY and count == 3 and self._is_hollow_binary():
            self._pos += 2
            return 0
        run = _FLAT_RUN.match(self._window, self._pos, min(self._end, self._pos + count))
        if run is None:
            return count
        self._pos = run.end()
        return count - (run.end() - run.start())

    def _note_span(self, size: int, least: int, found: list[Span] | None) -> None:
        if found is not None and size >= least:
            found.append(Span(self.position, size))
        self._step_over(size)

    def _value(self, depth: int) -> object:
        start = self.position
        kind, number = self._token()
        scalar = SCALARS.get(kind)
        if scalar is not None:
            return scalar(number)
        if kind == TEXT:
            return self._text(number)
        if kind == BIN:
            return Binary((self._span(number),))
        if depth >= DEPTH:
            self._too_deep(start)
        if kind == ARRAY:
            return self._array(number, start, depth + 1)
        if kind != MAP:
            self._foreign(start)
        return self._map(number, start, depth + 1)

    def _array(self, number: int, start: int, depth: int) -> object:
        count = self._count(number, 1, start)
        if count and self._peek() in _BINS:
            return self._chunks(count, start)
        self._spend(count, start)
        value = self._value
        return [value(depth) for _ in range(count)]

    def _chunks(self, count: int, start: int) -> Binary:
        if count == 3 and self._is_hollow_binary():
            self._pos += 2
            return Binary(())
        if count > CHUNKS:
            raise damaged(f"A binary in {count} chunks", start)
        spans = []
        for _ in range(count):
            at = self.position
            kind, number = self._token()
            if kind != BIN:
                raise damaged("There should be the next chunk of a binary", at)
            spans.append(self._span(number))
        return Binary(tuple(spans))

    def _is_hollow_binary(self) -> bool:
        """Is this array of three the way in which MIGraphX 2.8 to 2.15.0 write a binary of no bytes?

        Their count of chunks wraps below zero: three are announced and one empty one follows.
        Source: MIGraphX's src/msgpack.cpp, rocm-6.0.0 to rocm-7.2.0; mended in rocm-7.2.1.
        """
        if self._end - self._pos < 3:
            self._room(3)
        head = self._window[self._pos : self._pos + 3]
        return head[:2] == b"\xc4\x00" and (len(head) < 3 or head[2] not in _BINS)

    def _map(self, number: int, start: int, depth: int) -> object:
        matched = self._match_folding(number)
        if matched is not None:
            known = self._folded.get(matched.group())
            if known is not None:
                self._pos = matched.end()
                return known
        value = self._pairs(self._count(number, 2, start), start, depth)
        if matched is None or self._folding is None:
            return value
        made = self._folding.make(value)
        if len(self._folded) < CHUNKS:
            self._folded[matched.group()] = made
        return made

    def _pairs(self, count: int, start: int, depth: int) -> dict[str, object]:
        self._spend(2 * count, start)
        found: dict[str, object] = {}
        for _ in range(count):
            key = self.key()
            found[key] = self._value(depth)
        if len(found) != count:
            raise damaged("A map names a key twice", start)
        return found

    def _match_folding(self, pairs: int) -> re.Match[bytes] | None:
        if self._folding is None or pairs > 15:  # a longer map's head ends in bytes that could look like a short one's
            return None
        return self._folding.pattern.match(self._window, self._pos - 1, self._end)

    def _text(self, size: int) -> object:
        if size > LONGEST_TEXT:
            return Binary((self._span(size),))
        pos = self._pos
        if self._end - pos < size:
            pos = self._room(size)
            if self._end - pos < size:
                raise damaged("The file ends inside a text", self.size)
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
                raise damaged(f"The file ends inside a binary or text of {size} bytes", self.size)
            self._base, self._pos, self._end, self._window = self.position, 0, 0, b""
            self._next_window = _FIRST_WINDOW

    def _count(self, number: int, least: int, start: int) -> int:
        """A count of values, refused where the rest of the file could not hold them at `least` bytes each."""
        if number * least > self.size - self.position:
            raise damaged(f"{number} values are announced where {self.size - self.position} bytes are left", start)
        return number

    def _spend(self, values: int, start: int) -> None:
        self.budget -= values
        if self.budget < 0:
            raise damaged(f"One value holds more than {VALUES} others", start)

    def _peek(self) -> int:
        if self._pos >= self._end:
            self._room(1)
        return self._window[self._pos] if self._pos < self._end else 0xC1

    def _token(self) -> tuple[int, int]:
        pos = self._pos
        if self._end - pos < 9:
            pos = self._room(9)
            if pos >= self._end:
                raise damaged("The file ends where a value should begin", self.size)
        kind, width, number = KINDS[self._window[pos]]
        pos += 1
        if width:
            number = int.from_bytes(self._window[pos : pos + width], "big", signed=kind == SIGNED)
            pos += width
            if pos > self._end:
                raise damaged("The file ends inside a number", self.size)
        self._pos = pos
        return kind, number

    def _room(self, size: int) -> int:
        """Read on, so that `size` bytes lie in the window where the source has them: the position in the window."""
        here = self.position
        if self._base + self._end < self.size:
            self._window = self._source.read_at(here, min(max(size, self._next_window), self.size - here))
            self._base, self._pos, self._end = here, 0, len(self._window)
            self._next_window = min(4 * self._next_window, _LAST_WINDOW)
        return self._pos

    def _too_deep(self, start: int) -> NoReturn:
        raise damaged(f"More than {DEPTH} values lie within each other", start)

    def _foreign(self, start: int) -> NoReturn:
        raise damaged("A kind of value that no MIGraphX program has", start)
