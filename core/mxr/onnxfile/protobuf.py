"""Reads the protobuf wire format: the tags and spans of fields, without reading their contents.

Source: protobuf.dev, "Encoding".

The bytes are read on demand in windows, from a blob store, or from a file without a memory map: a file that another
process truncates kills the reader of its map with SIGBUS, as does a share that fails; and some mounts have no shared
maps. Positioned reads return an error instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from mxr.errors import TemporaryError
from mxr.util import disk
from mxr.util.hashing import identity

Bytes: TypeAlias = "bytes | Window"
Span: TypeAlias = tuple[int, int]

MAX_TAG = 2**32 - 1

MAX_PARTS = 1_000
"""Occurrences of a field that is not meant to be repeated, in one message. Every writer writes one."""


class MalformedProtobuf(Exception):
    """The bytes are not a ModelProto. The message is a sentence without a full stop. Never leaves the package."""


def message(number: int) -> int:
    """Return the tag of a length-delimited field: bytes, a string or a message."""
    return number << 3 | 2


def varint_of(number: int) -> int:
    """Return the tag of a varint field."""
    return number << 3


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 1 < end and data[at] > 127 and data[at + 1] < 128:  # such as the size of a node
        return data[at] & 127 | data[at + 1] << 7, at + 2
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7
    raise MalformedProtobuf(
        "It ends in the middle of a field and may be truncated" if at >= end else "It contains no ONNX fields"
    )


def fields(data: Bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field of the message in data[at:end]: its tag and its span, or its tag, its value and 0 for a varint.

    Raises `MalformedProtobuf`.
    """
    part, base, limit = (data, 0, end) if isinstance(data, bytes) else (b"", 0, at)
    while at < end:
        if at >= limit:
            # A window can change while the caller reads a field; this part of it stays.
            assert not isinstance(data, bytes)
            part, start, limit = data.part(at + base)
            at, end, base = at + base - start, end + base - start, start
        tag, start = part[at], at + 1
        if tag > 127:  # most tags and sizes are one byte, and this loop dominates the running time
            tag, start = _varint(part, at, end)
            if tag > MAX_TAG:
                # Protobuf drops the higher bits: a field would be read under a number that this reader does not see.
                raise MalformedProtobuf("It contains a field with an invalid number")
        wire = tag & 7
        if wire == 2 and tag > 7:
            size, start = (part[start], start + 1) if start < end else (128, end + 1)
            if size > 127:
                size, start = _varint(part, start - 1, end)
            at = start + size
        elif wire == 0 and tag > 7:
            value, at = _varint(part, start, end)
            yield tag, value, 0
            continue
        elif wire in (1, 5) and tag > 7:
            at = start + (8 if wire == 1 else 4)
        else:
            raise MalformedProtobuf("It contains no ONNX fields")
        if at > end:
            raise MalformedProtobuf("It ends inside its last field and may be truncated")
        yield tag, start + base, at + base


def merged(data: Bytes, spans: Sequence[Span]) -> Iterator[tuple[int, int, int]]:
    """Return the fields of a message in several spans. Protobuf merges the occurrences of a repeated message field."""
    if len(spans) == 1:  # as almost always: a generator less for each message
        return fields(data, *spans[0])
    return chain.from_iterable(fields(data, start, stop) for start, stop in spans)


def text(data: Bytes, start: int, stop: int) -> str:
    """Return the string in data[start:stop]. Raises `MalformedProtobuf`."""
    try:
        return bytes(data[start:stop]).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedProtobuf("It contains a name that is not UTF-8") from None


def text_of(data: Bytes, spans: Sequence[Span], number: int) -> str:
    """Return the string field `number` of a message, empty if there is none; the last one counts."""
    last, wanted = None, message(number)
    for tag, start, stop in merged(data, spans):
        if tag == wanted:
            last = (start, stop)
    return "" if last is None else text(data, *last)


def parts_of(data: Bytes, spans: Sequence[Span], number: int) -> list[Span]:
    """Return the spans of a message field that protobuf merges. Raises `MalformedProtobuf` for too many."""
    found: list[Span] = []
    for tag, start, stop in merged(data, spans):
        if tag == message(number):
            append_part(found, (start, stop))
    return found


def append_part(parts: list[Span], span: Span) -> None:
    """Append a span to the parts of one message. Raises `MalformedProtobuf` for too many."""
    if len(parts) >= MAX_PARTS:
        raise MalformedProtobuf(f"One of its messages is in more than {MAX_PARTS} parts")
    parts.append(span)


def signed(value: int) -> int:
    """Return a 64-bit varint as a signed number."""
    return value - 2**64 if value >= 2**63 else value


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
