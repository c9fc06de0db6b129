"""A digest of a graph without its weights: equal for a model and its fine-tuned sisters, whose compiles take alike.

What counts are nodes with their attributes, and names, types and dims of inputs, outputs and initializers. What is in
a tensor does not, nor where its external data lie, nor names of nodes, documentation and who made the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

from mxr.errors import Damaged

from .external import DEEPEST_SUBGRAPH
from .protobuf import Bytes, MalformedProtobuf, fields

# The fields of each message that count: those with a room are messages to go into, the others count as they stand.
_ROOMS: dict[str, dict[int, str | None]] = {
    "model": {7: "graph", 8: None, 25: "function"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 15: "sparse"},
    "node": {1: None, 2: None, 4: None, 7: None, 8: None, 5: "attribute"},
    "attribute": dict.fromkeys((1, 2, 3, 4, 7, 8, 9, 14, 15, 20, 21))
    | {5: "tensor", 10: "tensor", 6: "graph", 11: "graph", 22: "sparse", 23: "sparse"},
    "tensor": dict.fromkeys((1, 2, 8)),
    "sparse": {1: "tensor", 2: "tensor", 3: None},
    "value": dict.fromkeys((1, 2)),
    "function": dict.fromkeys((1, 4, 5, 6, 9, 10, 13)) | {7: "node", 11: "attribute"},
}

DEEPEST = 3 * DEEPEST_SUBGRAPH + 4
"""Messages within messages: a graph lies in an attribute, in a node, in a graph."""

PIECE = 1 << 20


def structure_of(data: Bytes) -> str:
    """The sha256 of the structure of the ONNX model in `data`. Raises `Damaged` where it cannot be walked.

    The same model written anew by another library may have another digest: only what is equal byte by byte is seen as
    equal.
    """
    try:
        return _digest(data)
    except MalformedProtobuf as broken:
        raise Damaged(f"This is not an ONNX model. {broken}.") from None


def _digest(data: Bytes) -> str:
    found = sha256(b"mxr structure 1")
    ways: list[tuple[str, Iterator[tuple[int, int, int]]]] = [("model", fields(data, 0, len(data)))]
    while ways:
        room, way = ways[-1]
        step = next(way, None)
        if step is None:
            ways.pop()
            found.update(b")")
            continue
        tag, start, stop = step
        doors = _ROOMS[room]
        if tag >> 3 not in doors:
            continue
        inner = doors[tag >> 3]
        if inner is None:
            _add(found.update, data, tag, start, stop)
        elif tag & 7 == 2:
            if len(ways) > DEEPEST:
                raise MalformedProtobuf(f"Its graphs lie more than {DEEPEST_SUBGRAPH} deep within each other")
            found.update(b"(" + tag.to_bytes(10, "little"))
            ways.append((inner, fields(data, start, stop)))
    return found.hexdigest()


def _add(update: Callable[[bytes], None], data: Bytes, tag: int, start: int, stop: int) -> None:
    """A field as it stands; for a varint `start` is its value."""
    length = stop - start if tag & 7 else 8
    update(b"=" + tag.to_bytes(10, "little") + length.to_bytes(8, "little"))
    if not tag & 7:
        update(start.to_bytes(8, "little"))
        return
    for at in range(start, stop, PIECE):
        update(bytes(data[at : min(stop, at + PIECE)]))
