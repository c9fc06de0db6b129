"""Computes a digest of a graph without its weights: a model and its fine-tuned variants have the same digest.

Such models also take similar time to compile. The digest includes the nodes with their attributes, and the names, types
and dims of inputs, outputs and initializers. It excludes tensor contents, external data locations, node names,
documentation and the producer of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

from mxr.errors import DamagedError

from .external import MAX_SUBGRAPH_DEPTH
from .protobuf import Bytes, MalformedProtobuf, fields

# By message: the fields that the digest includes. The value is the kind of a submessage, or None to include the bytes.
_FIELDS: dict[str, dict[int, str | None]] = {
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

MAX_DEPTH = 3 * MAX_SUBGRAPH_DEPTH + 4
"""Maximum nesting depth of messages: each subgraph is in an attribute, which is in a node, which is in a graph."""

PIECE = 1 << 20


def structure_of(data: Bytes) -> str:
    """Return the SHA-256 of the structure of the ONNX model in `data`. Raises `DamagedError` if it is not an ONNX
    model.

    The same model saved by another library may have another digest, because fields are compared byte by byte.
    """
    try:
        return _digest(data)
    except MalformedProtobuf as broken:
        raise DamagedError(f"This is not an ONNX model. {broken}.") from None


def _digest(data: Bytes) -> str:
    found = sha256(b"mxr structure 1")
    stack: list[tuple[str, Iterator[tuple[int, int, int]]]] = [("model", fields(data, 0, len(data)))]
    while stack:
        kind, remaining = stack[-1]
        field = next(remaining, None)
        if field is None:
            stack.pop()
            found.update(b")")
            continue
        tag, start, stop = field
        included = _FIELDS[kind]
        if tag >> 3 not in included:
            continue
        inner = included[tag >> 3]
        if inner is None:
            _add(found.update, data, tag, start, stop)
        elif tag & 7 == 2:
            if len(stack) > MAX_DEPTH:
                raise MalformedProtobuf(f"Its graphs are nested more than {MAX_SUBGRAPH_DEPTH} deep")
            found.update(b"(" + tag.to_bytes(10, "little"))
            stack.append((inner, fields(data, start, stop)))
    return found.hexdigest()


def _add(update: Callable[[bytes], None], data: Bytes, tag: int, start: int, stop: int) -> None:
    """Add the bytes of a field. For a varint, `start` is its value."""
    length = stop - start if tag & 7 else 8
    update(b"=" + tag.to_bytes(10, "little") + length.to_bytes(8, "little"))
    if not tag & 7:
        update(start.to_bytes(8, "little"))
        return
    for at in range(start, stop, PIECE):
        update(bytes(data[at : min(stop, at + PIECE)]))
