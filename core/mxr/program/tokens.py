"""The first byte of a MessagePack value: what kind it is, and where its number stands.

Source: the MessagePack specification, https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable

NIL, FALSE, TRUE, INT, SIGNED, FLOAT, DOUBLE, TEXT, BIN, ARRAY, MAP, FOREIGN = range(12)
"""The kinds of value; extension types, which MIGraphX refuses, are FOREIGN."""


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
"""By first byte: the kind, how many bytes of number follow, and the number itself where none do."""

SCALARS: dict[int, Callable[[int], object]] = {
    NIL: lambda _: None,
    FALSE: lambda _: False,
    TRUE: lambda _: True,
    INT: lambda number: number,
    SIGNED: lambda number: number,
    FLOAT: lambda bits: struct.unpack(">f", bits.to_bytes(4, "big"))[0],
    DOUBLE: lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0],
}
"""By kind: what value its number stands for."""
