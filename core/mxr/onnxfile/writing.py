"""The protobuf wire format written by hand: fields put together, for the few edits of a model that mxr makes.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from .protobuf import Bytes


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    value &= 2**64 - 1
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def number_field(number: int, value: int) -> bytes:
    """A field that holds a varint."""
    return varint(number << 3) + varint(value)


def field(number: int, content: bytes | str) -> bytes:
    """A field that holds bytes, a text or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def head(number: int, size: int) -> bytes:
    """What stands before a content of this many bytes."""
    return varint(number << 3 | 2) + varint(size)


def again(data: Bytes, tag: int, start: int, stop: int) -> bytes:
    """A field as it was read: its tag, then its span, or its value and 0 for a varint."""
    wire = tag & 7
    if wire == 0:
        return varint(tag) + varint(start)
    return varint(tag) + (varint(stop - start) if wire == 2 else b"") + bytes(data[start:stop])
