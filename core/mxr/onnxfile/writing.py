"""Writes the protobuf wire format, for the few changes that mxr makes to a model, and models of one node.

Sources: protobuf.dev, "Encoding"; onnx/onnx, onnx/onnx.proto (field numbers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxr.util.frozen import dataclass

from .graph import OnnxInput, type_number
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


IR_VERSION = 8
"""Supported by ONNX Runtime 1.10 and later. Source: onnx/onnx, docs/Versioning.md."""


@dataclass(frozen=True, slots=True)
class WrittenNode:
    """One node. Attributes are integers (INT) or strings (STRING)."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | str]


def model_bytes(
    name: str, node: WrittenNode, inputs: Sequence[OnnxInput], outputs: Sequence[OnnxInput], opsets: Mapping[str, int]
) -> bytes:
    """Return a serialized ModelProto with `node` as its graph's only node. `opsets` are versions by domain."""
    graph = field(1, _node(node)) + field(2, name)
    graph += b"".join(field(11, _value(item)) for item in inputs)
    graph += b"".join(field(12, _value(output)) for output in outputs)
    imports = b"".join(field(8, field(1, domain) + number_field(2, version)) for domain, version in opsets.items())
    return number_field(1, IR_VERSION) + field(2, "mxr") + field(7, graph) + imports


def _node(node: WrittenNode) -> bytes:
    names = b"".join(field(1, item) for item in node.inputs) + b"".join(field(2, output) for output in node.outputs)
    attributes = b"".join(field(5, _attribute(name, value)) for name, value in node.attributes.items())
    return names + field(3, node.name) + field(4, node.op_type) + attributes + field(7, node.domain)


def _attribute(name: str, value: int | str) -> bytes:
    if isinstance(value, int):
        return field(1, name) + number_field(3, value) + number_field(20, 2)
    return field(1, name) + field(4, value) + number_field(20, 3)


def _value(value: OnnxInput) -> bytes:
    dims = b"".join(field(1, _dim(dim)) for dim in value.dims or ())
    shape = b"" if value.dims is None else field(2, dims)
    return field(1, value.name) + field(2, field(1, number_field(1, type_number(value.elem_type)) + shape))


def _dim(dim: int | str | None) -> bytes:
    if dim is None:
        return b""
    return number_field(1, dim) if isinstance(dim, int) else field(2, dim)
