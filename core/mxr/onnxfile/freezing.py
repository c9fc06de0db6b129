"""Writes a copy of a model in which numbers replace the symbolic dims of its inputs; weights stay unchanged.

Source: onnx/onnx, onnx/onnx.proto (field numbers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from mxr.errors import DamagedError

from .external import EXTERNAL_DATA, SUBMESSAGES
from .protobuf import Bytes, MalformedProtobuf, Span, fields, message, opened, text, text_of, varint_of
from .writing import field, head, number_field, reencoded

Dims = tuple[int, ...]


def freeze(source: Path, target: BinaryIO, inputs: Mapping[str, Dims], locations: Mapping[str, str]) -> None:
    """Write the model at `source` to `target`, with the dims of every input from `inputs`.

    `locations`: the new location of each external data that the copy names differently: all of them, or none. The
    number of an input's symbol replaces that symbol everywhere. Other shapes with unknown dims are removed, because
    they were inferred and are inferred again. Raises `DamagedError`, `TemporaryError`, `OSError`.
    """
    with opened(source) as data:
        try:
            graphs = [(a, b) for tag, a, b in fields(data, 0, len(data)) if tag == message(7)]
            symbols = _symbols(data, graphs, inputs)
            for tag, start, stop in fields(data, 0, len(data)):
                if tag == message(7):
                    _write(target, 7, list(_graph(data, start, stop, inputs, symbols, locations)), data)
                elif (new := _relocated(data, "model", tag, (start, stop), locations)) is not None:
                    target.write(field(tag >> 3, new))
                else:
                    _copy(target, data, tag, start, stop)
        except MalformedProtobuf as broken:
            raise DamagedError(f"{source} is not an ONNX model. {broken}.") from None


def _write(target: BinaryIO, number: int, parts: Sequence[bytes | tuple[int, int, int]], data: Bytes) -> None:
    """Write a message. Unchanged parts are copied without reading them whole: a graph may be as large as memory."""
    sizes = (len(part) if isinstance(part, bytes) else _size(*part) for part in parts)
    target.write(head(number, sum(sizes)))
    for part in parts:
        if isinstance(part, bytes):
            target.write(part)
        else:
            _copy(target, data, *part)


def _size(tag: int, start: int, stop: int) -> int:
    body = stop - start
    return len(head(tag >> 3, body)) + body


def _copy(target: BinaryIO, data: Bytes, tag: int, start: int, stop: int) -> None:
    if tag & 7 != 2:
        target.write(reencoded(data, tag, start, stop))
        return
    target.write(head(tag >> 3, stop - start))
    for at in range(start, stop, 1 << 22):
        target.write(data[at : min(at + (1 << 22), stop)])


def _graph(
    data: Bytes,
    start: int,
    stop: int,
    inputs: Mapping[str, Dims],
    symbols: Mapping[str, int],
    locations: Mapping[str, str],
) -> Iterator[bytes | tuple[int, int, int]]:
    for tag, a, b in fields(data, start, stop):
        if (new := _relocated(data, "graph", tag, (a, b), locations)) is not None:
            yield field(tag >> 3, new)
            continue
        if tag == message(11) and (name := text_of(data, [(a, b)], 1)) in inputs:
            yield field(11, _value(data, (a, b), symbols, inputs[name]) or b"")
        elif tag in (message(12), message(13)):
            value = _value(data, (a, b), symbols, None)
            if value is not None:
                yield field(tag >> 3, value)
            elif tag == message(12):
                yield field(12, _without_shape(data, (a, b)))
        elif tag & 7 == 2:
            yield (tag, a, b)
        else:
            yield reencoded(data, tag, a, b)


def _relocated(data: Bytes, kind: str, tag: int, span: Span, locations: Mapping[str, str]) -> bytes | None:
    inner = SUBMESSAGES[kind].get(tag) if locations else None
    return None if inner is None else relocated(data, inner, span, locations)


def _symbols(data: Bytes, graphs: Sequence[Span], inputs: Mapping[str, Dims]) -> dict[str, int]:
    """The number of each symbol in the inputs."""
    found: dict[str, int] = {}
    for start, stop in graphs:
        for tag, a, b in fields(data, start, stop):
            if tag == message(11) and (dims := inputs.get(text_of(data, [(a, b)], 1))) is not None:
                names = _dim_names(data, (a, b))
                found |= {name: dim for name, dim in zip(names, dims, strict=False) if name}
    return found


def _shapes(data: Bytes, value: Span) -> Iterator[Span]:
    """The shape messages in a value: value -> type -> tensor -> shape."""
    spans = [value]
    for number in (2, 1, 2):
        spans = [(a, b) for span in spans for tag, a, b in fields(data, *span) if tag == message(number)]
    yield from spans


def _dim_names(data: Bytes, value: Span) -> list[str]:
    return [
        text_of(data, [(a, b)], 2)
        for span in _shapes(data, value)
        for tag, a, b in fields(data, *span)
        if tag == message(1)
    ]


class _UnknownDim(Exception):
    """A dim has no known number."""


def _value(data: Bytes, value: Span, symbols: Mapping[str, int], dims: Dims | None) -> bytes | None:
    """The value with numbers as dims; None if a dim is unknown."""
    try:
        return _within(data, value, 0, lambda a, b: _shape(data, (a, b), symbols, dims), dims)
    except _UnknownDim:
        return None


def _without_shape(data: Bytes, value: Span) -> bytes:
    return _within(data, value, 0, lambda _a, _b: None, None)


def _within(data: Bytes, span: Span, depth: int, shape, dims: Dims | None) -> bytes:  # type: ignore[no-untyped-def]
    rows, seen = [], False
    for tag, a, b in fields(data, *span):
        if tag != message((2, 1, 2)[depth]):
            rows.append(reencoded(data, tag, a, b))
        elif depth < 2:
            rows.append(field(tag >> 3, _within(data, (a, b), depth + 1, shape, dims)))
        elif (content := shape(a, b)) is not None:
            rows.append(field(2, content))
            seen = True
    if depth == 2 and dims is not None and not seen:
        rows.append(field(2, b"".join(field(1, number_field(1, dim)) for dim in dims)))
    return b"".join(rows)


def _shape(data: Bytes, span: Span, symbols: Mapping[str, int], dims: Dims | None) -> bytes:
    rows = []
    for place, (_, a, b) in enumerate(each for each in fields(data, *span) if each[0] == message(1)):
        rows.append(field(1, _dim(data, (a, b), symbols, None if dims is None else dims[place])))
    return b"".join(rows)


def _dim(data: Bytes, span: Span, symbols: Mapping[str, int], size: int | None) -> bytes:
    rest, own, name = [], None, ""
    for tag, a, b in fields(data, *span):
        if tag == varint_of(1):
            own = a
        elif tag == message(2):
            name, own = text(data, a, b), None
        else:
            rest.append(reencoded(data, tag, a, b))
    known = size if size is not None else symbols.get(name) if name else own
    if known is None:
        raise _UnknownDim
    return number_field(1, known) + b"".join(rest)


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
