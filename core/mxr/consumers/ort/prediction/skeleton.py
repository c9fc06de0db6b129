"""Writes a model without its weights: the same graph for ONNX Runtime's optimizer, at a fraction of the size.

Large tensors become views of one sparse file of zeros; small ones keep their values, because optimizations depend on
them. `types` substitutes element types: ONNX Runtime's CPU provider has no kernels for half precision and would rewrite
such a graph, while names and shapes do not depend on the type.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from mxr.onnxfile.protobuf import Bytes, fields, merged, message, opened, signed, text, text_of, varint_of
from mxr.onnxfile.writing import field as written
from mxr.onnxfile.writing import number_field, reencoded, varint

from .graph import packed

MAX_VALUES = 4096
"""Tensors with at most this many elements keep their values."""

FLOAT, HALF, DOUBLE, BRAIN = 1, 10, 11, 16
WIDTHS = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
"""Bytes per element, by the number of the element type in onnx.proto."""

ZEROS = "zeros.bin"
_CHOOSERS = ("to", "dtype", "output_dtype")


class Unsuited(Exception):
    """No skeleton of these types can be written for this model; the message says why."""


@dataclass(slots=True)
class _Maker:
    folder: Path
    types: Mapping[int, int]
    zeros: int = 0
    parts: list[bytes] = field(default_factory=list)


def write_skeleton(model: Path, target: Path, types: Mapping[int, int] | None = None) -> None:
    """Write the skeleton of `model` to `target`, and the zeros beside it. Raises `Unsuited`, or `OSError`."""
    make = _Maker(model.parent, types or {})
    with opened(model) as data:
        for tag, start, stop in fields(data, 0, len(data)):
            if tag == message(7):
                content = _graph(make, data, start, stop)
                make.parts.append(written(7, content))
            elif tag in (message(20), message(25)) and make.types:
                raise Unsuited("it combines half precision with local functions or training graphs")
            else:
                make.parts.append(reencoded(data, tag, start, stop))
    target.write_bytes(b"".join(make.parts))
    with (target.parent / ZEROS).open("ab") as zeros:
        zeros.truncate(max(make.zeros, zeros.tell()))


def _graph(make: _Maker, data: Bytes, start: int, stop: int) -> bytes:
    rows = []
    for tag, a, b in fields(data, start, stop):
        if tag == message(1):
            rows.append(written(1, _node(make, data, a, b)))
        elif tag == message(5):
            rows.append(written(5, _tensor(make, data, a, b, outside=True)))
        elif tag in (message(11), message(12), message(13)) and make.types:
            rows.append(written(tag >> 3, _value(make, data, a, b)))
        elif tag == message(15) and make.types:
            raise Unsuited("it combines half precision with sparse weights")
        else:
            rows.append(reencoded(data, tag, a, b))
    return b"".join(rows)


def _node(make: _Maker, data: Bytes, start: int, stop: int) -> bytes:
    rows = []
    for tag, a, b in fields(data, start, stop):
        rows.append(written(5, _attribute(make, data, a, b)) if tag == message(5) else reencoded(data, tag, a, b))
    return b"".join(rows)


def _attribute(make: _Maker, data: Bytes, start: int, stop: int) -> bytes:
    chooses = make.types and text_of(data, [(start, stop)], 1) in _CHOOSERS
    rows = []
    for tag, a, b in fields(data, start, stop):
        if tag == message(5):
            rows.append(written(5, _tensor(make, data, a, b, outside=False)))
        elif tag == varint_of(3) and chooses:
            rows.append(number_field(3, make.types.get(a, a)))
        else:
            rows.append(reencoded(data, tag, a, b))
    return b"".join(rows)


def _value(make: _Maker, data: Bytes, start: int, stop: int) -> bytes:
    """A ValueInfo with a substituted element type: value -> type -> tensor -> elem_type."""

    def rewritten(start: int, stop: int, depth: int) -> bytes:
        rows = []
        for tag, a, b in fields(data, start, stop):
            if depth == 2 and tag == varint_of(1):
                rows.append(number_field(1, make.types.get(a, a)))
            elif (depth, tag) in ((0, message(2)), (1, message(1))):
                rows.append(written(tag >> 3, rewritten(a, b, depth + 1)))
            else:
                rows.append(reencoded(data, tag, a, b))
        return b"".join(rows)

    return rewritten(start, stop, 0)


@dataclass(slots=True)
class _Tensor:
    name: str = ""
    kind: int = 0
    dims: list[int] = field(default_factory=list)
    raw: bytes | None = None
    floats: bytes = b""
    integers: list[int] = field(default_factory=list)
    external: dict[str, str] = field(default_factory=dict)
    is_external: bool = False


def _read_tensor(data: Bytes, start: int, stop: int) -> _Tensor:
    found = _Tensor()
    for tag, a, b in fields(data, start, stop):
        if tag in (varint_of(1), message(1)):
            found.dims += [signed(a)] if tag & 7 == 0 else packed(data, a, b)
        elif tag == varint_of(2):
            found.kind = a
        elif tag == message(8):
            found.name = text(data, a, b)
        elif tag == message(13):
            entry = [(a, b)]
            found.external[text_of(data, entry, 1)] = text_of(data, entry, 2)
        elif tag == varint_of(14):
            found.is_external = a == 1
    return found


def _read_values(data: Bytes, start: int, stop: int, found: _Tensor) -> None:
    for tag, a, b in merged(data, [(start, stop)]):
        if tag == message(9):
            found.raw = bytes(data[a:b])
        elif tag >> 3 in (4, 10):
            found.floats += bytes(data[a:b])
        elif tag >> 3 in (5, 7, 11):
            found.integers += [signed(a)] if tag & 7 == 0 else packed(data, a, b)


def _tensor(make: _Maker, data: Bytes, start: int, stop: int, *, outside: bool) -> bytes:
    found = _read_tensor(data, start, stop)
    count, width = prod(found.dims), WIDTHS.get(found.kind)
    kind = make.types.get(found.kind, found.kind)
    if width is not None and count > MAX_VALUES:
        return _emptied(make, found, kind, count, outside=outside)
    if kind == found.kind and not found.is_external:
        return bytes(data[start:stop])
    if width is None:
        raise Unsuited(f"weight {found.name} has an unsupported element type")
    _read_values(data, start, stop, found)
    raw = _external(make, found, count * width) if found.is_external else found.raw
    if raw is None:
        raw = _packed_values(found)
    return _head(found, kind) + written(9, raw if kind == found.kind else _converted(raw, found.kind, kind))


def _head(found: _Tensor, kind: int) -> bytes:
    dims = b"".join(varint(dim) for dim in found.dims)
    return (written(1, dims) if dims else b"") + number_field(2, kind) + written(8, found.name)


def _emptied(make: _Maker, found: _Tensor, kind: int, count: int, *, outside: bool) -> bytes:
    size = count * WIDTHS[kind]
    if not outside:  # ONNX Runtime does not support external data for attributes
        return _head(found, kind) + written(9, bytes(size))
    make.zeros = max(make.zeros, size)
    entries = {"location": ZEROS, "offset": "0", "length": str(size)}
    rows = [written(13, written(1, name) + written(2, value)) for name, value in entries.items()]
    return _head(found, kind) + b"".join(rows) + number_field(14, 1)


def _external(make: _Maker, found: _Tensor, size: int) -> bytes:
    from mxr.onnxfile.external import placed

    place = placed(make.folder / "model.onnx", found.external.get("location", ""))
    with place.open("rb") as file:
        file.seek(int(found.external.get("offset") or 0))
        data = file.read(size)
    if len(data) != size:
        raise Unsuited(f"the external data of weight {found.name} is too short")
    return data


def _packed_values(found: _Tensor) -> bytes:
    """The typed fields of a tensor, as raw data."""
    if found.floats:
        return found.floats
    width = WIDTHS[found.kind]
    mask = (1 << 8 * width) - 1
    return b"".join((value & mask).to_bytes(width, "little") for value in found.integers)


def _converted(raw: bytes, old: int, new: int) -> bytes:
    letters = {FLOAT: "f", HALF: "e", DOUBLE: "d"}
    if old == BRAIN:
        words = struct.unpack(f"<{len(raw) // 2}H", raw)
        raw, old = b"".join(struct.pack("<I", word << 16) for word in words), FLOAT
    count = len(raw) // WIDTHS[old]
    return struct.pack(f"<{count}{letters[new]}", *struct.unpack(f"<{count}{letters[old]}", raw))
