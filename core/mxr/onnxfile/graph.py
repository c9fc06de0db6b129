"""Reads the inputs and outputs of the graph, and the default opset."""

from __future__ import annotations

from collections.abc import Sequence

from .protobuf import Bytes, MalformedProtobuf, Span, fields, merged, message, signed, text, text_of, varint_of
from .values import OnnxInput

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


def default_opset(data: Bytes, span: Span, before: int | None) -> int | None:
    """Return the version in an opset import if it is that of the default domain, otherwise `before`."""
    version = [value for tag, value, _ in fields(data, *span) if tag == varint_of(2)]
    default = text_of(data, [span], 1) in ("", "ai.onnx")
    return signed(version[-1]) if default and version else before


def ends(data: Bytes, graph: Sequence[Span]) -> tuple[tuple[OnnxInput, ...], tuple[OnnxInput, ...]]:
    """Return the inputs without initializers, and the outputs. Raises `MalformedProtobuf`."""
    inputs, outputs, initializers = [], [], set()
    for tag, start, stop in merged(data, graph):
        if tag == message(11):
            inputs.append(_value(data, (start, stop)))
        elif tag == message(12):
            outputs.append(_value(data, (start, stop)))
        elif tag == message(5):
            initializers.add(text_of(data, [(start, stop)], 8))
        elif tag == message(15):
            values = [(a, b) for inner, a, b in fields(data, start, stop) if inner == message(1)]
            initializers.add(text_of(data, values, 8))
    real = tuple(item for item in inputs if item.name not in initializers)
    if len({item.name for item in real}) < len(real):
        raise MalformedProtobuf("Its graph has two inputs with the same name")
    return real, tuple(outputs)


def _value(data: Bytes, span: Span) -> OnnxInput:
    types = [(a, b) for tag, a, b in fields(data, *span) if tag == message(2)]
    kind, spans = "undefined", list[Span]()
    for tag, start, stop in merged(data, types):
        if tag in _KINDS:
            spans = [*spans, (start, stop)] if _KINDS[tag] == kind else [(start, stop)]
            kind = _KINDS[tag]
    if kind != "tensor":
        return OnnxInput(text_of(data, [span], 1), kind, None)
    elem, shapes = 0, list[Span]()
    for tag, start, stop in merged(data, spans):
        if tag == varint_of(1):
            elem = start
        elif tag == message(2):
            shapes.append((start, stop))
    dims = tuple(_dim(data, (a, b)) for tag, a, b in merged(data, shapes) if tag == message(1)) if shapes else None
    return OnnxInput(text_of(data, [span], 1), type_name(elem), dims)


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
            dim = text(data, start, stop) or None
    return dim
