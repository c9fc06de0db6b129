"""The orders in which ONNX Runtime and its providers traverse a graph.

Source: microsoft/onnxruntime, onnxruntime/core/graph/graph.cc (ReverseDFSFrom) and the
providers' own traversal of the inputs of a subgraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .graph import GraphNode


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
