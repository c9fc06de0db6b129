"""The facts of an ONNX file: the inputs and outputs of its graph, and the default opset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from mxr.util.frozen import dataclass

from .protobuf import (
    Bytes,
    MalformedProtobuf,
    Span,
    append_part,
    fields,
    merged,
    message,
    parts_of,
    signed,
    text,
    text_of,
    varint_of,
)

Dim: TypeAlias = int | tuple[int, int, tuple[int, ...]]
"""A fixed dim, or (min, max, optimals) for a dynamic one."""

MAX_DIM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input or output of the graph. `dims` is None if the model gives no shape, and () for a scalar.

    A dim is a number, the name of a symbol, or None (unknown, without a name). A number below 1 counts as unknown.
    Source: MIGraphX src/onnx/onnx_parser.cpp ("A non-positive dim_value is unspecified").
    """

    name: str
    elem_type: str
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = "?" if self.dims is None else ", ".join("?" if dim is None else str(dim) for dim in self.dims)
        return f"{self.name} {self.elem_type}[{dims}]"


@dataclass(frozen=True, slots=True)
class OutputDim:
    """A dim of an output that follows from the weights: its axis, its size, and the rank of the output if it follows.

    Axis -1 is the last dim.
    """

    axis: int
    size: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """The facts of an ONNX file.

    `size` is in bytes. `external` are the external data locations, sorted by the bytes of their UTF-8 names. `types`
    are the element types of tensors, casts, inputs and outputs, and `operators` the types of all nodes, without their
    domains; None if the file was not read. `weight_dims` are dims of outputs that follow from the weights, by
    name, if they were read. `external_sizes` are the bytes that the files of `external` must have.
    """

    path: Path
    size: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[OnnxInput, ...]
    external: tuple[str, ...]
    opset: int | None
    ir_version: int
    producer: str
    types: frozenset[str] | None = None
    operators: frozenset[str] | None = None
    weight_dims: tuple[tuple[str, OutputDim], ...] = ()
    external_sizes: tuple[int, ...] = ()


# fmt: off
_TYPES = (
    "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16",
    "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz",
    "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2", "float6e2m3",
    "float6e3m2",
)
"""Names of the element types by number. Source: onnx/onnx.proto, TensorProto.DataType."""
# fmt: on

_KINDS = {
    message(1): "tensor",
    message(4): "sequence",
    message(5): "map",
    message(8): "sparse",
    message(9): "optional",
}

MAX_VALUES = 20_000
"""Inputs and outputs of a graph. A key has at most 1,000 inputs."""


def default_opset(data: Bytes, span: Span, before: int | None) -> int | None:
    """Return the version in an opset import if it is that of the default domain, otherwise `before`."""
    version = [value for tag, value, _ in fields(data, *span) if tag == varint_of(2)]
    default = text_of(data, [span], 1) in ("", "ai.onnx")
    return signed(version[-1]) if default and version else before


def ends(data: Bytes, graph: Sequence[Span]) -> tuple[tuple[OnnxInput, ...], tuple[OnnxInput, ...]]:
    """Return the inputs without initializers, and the outputs. Raises `MalformedProtobuf`."""
    inputs: list[OnnxInput] = []
    outputs: list[OnnxInput] = []
    for tag, start, stop in merged(data, graph):
        if tag in (message(11), message(12)):
            (inputs if tag == message(11) else outputs).append(_value(data, (start, stop)))
            if len(inputs) + len(outputs) > MAX_VALUES:
                raise MalformedProtobuf(f"Its graph has more than {MAX_VALUES} inputs and outputs")
    # A file of some MB can have a million initializers: only those that are inputs are looked at.
    names = {item.name for item in inputs}
    given: set[str] = set()
    for tag, start, stop in merged(data, graph):
        if tag == message(5):
            name = text_of(data, [(start, stop)], 8)
        elif tag == message(15):
            name = text_of(data, parts_of(data, [(start, stop)], 1), 8)
        else:
            continue
        if name in names:
            given.add(name)
    real = tuple(item for item in inputs if item.name not in given)
    if len({item.name for item in real}) < len(real):
        raise MalformedProtobuf("Its graph has two inputs with the same name")
    return real, tuple(outputs)


def _value(data: Bytes, span: Span) -> OnnxInput:
    types = parts_of(data, [span], 2)
    kind, spans = "undefined", list[Span]()
    for tag, start, stop in merged(data, types):
        if tag in _KINDS:
            if _KINDS[tag] != kind:
                spans = []
            append_part(spans, (start, stop))
            kind = _KINDS[tag]
    if kind != "tensor":
        return OnnxInput(text_of(data, [span], 1), kind, None)
    elem, shapes = 0, list[Span]()
    for tag, start, stop in merged(data, spans):
        if tag == varint_of(1):
            elem = start
        elif tag == message(2):
            append_part(shapes, (start, stop))
    dims = tuple(_dim(data, span) for span in parts_of(data, shapes, 1)) if shapes else None
    return OnnxInput(text_of(data, [span], 1), type_name(elem), dims)


PLACEHOLDER = re.compile(r"\s*(|\?|-1|none|null|n/a|unk.*)\s*", re.IGNORECASE)
"""Names that exporters give to every unknown dim: two dims of such a name need not be equal.

Sources: microsoft/onnxruntime#1482; pytorch/glow#3791; InsightFace's det_10g.onnx; tf2onnx (unk__12).
"""


def type_name(number: int) -> str:
    """Return the name of an element type, `type<number>` if it is unknown."""
    return _TYPES[number] if number < len(_TYPES) else f"type{number}"


def type_number(name: str) -> int:
    """Return the number of an element type by its name; the inverse of `type_name`."""
    return _TYPES.index(name) if name in _TYPES else int(name.removeprefix("type"))


def _dim(data: Bytes, span: Span) -> int | str | None:
    dim: int | str | None = None
    for tag, start, stop in fields(data, *span):  # a oneof: the last field counts
        if tag == varint_of(1):
            dim = signed(start) if signed(start) > 0 else None
        elif tag == message(2):
            name = text(data, start, stop)
            dim = None if PLACEHOLDER.fullmatch(name) else name
    return dim


MAX_RANK = 64
"""Dims of weights."""


def dims_of(data: Bytes, tensor: Sequence[Span]) -> list[int]:
    """Return the dims of a tensor, which are packed or not; none for more than `MAX_RANK`."""
    found: list[int] = []
    for tag, a, b in merged(data, tensor):
        if tag == varint_of(1):
            found.append(signed(a))
        elif tag == message(1):
            found += _packed(data, a, min(b, a + 10 * MAX_RANK))
        if len(found) > MAX_RANK:
            return []
    return found


def _packed(data: Bytes, start: int, stop: int) -> list[int]:
    found, value, shift = list[int](), 0, 0
    for byte in data[start:stop]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(signed(value & (2**64 - 1)))
            value = shift = 0
    return found
