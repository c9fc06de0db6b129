"""Finds dims of outputs that follow from the weights of the model, whatever it declares.

A classifier's output, for example, has as many columns as the weights of its last `Gemm`. Source of the operators:
github.com/onnx/onnx, docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxr.util.frozen import dataclass

from .graph import OutputDim, dims_of
from .protobuf import Bytes, Span, fields, merged, message, text, text_of, varint_of

_KEEP_DIMS = frozenset(
    ("Cast", "Clip", "Dropout", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "LogSoftmax")
) | {"Mish", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh"}
"""Operators whose first output has the dims of their first input."""

MAX_FOLLOWED = 50_000
"""Nodes and initializers of a graph that is read for such dims."""


_BROADCAST = frozenset(("Add", "Sub", "Mul", "Div"))
_WEIGHTED = frozenset(("Gemm", "MatMul", "Conv"))


@dataclass(frozen=True, slots=True)
class _Node:
    operator: str
    inputs: tuple[str, ...]
    transposed: bool


def dims_from_weights(data: Bytes, graph: Sequence[Span], outputs: Sequence[str]) -> dict[str, OutputDim]:
    """Return a dim of each output that the weights determine. Raises `MalformedProtobuf`."""
    nodes, initializers = _nodes_and_initializers(data, graph)
    followed = {name: name for name in outputs}  # the value that is followed, of each output
    found: dict[str, OutputDim] = {}
    for span in reversed(nodes):
        if not followed:
            break
        made = next((text(data, a, b) for tag, a, b in fields(data, *span) if tag == message(2)), "")
        names = [output for output, value in followed.items() if value == made]
        if not names:
            continue
        node = _node(data, span)
        dim, value = _determined(data, node, initializers), _followed(data, node, initializers)
        for name in names:
            del followed[name]
            if dim is not None:
                found[name] = dim
            elif value:
                followed[name] = value
    return found


def _nodes_and_initializers(data: Bytes, graph: Sequence[Span]) -> tuple[list[Span], dict[str, Span]]:
    """The nodes and the initializers by name; nothing of a graph with more than `MAX_FOLLOWED` of them."""
    nodes, initializers = list[Span](), dict[str, Span]()
    for tag, a, b in merged(data, graph):
        if tag == message(1):
            nodes.append((a, b))
        elif tag == message(5):
            initializers[text_of(data, [(a, b)], 8)] = (a, b)
        if len(nodes) + len(initializers) > MAX_FOLLOWED:
            return [], {}
    return nodes, initializers


def _node(data: Bytes, span: Span) -> _Node:
    inputs, transposed = list[str](), False
    for tag, a, b in fields(data, *span):
        if tag == message(1):
            inputs.append(text(data, a, b))
        elif tag == message(5) and text_of(data, [(a, b)], 1) == "transB":
            transposed = any(value for inner, value, _ in fields(data, a, b) if inner == varint_of(3))
    standard = text_of(data, [span], 7) in ("", "ai.onnx")
    return _Node(text_of(data, [span], 4) if standard else "", tuple(inputs), transposed)


def _determined(data: Bytes, node: _Node, initializers: Mapping[str, Span]) -> OutputDim | None:
    """Return the dim that the weights of this node give its output. A dim of 1 may grow when a bias is added."""
    if node.operator not in _WEIGHTED or len(node.inputs) < 2 or node.inputs[1] not in initializers:
        return None
    weights = dims_of(data, [initializers[node.inputs[1]]])
    if node.operator == "Conv":
        dim = OutputDim(1, weights[0], len(weights)) if len(weights) > 2 else None
    elif node.operator == "Gemm":
        dim = OutputDim(-1, weights[0 if node.transposed else 1], 2) if len(weights) == 2 else None
    else:
        dim = OutputDim(-1, weights[1], None) if len(weights) == 2 else None
    return dim if dim is not None and dim.size > 1 else None


def _followed(data: Bytes, node: _Node, initializers: Mapping[str, Span]) -> str:
    """Return the input of the node whose dims its output has; empty if there is none."""
    if node.operator in _KEEP_DIMS:
        return node.inputs[0] if node.inputs else ""
    weights = [name for name in node.inputs if name in initializers]
    others = [name for name in node.inputs if name not in initializers]
    if node.operator not in _BROADCAST or len(others) != 1 or len(weights) != 1:
        return ""
    # One number, or one for each column: neither changes the rank, nor a last dim that is not 1.
    return others[0] if len(dims_of(data, [initializers[weights[0]]])) < 2 else ""
