"""Reads the MessagePack container of an .mxr file without reading the weights and without trusting any count.

MIGraphX writes one MessagePack value: maps with string keys and no extension types. It writes an empty map as an empty
array, and a binary either directly (file version 6 and older, and Hygon's fork) or as an array of chunks.
Source: MIGraphX's src/msgpack.cpp at the tags rocm-5.0.0 to rocm-7.2.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from mxr.program.messagepack import ARRAY, BIN, FOREIGN, INT, MAP, SCALARS, SIGNED, TEXT, Binary, TokenReader, damaged
from mxr.program.source import Source, Span

DEPTH = 128
"""Maximum nesting depth. Programs need about a dozen levels; MIGraphX itself crashes on 100,000."""
CHUNKS = 4096
"""Maximum number of chunks of one binary. A real chunk holds up to 4 GiB."""
VALUES = 250_000
"""Maximum number of values in one tree. A node of a real program has a few hundred."""
FREE_VALUES, BYTES_PER_VALUE = 250_000, 4
"""Maximum number of values in a file: FREE_VALUES, plus one for each BYTES_PER_VALUE bytes of the file. Real programs
have one value per five to ten bytes."""

_SMALL_RUN = re.compile(rb"[\x00-\x7f]*")
_FLAT_RUN = re.compile(rb"[\x00-\x80\x90\xa0\xc0\xc2\xc3\xe0-\xff]+")
_MAX_FOLDED, _LONG = 4096, 64
_BINS = (0xC4, 0xC5, 0xC6)
_CONTAINERS, _NUMBERS = (ARRAY, MAP), (INT, SIGNED)


class Folding(NamedTuple):
    """A kind of map that occurs many times: each distinct map that matches `pattern` is built only once.

    A match must be exactly one whole map, because the walk continues at its end.
    """

    pattern: re.Pattern[bytes]
    make: Callable[[dict[str, object]], object] = dict


class Walker(TokenReader):
    """Walks over the MessagePack values of a source in small windows, without reading what it skips.

    Every method raises `DamagedError` with `context.offset` if the bytes are not what it expects.
    """

    __slots__ = ("_folded", "_folding", "_left", "_left_in_tree")

    def __init__(self, source: Source, folding: Folding | None = None) -> None:
        super().__init__(source)
        self._folding = folding
        self._folded: dict[bytes, object] = {}
        self._left_in_tree = VALUES
        self._left = FREE_VALUES + self.size // BYTES_PER_VALUE

    def map_size(self) -> int:
        """Enter a map, or an empty array that represents an empty map; return the number of pairs that follow."""
        kind, number = self._token()
        if kind == MAP or (kind == ARRAY and number == 0):
            return self._count(number, 2)
        raise damaged("Expected a map", self._head)

    def array_size(self) -> int:
        """Enter an array; return the number of values that follow."""
        kind, number = self._token()
        if kind != ARRAY:
            raise damaged("Expected an array", self._head)
        return self._count(number, 1)

    def key(self) -> str:
        """Return the next value, which must be a string of at most `MAX_TEXT_LENGTH` bytes."""
        pos = self._pos
        if pos < self._end and 0xA0 <= (tag := self._window[pos]) < 0xC0 and (stop := pos + tag - 0x9F) <= self._end:
            self._pos = stop
            return self._window[pos + 1 : stop].decode("utf-8", "backslashreplace")
        start = self.position
        kind, number = self._token()
        text = self._text(number) if kind == TEXT else None
        if not isinstance(text, str):
            raise damaged("Expected a name", start)
        return text

    def tree(self, depth: int = 8) -> object:
        """Return the next value, of at most `VALUES` values in all. Binaries and long strings become `Binary`."""
        self._left_in_tree = VALUES
        return self._value(depth)

    def skip(self, least: int = 0, found: list[Span] | None = None, depth: int = 0) -> None:
        """Skip the next value. Append the spans of binaries of at least `least` bytes to `found`."""
        left, above, allowed = 1, [0] * depth, self._left
        while allowed >= 0 and (left or len(above) > depth):
            if not left:
                left = above.pop()
                continue
            kind, number = self._token()
            left -= 1
            allowed -= 1
            if kind == TEXT:
                self._step_over(number)
            elif kind == BIN:
                if found is not None and number >= least:
                    found.append(Span(self.position, number))
                self._step_over(number)
            elif kind in _CONTAINERS:
                above.append(left)
                left = self._children(kind, number, len(above))
            elif kind == FOREIGN:
                self._foreign()
            elif left > _LONG:
                left -= self._flat_run(left)
        self._left = allowed
        if allowed < 0:
            self._too_many()

    def _flat_run(self, most: int) -> int:
        """Skip up to `most` one-byte values at once; return how many were skipped."""
        run = _FLAT_RUN.match(self._window, self._pos, min(self._end, self._pos + most))
        if run is None:
            return 0
        self._pos = run.end()
        return run.end() - run.start()

    def _children(self, kind: int, number: int, depth: int) -> int:
        """The number of values of a container that are left to skip, after those that can be skipped at once."""
        if depth > DEPTH:
            self._too_deep()
        width = 2 if kind == MAP else 1
        if width == 2 and (matched := self._match_folding(number)) is not None:
            self._pos = matched.end()
            return 0
        count = self._count(number, width) * width
        if count == 3 and width == 1 and self._is_empty_binary():
            self._pos += 2
            return 0
        return count

    def _value(self, depth: int) -> object:
        kind, number = self._token()
        if kind in _NUMBERS:
            return number
        if kind == TEXT:
            return self._text(number)
        if kind in _CONTAINERS:
            if depth >= DEPTH:
                self._too_deep()
            return self._array(number, depth + 1) if kind == ARRAY else self._map(number, depth + 1)
        if kind == BIN:
            return Binary((self._span(number),))
        if kind == FOREIGN:
            self._foreign()
        return SCALARS[kind](number)

    def _array(self, number: int, depth: int) -> object:
        count = self._count(number, 1)
        if count and self._peek() in _BINS:
            return self._chunks(count)
        small = _SMALL_RUN.match(self._window, self._pos, min(self._end, self._pos + count))
        if small is not None and small.end() - self._pos == count:
            self._pos += count
            self._spend(1)
            return list(small.group())
        self._spend(count)
        value = self._value
        return [value(depth) for _ in range(count)]

    def _chunks(self, count: int) -> Binary:
        if count == 3 and self._is_empty_binary():
            self._pos += 2
            return Binary(())
        if count > CHUNKS:
            raise damaged(f"A binary of {count} chunks", self.position)
        spans = []
        for _ in range(count):
            at = self.position
            kind, number = self._token()
            if kind != BIN:
                raise damaged("Expected the next chunk of a binary", at)
            spans.append(self._span(number))
        return Binary(tuple(spans))

    def _is_empty_binary(self) -> bool:
        """Whether this array of three is an empty binary as MIGraphX 2.8 to 2.15.0 writes it.

        In these releases the chunk count underflows: the array declares three chunks, and one empty chunk follows.
        Source: MIGraphX's src/msgpack.cpp, rocm-6.0.0 to rocm-7.2.0; fixed in rocm-7.2.1.
        """
        if self._end - self._pos < 3:
            self._fill(3)
        head = self._window[self._pos : self._pos + 3]
        return head[:2] == b"\xc4\x00" and (len(head) < 3 or head[2] not in _BINS)

    def _map(self, number: int, depth: int) -> object:
        matched = self._match_folding(number)
        if matched is not None:
            known = self._folded.get(matched.group())
            if known is not None:
                self._pos = matched.end()
                return known
        value = self._pairs(self._count(number, 2), depth)
        if matched is None or self._folding is None:
            return value
        made = self._folding.make(value)
        if len(self._folded) < _MAX_FOLDED:
            self._folded[matched.group()] = made
        return made

    def _pairs(self, count: int, depth: int) -> dict[str, object]:
        start = self.position
        self._spend(2 * count)
        found: dict[str, object] = {}
        for _ in range(count):
            key = self.key()
            found[key] = self._value(depth)
        if len(found) != count:
            raise damaged("A map has a duplicate key", start)
        return found

    def _match_folding(self, pairs: int) -> re.Match[bytes] | None:
        # The header of a longer map ends in bytes that can look like the header of a short one.
        if self._folding is None or pairs > 15:
            return None
        return self._folding.pattern.match(self._window, self._pos - 1, self._end)

    def _count(self, number: int, least: int) -> int:
        """Return `number`.

        Raises `DamagedError` if the rest of the file is too short for values of `least` bytes each.
        """
        left = self.size - self._base - self._pos
        if number * least > left:
            raise damaged(f"{number} values are declared but only {left} bytes are left", self._head)
        return number

    def _spend(self, values: int) -> None:
        self._left_in_tree -= values
        self._left -= values
        if self._left_in_tree < 0 or self._left < 0:
            self._too_many()

    def _too_many(self) -> NoReturn:
        raise damaged("The number of values exceeds that of any program", self._head)

    def _too_deep(self) -> NoReturn:
        raise damaged(f"Values are nested more than {DEPTH} deep", self._head)

    def _foreign(self) -> NoReturn:
        raise damaged("A MessagePack type that no MIGraphX program contains", self._head)
