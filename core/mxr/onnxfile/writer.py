"""Writes an ONNX model that consists of one node without weights.

Source: onnx/onnx, onnx/onnx.proto (field numbers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxr.util.frozen import dataclass

from .graph import type_number
from .values import OnnxInput
from .writing import field, number_field

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
    graph += b"".join(field(11, _value(each)) for each in inputs)
    graph += b"".join(field(12, _value(each)) for each in outputs)
    imports = b"".join(field(8, field(1, domain) + number_field(2, version)) for domain, version in opsets.items())
    return number_field(1, IR_VERSION) + field(2, "mxr") + field(7, graph) + imports


def _node(node: WrittenNode) -> bytes:
    names = b"".join(field(1, each) for each in node.inputs) + b"".join(field(2, each) for each in node.outputs)
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
