"""Gives the external data of a model other locations, for a copy of the model with files of other names."""

from __future__ import annotations

from collections.abc import Mapping

from .external import EXTERNAL_DATA, SUBMESSAGES
from .protobuf import Bytes, Span, fields, text_of
from .writing import field, reencoded


def relocated(data: Bytes, kind: str, span: Span, locations: Mapping[str, str]) -> bytes | None:
    """Return a message with the new location of each tensor in it; None if it has no tensor with external data.

    `kind` is one of `external.SUBMESSAGES`, or `tensor`. `locations` has every location of the model. The caller has
    read the model, which bounds the depth.
    """
    found: dict[int, bytes] = {}
    for tag, start, stop in fields(data, *span):
        new = None
        if kind == "tensor":
            if tag == EXTERNAL_DATA and text_of(data, [(start, stop)], 1) == "location":
                new = field(1, "location") + field(2, locations[text_of(data, [(start, stop)], 2)])
        elif inner := SUBMESSAGES[kind].get(tag):
            new = relocated(data, inner, (start, stop), locations)
        if new is not None:
            found[start] = field(tag >> 3, new)
    if not found:
        return None
    # Only now is the rest read: a message without external data may be as large as memory.
    return b"".join(found.get(a) or reencoded(data, tag, a, b) for tag, a, b in fields(data, *span))
