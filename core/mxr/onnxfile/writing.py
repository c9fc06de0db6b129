"""Writes the protobuf wire format, for the few changes that mxr makes to a model.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from .protobuf import Bytes


def varint(value: int) -> bytes:
    """Encode a number in groups of seven bits, the lowest first."""
    value &= 2**64 - 1
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def number_field(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return varint(number << 3) + varint(value)


def field(number: int, content: bytes | str) -> bytes:
    """Encode a field that contains bytes, a string or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def head(number: int, size: int) -> bytes:
    """Encode the tag and length that precede `size` bytes of content."""
    return varint(number << 3 | 2) + varint(size)


def reencoded(data: Bytes, tag: int, start: int, stop: int) -> bytes:
    """Encode a field that `protobuf.fields` yielded: its tag and its span, or its tag, its value and 0 for a varint."""
    wire = tag & 7
    if wire == 0:
        return varint(tag) + varint(start)
    return varint(tag) + (varint(stop - start) if wire == 2 else b"") + bytes(data[start:stop])
