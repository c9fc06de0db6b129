"""A program of any size: what MIGraphX's reference target would write for one input and some large weights.

Source of the layout: ROCm/AMDMIGraphX, src/program.cpp (to_value) and src/msgpack.cpp, file version 8. It was never
compiled and computes nothing.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

Value = None | bool | int | str | bytes | list["Value"] | dict[str, "Value"]
MIB = 1 << 20


def write_program(path: Path, *, weights: int, size: int, seed: int = 1) -> Path:
    """Writes a ref program with `weights` random weights of `size` bytes each, from 4,3,32,32 floats to 4,64,32,32."""
    numbers = random.Random(seed)
    nodes: list[Value] = [_node("x", "@param", _shape("float_type", [4, 3, 32, 32]), {"parameter": "x", "order": 0})]
    for index in range(weights):
        shape = _shape("float_type", [size // 4])
        literal: Value = {"shape": shape, "data": [numbers.randbytes(size)]}
        nodes.append(_node(f"@{index}", "@literal", shape, [], literal=literal))
    result = _shape("float_type", [4, 64, 32, 32])
    nodes.append(_node("y", "multibroadcast", result, [], inputs=["x"]))
    nodes.append(_node(f"@{weights}", "@return", result, [], inputs=["y"]))
    program: Value = {
        "version": 8,
        "migraphx_version": "2.16.0",
        "targets": [{"name": "ref"}],
        "contexts": [None],
        "modules": {"main": {"name": "main", "nodes": nodes}},
    }
    path.write_bytes(b"".join(_packed(program)))
    return path


def _shape(kind: str, lens: list[int]) -> Value:
    strides = [1] * len(lens)
    for at in range(len(lens) - 2, -1, -1):
        strides[at] = strides[at + 1] * lens[at + 1]
    return {"type": kind, "sub_shapes": [], "lens": [*lens], "strides": [*strides], "dynamic_dimensions": []}


def _node(
    output: str, name: str, shape: Value, operator: Value, *, inputs: list[Value] | None = None, literal: Value = None
) -> Value:
    found: dict[str, Value] = {"output": output, "name": name, "shape": shape, "normalized": False}
    found |= {"literal": literal} if literal is not None else {}
    return found | {"operator": operator, "inputs": inputs or []}


def _packed(value: Value) -> Iterator[bytes]:
    """MessagePack in the wide forms. Source: the MessagePack specification."""
    if value is None or isinstance(value, bool):
        yield {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    elif isinstance(value, int):
        yield struct.pack(">BI", 0xCE, value)
    elif isinstance(value, str):
        yield struct.pack(">BH", 0xDA, len(value.encode())) + value.encode()
    elif isinstance(value, bytes):
        yield struct.pack(">BI", 0xC6, len(value))
        yield value
    elif isinstance(value, list):
        yield struct.pack(">BH", 0xDC, len(value))
        for each in value:
            yield from _packed(each)
    else:
        yield struct.pack(">BH", 0xDE, len(value))
        for name, each in value.items():
            yield from _packed(name)
            yield from _packed(each)
