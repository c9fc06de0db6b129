"""Mutates program files reproducibly (bit flips, cuts, splices, false numbers), and builds bombs.

A bomb is a small file that is expensive to read.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from core.program import program_maker as make

SIGNIFICANT = [
    *(b"\x90", b"\x80", b"\xc0", b"\xc1", b"\x93\xc4\x00", b"\x91\xc4\x00", b"\xc4\x00", b"\xca\x00\x00\x00\x00"),
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(b"\xdc\xff\xff", b"\xde\xff\xff", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7), b"\xa4lens", b"\xa7strides"),
    *(b"\xb2dynamic_dimensions", b"\xabcode_object", b"\xa5nodes", b"\xa6@param", b"\xa7@return", b"\xa7literal"),
    *(b"\x7fELF", b"CCOB", b"__CLANG_OFFLOAD_BUNDLE__", b"\xadamdhsa.target", b"AMDGPU\0\0", b"\x81\xa1a" * 40),
]
ROUND = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]


def mutate(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Return `data` with one to eight changes. Spliced bytes come from `others`."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(changed) + 1)
        CHANGES[chance.randrange(len(CHANGES))](changed, at, others, chance)
    return bytes(changed)


def flip(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Flip one bit."""
    if at < len(data):
        data[at] ^= 1 << chance.randrange(8)


def put(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Overwrite bytes with significant ones."""
    piece = chance.choice(SIGNIFICANT)
    data[at : at + len(piece)] = piece


def insert(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Insert significant bytes, sometimes many times."""
    data[at:at] = chance.choice(SIGNIFICANT) * chance.choice((1, 1, 1, 3, 50, 2000))


def cut(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Delete some bytes, or all that follow."""
    del data[at : at + chance.choice((1, 2, 7, 100, 1 << 40))]


def number(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Overwrite bytes with a round number in either byte order."""
    width = chance.choice((1, 2, 4, 8))
    value = chance.choice(ROUND) & ((1 << 8 * width) - 1)
    data[at : at + width] = value.to_bytes(width, chance.choice(("big", "little")))


def splice(data: bytearray, at: int, others: Sequence[bytes], chance: random.Random) -> None:
    """Insert a part of another file."""
    other = chance.choice(others)
    start = chance.randrange(len(other) + 1)
    length = chance.choice((8, 100, 2000, 20000))
    data[at : at + chance.choice((0, length))] = other[start : start + length]


def repeat(data: bytearray, at: int, _: Sequence[bytes], chance: random.Random) -> None:
    """Insert a part of the file itself, many times."""
    piece = data[at : at + chance.choice((1, 10, 300))]
    data[at:at] = piece * chance.choice((1, 10, 200))


CHANGES = (flip, flip, put, insert, cut, number, number, splice, repeat)


@functools.cache
def bombs(size: int) -> dict[str, bytes]:
    """Return files of about `size` bytes, by the feature that makes each expensive to read."""
    form = make.pack(make.shape("float", 1))
    small = make.pack({"name": "a", "output": ""})
    kernel = {".name": "k" * 20, ".args": [1, [2], {"a": 3}]}
    notes = make.metadata("amdgcn-amd-amdhsa--gfx908", [kernel] * (size // 120))
    tiny, lens = make.code_object("@1", {}, make.elf(0x530)), {"type": "float_type", "lens": [1], "strides": [1]}
    shapes = {"operator": {"expected_inputs": [make.Raw(form)] * (size // len(form))}}
    nodes = {
        "many nodes": [make.Raw(small)] * (size // len(small)),
        "many shapes": [make.code_object("@1", {}, b"") | shapes],
        "many code objects": [tiny] * (size // 280),
        "much metadata": [make.code_object("@1", {}, make.elf(0x530, notes=notes))] * 3,
        "many params": [make.param(f"p{n}", lens) for n in range(size // 100)],
        "many names": [{"name": f"n{n}", "output": f"@{n}"} for n in range(size // 28)],
        "many lists": [{"name": "a", "output": "b", "x": [[[0]] * 1000] * 20}] * (size // 40_000),
    }
    json = {
        "json of lists": b'{"modules": {"main": {"nodes": [' + b"[]," * (size // 3) + b"1]}}}",
        "json of numbers": b'{"a": [' + b"1000," * (size // 5) + b"1]}",
        "json of bytes": b'{"a": [' + b"1," * (size // 2) + b"1]}",
        "json of texts": b'{"a": [' + b'"ab",' * (size // 5) + b"1]}",
    }
    return {name: make.program(rows) for name, rows in nodes.items()} | json
