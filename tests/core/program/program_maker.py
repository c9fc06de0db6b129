"""Builds valid and invalid program files byte by byte, for the tests, the fuzzer and the bench of the reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from mxr.program.container import Walker
from mxr.program.messagepack import Binary
from mxr.program.source import BytesSource

# Not imported from `paths`: the MIGraphX double and the benchmarks load this file without tests/ on their path.
DATA = Path(__file__).resolve().parents[2] / "data"


class Raw(bytes):
    """Bytes that are written unchanged."""


class Chunks(list):
    """A binary written in chunks, as in file version 7 and later."""


def head(number: int, short: tuple[int, int], sized: dict[int, int]) -> bytes:
    """The first bytes of a text, binary, array or map of `number` items."""
    if number < short[1]:
        return bytes([short[0] + number])
    for width, tag in sized.items():
        if number < 1 << 8 * width:
            return bytes([tag]) + number.to_bytes(width, "big")
    raise ValueError(number)


def bin_head(size: int) -> bytes:
    """The first bytes of a binary of `size` bytes."""
    return head(size, (0, 0), {1: 0xC4, 2: 0xC5, 4: 0xC6})


def array_head(count: int) -> bytes:
    """The first bytes of an array."""
    return head(count, (0x90, 16), {2: 0xDC, 4: 0xDD})


def map_head(count: int) -> bytes:
    """The first bytes of a map."""
    return head(count, (0x80, 16), {2: 0xDE, 4: 0xDF})


def pack(value) -> bytes:
    """A value in MessagePack, as MIGraphX writes it: the empty map becomes an empty array."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Chunks):
        return array_head(len(value)) + b"".join(pack(bytes(part)) for part in value)
    if isinstance(value, bytes):
        return bin_head(len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return head(len(text), (0xA0, 32), {1: 0xD9, 2: 0xDA, 4: 0xDB}) + text
    if isinstance(value, list | tuple):
        return array_head(len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        pairs = b"".join(pack(key) + pack(each) for key, each in value.items())
        return map_head(len(value)) + pairs if value else b"\x90"
    return pack_scalar(value)


def pack_scalar(value) -> bytes:
    """Pack None, a boolean or a number."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if value < 0:
        return bytes([256 + value]) if value >= -32 else b"\xd3" + struct.pack(">q", value)
    return head(value, (0, 128), {1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF})


def strides_of(lens: list[int]) -> list[int]:
    """Row-major strides."""
    strides, step = [], 1
    for length in reversed(lens):
        strides.insert(0, step)
        step *= length
    return strides


def shape(kind: str, *lens: int, dyn_strides: bool = False) -> dict:
    """A static shape in the form of file versions 6 and 7, or of version 8 with `dyn_strides`."""
    found = {"type": f"{kind}_type", "sub_shapes": [], "lens": list(lens), "strides": strides_of(list(lens))}
    return found | {"dynamic_dimensions": []} | ({"dyn_strides": []} if dyn_strides else {})


def node(output: str, name: str, form: dict, inputs=(), operator=None, **more) -> dict:
    """A node. `more` is written before its operator, like a literal."""
    found = {"output": output, "name": name, "shape": form, "normalized": False} | more
    return found | {"operator": operator or {}, "inputs": list(inputs)}


def param(name: str, form: dict) -> dict:
    """A parameter."""
    return node(name, "@param", form, operator={"parameter": name})


def literal(output: str, form: dict, data) -> dict:
    """A literal of the reference target, or of an uncompiled program."""
    return node(output, "@literal", form, literal={"shape": form, "data": data})


def code_object(output: str, form: dict, code, inputs=(), symbol="mlir_dot") -> dict:
    """A kernel."""
    fields = {"code_object": code, "symbol_name": symbol, "global": 64, "local": 64}
    fields |= {"expected_inputs": [form, form], "output": form, "output_arg": -1}
    return node(output, "gpu::code_object", form, inputs, fields)


def fields(nodes: list, *, version=7, migraphx="2.15.0", target="gpu", modules=None, **more) -> dict:
    """The top-level map of a program in the layout of its file version; `more` replaces or adds keys."""
    top = {"version": version}
    if version < 6:
        top |= {"target": target}
    else:
        targets = [{"name": target}] if target else []
        top |= {"migraphx_version": migraphx, "targets": targets, "contexts": [None] * len(targets)}
    return top | more | {"modules": {"main": {"name": "main", "nodes": nodes}} | (modules or {})}


def program(nodes: list, **more) -> bytes:
    """A program file; see `fields`."""
    return pack(fields(nodes, **more))


def add_relu(*, code=b"", form=None) -> list:
    """The nodes of a small GPU program: one input that is copied to the GPU, one kernel, one output."""
    form = form or shape("float", 4, 8)
    return [
        param("x", form),
        node("@1", "hip::copy_to_gpu", form, ["x"]),
        code_object("@2", form, Chunks([code]), ["@1"]),
        node("@3", "@return", form, ["@2"]),
    ]


def hsaco(name: str) -> bytes:
    """A code object of tests/data/hsaco."""
    return (DATA / "hsaco" / name).read_bytes()


def elf(flags: int, *, abi: int = 3, machine: int = 224, notes: bytes = b"", segments: list | None = None) -> bytes:
    """An AMDGPU ELF file that consists of a header, program headers and notes."""
    rows = [(4, 64 + 56, len(notes))] if segments is None else segments
    start = 64 + 56 * len(rows)
    rows = [(kind, start if segments is None else at, size) for kind, at, size in rows]
    ident = b"\x7fELF\x02\x01\x01\x40" + bytes([abi]) + bytes(7)
    top = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 64, 0, flags, 64, 56, len(rows), 0, 0, 0)
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 4, at, 0, 0, size, size, 4) for kind, at, size in rows)
    return top + table + notes


def note(owner: bytes, kind: int, text: bytes) -> bytes:
    """An ELF note."""
    padded = owner + b"\0" * (4 - len(owner) % 4)
    return struct.pack("<III", len(owner) + 1, len(text), kind) + padded + text + bytes(-len(text) % 4)


def metadata(target: str, kernels: list | None = None) -> bytes:
    """The AMDGPU metadata note."""
    return note(
        b"AMDGPU", 32, pack({"amdhsa.kernels": kernels or [], "amdhsa.target": target, "amdhsa.version": [1, 2]})
    )


def bundle(entries: list[tuple[str, bytes]]) -> bytes:
    """A clang offload bundle."""
    size = 32 + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, code in entries:
        table += struct.pack("<QQQ", size + len(body), len(code), len(name)) + name.encode()
        body += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + body


def compressed(payload: bytes, raw_size: int, *, version: int, method: int) -> bytes:
    """A compressed bundle: the header and the payload."""
    top = b"CCOB" + struct.pack("<HH", version, method)
    if version == 1:
        return top + struct.pack("<IQ", raw_size, 0) + payload
    form, size = ("<IIQ", 24) if version == 2 else ("<QQQ", 32)
    return top + struct.pack(form, size + len(payload), raw_size, 0) + payload


def unpacked(value, data: bytes):
    """The tree that the reader built from `data`, with binaries in MIGraphX's JSON form."""
    if isinstance(value, Binary):
        numbers = [byte for span in value.spans for byte in data[span.offset : span.end]]
        return {"bytes": numbers}
    if isinstance(value, list):
        return [unpacked(each, data) for each in value]
    return {key: unpacked(each, data) for key, each in value.items()} if isinstance(value, dict) else value


def as_json(data: bytes) -> bytes:
    """Convert a program file to the form of save(..., format="json")."""
    tree = unpacked(Walker(BytesSource(data)).tree(), data)
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
