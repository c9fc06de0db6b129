"""The walk over an ONNX file: its inputs, its outputs and where the rest of its data lies; no tensor is ever read.

The protobuf wire format is read here by hand over a memory map, so that a model of any size costs only its node list.
Source of all field numbers: onnx/onnx.proto of github.com/onnx/onnx (tests compare them with the onnx package).
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from .errors import Damaged, Usage
from .value import dataclass

Dim: TypeAlias = int | tuple[int, int, tuple[int, ...]]  # static, or (min, max, optimals)
_Bytes: TypeAlias = mmap.mmap | bytes
_Span: TypeAlias = tuple[int, int]

DEEPEST_SUBGRAPH = 64  # graphs within graphs; protobuf's own parsers stop at 100 messages within messages
LARGEST_DIM = 2**63 - 1

# fmt: off
_TYPES = (
    "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16",
    "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz",
    "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2", "float6e2m3",
    "float6e3m2",
)  # by number
# fmt: on


@dataclass(frozen=True, slots=True)
class OnnxInput:
    """An input or output of the graph: `dims` is None when the model says nothing of its shape, () for a scalar.

    A dim is a number, the name of a symbol, or None (open, without a name). A number below 1 counts as open.
    Source: MIGraphX src/onnx/onnx_parser.cpp ("A non-positive dim_value is unspecified").
    """

    name: str
    elem_type: str
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        dims = "?" if self.dims is None else ", ".join("?" if dim is None else str(dim) for dim in self.dims)
        return f"{self.name} {self.elem_type}[{dims}]"


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """What an ONNX file says of itself. `size` is in bytes; `external` is in byte order of the UTF-8 names."""

    path: Path
    size: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[OnnxInput, ...]
    external: tuple[str, ...]
    opset: int | None
    ir_version: int
    producer: str


class _Broken(Exception):
    """The bytes are no ModelProto, and why; never leaves this file."""


def read_model(path: Path) -> OnnxModel:
    """Walk the ONNX file at `path`. Raises Usage when it cannot be opened, Damaged when it is not an ONNX model."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # before open(), which would wait for ever on a pipe
            raise Damaged(
                f"{path} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}, not a model."
            )
        with path.open("rb") as file:
            head = file.read(512)
            if not head:
                raise Damaged(f"{path} is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(path, data)
    except (FileNotFoundError, NotADirectoryError):
        raise Usage(f"There is no file {path}.", hint="Check the name of the model.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Usage(f"{path} cannot be read: {reason}.", hint="Check the name and who may read it.") from None
    except _Broken as broken:
        looks, hint = _looks(head)
        what = f"It looks like {looks}." if looks else f"{broken}."
        raise Damaged(f"{path} is not an ONNX model. {what}", hint=hint) from None


def _read(path: Path, data: _Bytes) -> OnnxModel:
    spans, opset, ir_version, producer = [], None, 0, ""
    for tag, start, stop in _fields(data, 0, len(data)):
        if tag == _message(7):
            spans.append((start, stop))
        elif tag == _message(8):
            opset = _default_opset(data, (start, stop), opset)
        elif tag == _varint_of(1):
            ir_version = _signed(start)
        elif tag == _message(2):
            producer = _text(data, start, stop)
    if not spans:
        raise _Broken("It holds no graph")
    inputs, outputs = _ends(data, spans)
    external = sorted(_external(data), key=str.encode)
    return OnnxModel(path, len(data), inputs, outputs, tuple(external), opset, ir_version, producer)


# --- the wire format ---


def _message(number: int) -> int:
    return number << 3 | 2


def _varint_of(number: int) -> int:
    return number << 3


def _varint(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7
    raise _Broken("It ends in the middle of a field: was it cut short?" if at >= end else "It holds no ONNX fields")


def _fields(data: _Bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each field of the message in data[at:end]: its tag, then its span; for a varint its value and 0."""
    while at < end:
        tag, start = data[at], at + 1
        if tag > 127:  # most tags and sizes are one byte, and this loop is where the time goes
            tag, start = _varint(data, at, end)
        wire = tag & 7
        if wire == 2 and tag > 7:
            size, start = (data[start], start + 1) if start < end else (128, end + 1)
            if size > 127:
                size, start = _varint(data, start - 1, end)
            at = start + size
        elif wire == 0 and tag > 7:
            value, at = _varint(data, start, end)
            yield tag, value, 0
            continue
        elif wire in (1, 5) and tag > 7:
            at = start + (8 if wire == 1 else 4)
        else:
            raise _Broken("It holds no ONNX fields")
        if at > end:
            raise _Broken("It ends before its last field does: was it cut short?")
        yield tag, start, at


def _merged(data: _Bytes, spans: Iterable[_Span]) -> Iterator[tuple[int, int, int]]:
    """A message that is written in several pieces counts as one (protobuf's rule for a field that comes again)."""
    for start, stop in spans:
        yield from _fields(data, start, stop)


def _text(data: _Bytes, start: int, stop: int) -> str:
    try:
        return bytes(data[start:stop]).decode("utf-8")
    except UnicodeDecodeError:
        raise _Broken("It holds a name that is not UTF-8") from None


def _text_of(data: _Bytes, spans: Iterable[_Span], number: int) -> str:
    return next(
        (_text(data, a, b) for tag, a, b in reversed(list(_merged(data, spans))) if tag == _message(number)), ""
    )


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# --- what the graph says of itself ---

_KINDS = {
    _message(1): "tensor",
    _message(4): "sequence",
    _message(5): "map",
    _message(8): "sparse",
    _message(9): "optional",
}


def _default_opset(data: _Bytes, span: _Span, before: int | None) -> int | None:
    version = [value for tag, value, _ in _fields(data, *span) if tag == _varint_of(2)]
    default = _text_of(data, [span], 1) in ("", "ai.onnx")
    return _signed(version[-1]) if default and version else before


def _ends(data: _Bytes, graph: Sequence[_Span]) -> tuple[tuple[OnnxInput, ...], tuple[OnnxInput, ...]]:
    inputs, outputs, initializers = [], [], set()
    for tag, start, stop in _merged(data, graph):
        if tag == _message(11):
            inputs.append(_value(data, (start, stop)))
        elif tag == _message(12):
            outputs.append(_value(data, (start, stop)))
        elif tag == _message(5):
            initializers.add(_text_of(data, [(start, stop)], 8))
        elif tag == _message(15):
            values = [(a, b) for inner, a, b in _fields(data, start, stop) if inner == _message(1)]
            initializers.add(_text_of(data, values, 8))
    real = tuple(item for item in inputs if item.name not in initializers)
    if len({item.name for item in real}) < len(real):
        raise _Broken("Its graph has two inputs of one name")
    return real, tuple(outputs)


def _value(data: _Bytes, span: _Span) -> OnnxInput:
    types = [(a, b) for tag, a, b in _fields(data, *span) if tag == _message(2)]
    kind, spans = "undefined", list[_Span]()
    for tag, start, stop in _merged(data, types):
        if tag in _KINDS:
            spans = [*spans, (start, stop)] if _KINDS[tag] == kind else [(start, stop)]
            kind = _KINDS[tag]
    if kind != "tensor":
        return OnnxInput(_text_of(data, [span], 1), kind, None)
    elem, shapes = 0, list[_Span]()
    for tag, start, stop in _merged(data, spans):
        if tag == _varint_of(1):
            elem = start
        elif tag == _message(2):
            shapes.append((start, stop))
    dims = tuple(_dim(data, (a, b)) for tag, a, b in _merged(data, shapes) if tag == _message(1)) if shapes else None
    return OnnxInput(_text_of(data, [span], 1), _TYPES[elem] if elem < len(_TYPES) else f"type{elem}", dims)


def _dim(data: _Bytes, span: _Span) -> int | str | None:
    dim: int | str | None = None
    for tag, start, stop in _fields(data, *span):  # a oneof: what comes last counts
        if tag == _varint_of(1):
            dim = _signed(start) if _signed(start) > 0 else None
        elif tag == _message(2):
            dim = _text(data, start, stop) or None
    return dim


# --- external data ---

# Where a tensor may hide: for each message, the fields to go into.
_ROOMS: dict[str, dict[int, str]] = {
    "model": {_message(7): "graph", _message(20): "training", _message(25): "function"},
    "training": {_message(1): "graph", _message(2): "graph"},
    "function": {_message(7): "node", _message(11): "attribute"},
    "graph": {_message(1): "node", _message(5): "tensor", _message(15): "sparse"},
    "node": {_message(5): "attribute"},
    "attribute": {_message(5): "tensor", _message(10): "tensor", _message(6): "graph", _message(11): "graph"}
    | {_message(22): "sparse", _message(23): "sparse"},
    "sparse": {_message(1): "tensor", _message(2): "tensor"},
}


def _external(data: _Bytes) -> set[str]:
    found: set[str] = set()
    waiting = [("model", 0, len(data), 0)]
    while waiting:
        room, at, end, depth = waiting.pop()
        if depth > DEEPEST_SUBGRAPH:
            raise _Broken(f"Its graphs lie more than {DEEPEST_SUBGRAPH} deep within each other")
        doors = _ROOMS[room]
        for tag, start, stop in _fields(data, at, end):
            inner = doors.get(tag)
            if inner == "tensor":
                found |= _locations(data, start, stop)
            elif inner:
                waiting.append((inner, start, stop, depth + (inner == "graph")))
    return found


def _locations(data: _Bytes, start: int, stop: int) -> set[str]:
    external, entries = False, []
    for tag, a, b in _fields(data, start, stop):
        if tag == _message(13):
            entries.append([(a, b)])
        elif tag == _varint_of(14) and a & 0xFFFFFFFF < 2:  # an unknown value of a closed enum changes nothing
            external = a & 0xFFFFFFFF == 1
    if not external:
        return set()
    # Readers differ in which entry they take when there are several, so all of them belong to the model.
    found = {_text_of(data, entry, 2) for entry in entries if _text_of(data, entry, 1) == "location"}
    if not found:
        raise _Broken("It has a tensor with external data and no location")
    return found


def external_files(model: OnnxModel) -> tuple[tuple[str, Path], ...]:
    """Each external-data location of the model with its file, in the order of `model.external`.

    Raises Damaged for a location that is absolute, leaves the model's folder, or names no regular file.
    """
    return tuple((location, _placed(model.path, location)) for location in model.external)


def _placed(model: Path, location: str) -> Path:
    folder, place = model.parent, model.parent / location
    fault = _unfit(location)
    hint = "Save the model again with its external data beside it, under a plain relative name."
    # A location is looked for beside the path as it was given, and a data file may itself be a link to anywhere: in a
    # Hugging Face cache both model.onnx and model.onnx_data are links into ../../blobs. Such a link was made by the
    # owner of the folder, while the location was written by the maker of the model: only the latter must not choose
    # what is read. So the text must stay inside, and so must each folder on the way, links followed.
    if not fault and _leads_out(folder, location):
        fault = "leads out of the model's folder through a link"
    if not fault:
        hint = f"Put it into {folder.absolute()}: a model and its external data travel together."
        try:
            if not stat.S_ISREG(place.stat().st_mode):
                fault = "is not a regular file"
        except (FileNotFoundError, NotADirectoryError):
            fault = "is missing"
        except (OSError, ValueError) as error:
            fault = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if fault:
        raise Damaged(f"The external data {location!r} of {model} {fault}.", hint=hint, detail={"location": location})
    return place


def _leads_out(folder: Path, location: str) -> bool:
    home, step = os.path.realpath(folder), folder
    for part in location.split("/")[:-1]:
        step = step / part
        if not Path(os.path.realpath(step)).is_relative_to(home):
            return True
    return False


def _unfit(location: str) -> str:
    if "\0" in location or "\\" in location:
        return "has a NUL or a backslash in its name"
    if location.startswith("/") or (location[:1].isalpha() and location[1:2] == ":"):
        return "is an absolute path"
    parts = location.split("/")
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return "leaves the model's folder"
    return "names no file" if parts[-1] in ("", ".", "..") else ""


# --- what a foreign file looks like ---

_MARKS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer", "Run `git lfs pull` in its repository."),
    (0, b"\x1f\x8b", "a gzip file", "Unpack it first."),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard file", "Unpack it first."),
    (0, b"PK\x03\x04", "a zip archive or a PyTorch file", "Unpack it, or export the model to ONNX."),
    (0, b"\x80\x02", "a Python pickle", "Export the model to ONNX."),
    (0, b"\x7fELF", "a program (ELF)", "Give the ONNX file."),
    (0, b"\x89HDF", "an HDF5 file", "Export the model to ONNX."),
    (0, b"GGUF", "a GGUF file", "Export the model to ONNX."),
    (4, b"ORTM", "a model in the ORT format", "Give the ONNX file that it was made from."),
    (4, b"TFL3", "a TensorFlow Lite model", "Export the model to ONNX."),
    (1, b"\xa7version", "a compiled program (.mxr)", "Give the ONNX file that it was compiled from."),
)


def _looks(head: bytes) -> tuple[str, str | None]:
    for at, mark, words, hint in _MARKS:
        if head.startswith(mark, at):
            return words, hint
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:9].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return (
            "a web page (HTML or XML)",
            "Open the address in a browser: what was downloaded is a page, not the model.",
        )
    if start[:1] in (b"{", b"["):
        return "JSON", None
    return ("plain text", None) if all(byte > 31 or byte in b"\t\r\n\f" for byte in head) else ("", None)


# --- the shapes of a request ---


def bind_inputs(
    model: OnnxModel, *, batch: int | None, inputs: Mapping[str, tuple[Dim, ...]]
) -> dict[str, tuple[Dim, ...]]:
    """The dims of every input, closed by `inputs` (they win), by symbols that these bind, and by `batch`.

    One symbol has one value in all inputs. `batch` closes the first dim of each input that is still open there. Raises
    Usage, showing the inputs, for whatever does not fit or stays open.
    """
    known = {item.name: item for item in model.inputs}
    for name in inputs:
        if name not in known:
            raise _misfit(model, f"The model has no input {name}.")
    symbols: dict[str, Dim] = {}
    for name, dims in inputs.items():
        _learn(model, known[name], dims, symbols)
    if batch is not None:
        _learn_batch(model, batch, inputs, symbols)
    bound: dict[str, tuple[Dim, ...]] = {}
    for item in model.inputs:
        closed = inputs[item.name] if item.name in inputs else _closed(item, batch, symbols)
        if closed is not None:
            bound[item.name] = tuple(closed)
    if len(bound) < len(model.inputs):
        raise _left_open(model, batch, symbols, [item for item in model.inputs if item.name not in bound])
    return bound


def _misfit(model: OnnxModel, message: str, hint: str = "Say the dims with --input NAME=1,3,224,224.") -> Usage:
    shown = [str(item) for item in model.inputs]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return Usage(f"{message} Its inputs: {', '.join(shown[:12]) or 'none'}{more}.", hint=hint, detail={"inputs": shown})


def _learn(model: OnnxModel, item: OnnxInput, dims: tuple[Dim, ...], symbols: dict[str, Dim]) -> None:
    if not all(map(_sound, dims)):
        raise _misfit(model, f"Input {item.name}: a dim is a number from 1, or MIN..MAX with optimals between them.")
    if item.dims is None:
        return
    if len(dims) != len(item.dims):
        raise _misfit(model, f"Input {item.name} has {len(item.dims)} dims, not {len(dims)}.")
    for place, (dim, own) in enumerate(zip(dims, item.dims, strict=True)):
        if isinstance(own, int) and dim != own:
            raise _misfit(model, f"Dim {place} of input {item.name} is {own} in the model, not {_words(dim)}.")
        if isinstance(own, str) and symbols.setdefault(own, dim) != dim:
            raise _misfit(model, f"{own} is asked to be both {_words(symbols[own])} and {_words(dim)}.")


def _sound(dim: Dim) -> bool:
    if isinstance(dim, int):
        return 1 <= dim <= LARGEST_DIM
    low, high, optimals = dim
    return 1 <= low <= high <= LARGEST_DIM and all(low <= optimal <= high for optimal in optimals)


def _words(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else f"{dim[0]}..{dim[1]}"


def _learn_batch(model: OnnxModel, batch: int, inputs: Mapping[str, tuple[Dim, ...]], symbols: dict[str, Dim]) -> None:
    if not _sound(batch):
        raise _misfit(model, f"A batch of {batch} cannot be.", "Give --batch a number from 1.")
    first = {item.name: item.dims[0] for item in model.inputs if item.dims and not isinstance(item.dims[0], int)}
    unbound = {name: own for name, own in first.items() if name not in inputs}
    names = list(dict.fromkeys(own for own in unbound.values() if isinstance(own, str)))
    for own in names:
        if symbols.get(own, batch) != batch:
            raise _misfit(model, f"{own} is asked to be both {_words(symbols[own])} and, by --batch, {batch}.")
    fresh = [own for own in names if own not in symbols]
    if len(fresh) > 1:
        raise _misfit(model, f"--batch cannot tell which is the batch: {' or '.join(fresh)}.")
    symbols |= dict.fromkeys(fresh, batch)
    if not unbound:
        judged = [item for item in model.inputs if item.name in first] or [item for item in model.inputs if item.dims]
        for item in judged:
            value = inputs[item.name][0] if item.name in inputs else (item.dims or (None,))[0]
            if value != batch:
                raise _misfit(model, f"--batch {batch} does not fit: the first dim of {item.name} is fixed.")


def _filled(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim | None, ...] | None:
    if item.dims is None:
        return None
    dims: list[Dim | None] = []
    for place, own in enumerate(item.dims):
        # A symbol that one input binds to a range closes nothing elsewhere: two ranges need not move together.
        value = symbols.get(own) if isinstance(own, str) else own
        dims.append(batch if own is None and place == 0 else value if isinstance(value, int) else None)
    return tuple(dims)


def _closed(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim, ...] | None:
    dims = _filled(item, batch, symbols)
    if dims is None or None in dims:
        return None
    return tuple(dim for dim in dims if dim is not None)


def _left_open(model: OnnxModel, batch: int | None, symbols: Mapping[str, Dim], left: Sequence[OnnxInput]) -> Usage:
    flags, only_firsts = list[str](), batch is None
    for item in left:
        dims = _filled(item, batch, symbols)
        if dims is None or None in dims[1:]:
            only_firsts = False
        likely = [_example(place, dim, len(dims)) for place, dim in enumerate(dims)] if dims else ["1,3,224,224"]
        flags.append(f"--input {item.name}={','.join(likely)}")
    example = " ".join(flags[:4]) + (" and so on" if len(flags) > 4 else "")
    hint = f"{'Say --batch N, or the' if only_firsts else 'Say the'} dims, for example: {example}"
    names = ", ".join(item.name for item in left[:12])
    return _misfit(model, f"Not every dim is known: {names} would stay open.", hint)


def _example(place: int, dim: Dim | None, rank: int) -> str:
    return "1" if dim is None and place == 0 else ("224" if rank == 4 else "128") if dim is None else str(dim)
