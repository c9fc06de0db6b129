"""Reads the protobuf wire format: the tags and spans of fields, without reading their contents.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .window import Window

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
