"""Reads an ONNX graph as names and shapes, from which a provider computes a file name, and the orders of its nodes.

Reads no tensor data. Source of the orders: microsoft/onnxruntime, onnxruntime/core/graph/graph.cc (ReverseDFSFrom) and
the providers' own traversal of the inputs of a subgraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mxr.onnxfile.protobuf import Bytes, Span, fields, merged, message, opened, signed, text, text_of, varint_of

Sizes = tuple[int | None, ...]
"""The dims of a value; None for an open dim."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The parts of a node attribute that affect a name; `kind` is the element type of a tensor."""

    i: int = 0
    s: str = ""
    ints: tuple[int, ...] = ()
    kind: int = 0
    graph: bool = False


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node. An omitted input or output has an empty name."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph in file order. `inputs` are the declared inputs, including initializers among them.

    `shapes` and `types` hold the known facts about each value, by name. A shape is None if it is unknown; types are the
    numbers of onnx.proto.
    """

    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: frozenset[str]
    shapes: Mapping[str, Sizes | None]
    types: Mapping[str, int]

    @property
    def real_inputs(self) -> tuple[str, ...]:
        """The declared inputs that are not initializers."""
        return tuple(name for name in self.inputs if name not in self.initializers)

    @property
    def constants(self) -> frozenset[str]:
        """The initializers that are not declared as inputs, so no caller can override them."""
        return self.initializers - frozenset(self.inputs)


def read_graph(path: Path) -> Graph:
    """Read the graph of the ONNX file at `path`. Raises `OSError`, or `MalformedProtobuf` of mxr.onnxfile.protobuf."""
    with opened(path) as data:
        spans = [(a, b) for tag, a, b in fields(data, 0, len(data)) if tag == message(7)]
        return _graph(data, spans)


def _graph(data: Bytes, spans: Sequence[Span]) -> Graph:
    nodes, ends, initializers = list[GraphNode](), dict[int, list[str]](), set[str]()
    shapes, types = dict[str, Sizes | None](), dict[str, int]()
    for tag, start, stop in merged(data, spans):
        if tag == message(1):
            nodes.append(_node(data, start, stop))
        elif tag in (message(11), message(12), message(13)):
            name, kind, sizes = _value(data, (start, stop))
            ends.setdefault(tag >> 3, []).append(name)
            shapes[name], types[name] = sizes, kind
        elif tag in (message(5), message(15)):
            span = (start, stop) if tag == message(5) else _values_of_sparse(data, start, stop)
            name, kind, sizes = _tensor(data, *span)
            initializers.add(name)
            shapes[name], types[name] = sizes, kind
    return Graph(tuple(nodes), tuple(ends.get(11, ())), tuple(ends.get(12, ())), frozenset(initializers), shapes, types)


def _node(data: Bytes, start: int, stop: int) -> GraphNode:
    inputs, outputs, attributes = list[str](), list[str](), dict[str, Attribute]()
    words = {3: "", 4: "", 7: ""}
    for tag, a, b in fields(data, start, stop):
        number = tag >> 3
        if number == 1:
            inputs.append(text(data, a, b))
        elif number == 2:
            outputs.append(text(data, a, b))
        elif number in words:
            words[number] = text(data, a, b)
        elif number == 5:
            attributes[text_of(data, [(a, b)], 1)] = _attribute(data, a, b)
    return GraphNode(words[4], words[7], words[3], tuple(inputs), tuple(outputs), attributes)


def _attribute(data: Bytes, start: int, stop: int) -> Attribute:
    number, letters, numbers, kind, graph = 0, "", list[int](), 0, False
    for tag, a, b in fields(data, start, stop):
        if tag == varint_of(3):
            number = signed(a)
        elif tag == message(4):
            letters = bytes(data[a:b]).decode("utf-8", "replace")
        elif tag == varint_of(8):
            numbers.append(signed(a))
        elif tag == message(8):
            numbers += packed(data, a, b)
        elif tag == message(5):
            kind = _tensor(data, a, b)[1]
        elif tag in (message(6), message(11)):
            graph = True
    return Attribute(number, letters, tuple(numbers), kind, graph)


def packed(data: Bytes, start: int, stop: int) -> list[int]:
    """The varints of a packed field."""
    found, value, shift = [], 0, 0
    for byte in data[start:stop]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(signed(value))
            value = shift = 0
    return found


def _values_of_sparse(data: Bytes, start: int, stop: int) -> Span:
    return next(((a, b) for tag, a, b in fields(data, start, stop) if tag == message(1)), (start, start))


def _tensor(data: Bytes, start: int, stop: int) -> tuple[str, int, Sizes]:
    name, kind, dims = "", 0, list[int | None]()
    for tag, a, b in fields(data, start, stop):
        if tag == varint_of(1):
            dims.append(signed(a))
        elif tag == message(1):
            dims += packed(data, a, b)
        elif tag == varint_of(2):
            kind = a
        elif tag == message(8):
            name = text(data, a, b)
    return name, kind, tuple(dims)


def _value(data: Bytes, span: Span) -> tuple[str, int, Sizes | None]:
    kind, shapes = 0, list[Span]()
    types = [(a, b) for tag, a, b in fields(data, *span) if tag == message(2)]
    for tag, start, stop in merged(data, types):
        if tag == message(1):
            for inner, a, b in fields(data, start, stop):
                if inner == varint_of(1):
                    kind = a
                elif inner == message(2):
                    shapes.append((a, b))
    sizes = tuple(_size(data, a, b) for tag, a, b in merged(data, shapes) if tag == message(1)) if shapes else None
    return text_of(data, [span], 1), kind, sizes


def _size(data: Bytes, start: int, stop: int) -> int | None:
    found = None
    for tag, a, _ in fields(data, start, stop):
        if tag == varint_of(1):
            found = signed(a)
        elif tag == message(2):
            found = None
    return found


def producers(nodes: Sequence[GraphNode]) -> dict[str, int]:
    """For each value, the index of the node that produces it."""
    return {name: at for at, node in enumerate(nodes) for name in node.outputs if name}


def depth_first(nodes: Sequence[GraphNode], indices: Sequence[int]) -> list[int]:
    """ONNX Runtime's default order: a reverse depth-first search from the nodes without consumers, producers first.

    `indices` are the numbers that ONNX Runtime assigned to the nodes; they break ties.
    """
    made = producers(nodes)
    before = [_sources(node, made) for node in nodes]
    read = {source for each in before for source in each}
    waiting = sorted((at for at in range(len(nodes)) if at not in read), key=lambda at: -indices[at])
    stack: list[tuple[int, bool]] = [(at, False) for at in reversed(waiting)]
    seen: set[int] = set()
    found: list[int] = []
    while stack:
        at, done = stack.pop()
        if done:
            found.append(at)
            continue
        if at in seen:
            continue
        seen.add(at)
        stack.append((at, True))
        stack += [(each, False) for each in sorted(before[at], key=lambda each: indices[each]) if each not in seen]
    return found


def _sources(node: GraphNode, made: dict[str, int]) -> set[int]:
    return {made[name] for name in node.inputs if name in made}


def last_use(nodes: Iterable[GraphNode], constants: frozenset[str]) -> list[str]:
    """The inputs of a subgraph of these nodes, without constants, in the order of their last use."""
    places: dict[str, int] = {}
    open_outputs: set[str] = set()
    used_up: set[str] = set()
    count = 0
    for node in nodes:
        for name in filter(None, node.inputs):
            if name in open_outputs:
                open_outputs.discard(name)
                used_up.add(name)
            elif name not in used_up:
                places[name] = count
                count += 1
        for name in filter(None, node.outputs):
            if name in places:
                del places[name]
                used_up.add(name)
            elif name not in used_up:
                open_outputs.add(name)
    return [name for name in sorted(places, key=lambda each: places[each]) if name not in constants]
