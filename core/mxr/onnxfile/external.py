"""Finds and checks the external data of a model: the tensors that have any, their locations and the files.

This is the only place that decides which files a model may name. Every reader of an ONNX file goes through it: the
client, the registry's inspector, and the worker before MIGraphX gets the file.

MIGraphX reads the file that the first entry of `external_data` names, whatever the key of that entry is, and whatever
`data_location` says. ONNX Runtime reads the entry with the key `location`, if `data_location` says so. A tensor is
accepted only if both read the same file. Source: ROCm/AMDMIGraphX, src/onnx/onnx_parser.cpp, parse_tensor.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

from mxr.errors import DamagedError
from mxr.facts import stated

from .graph import OnnxModel, dims_of, type_name
from .protobuf import Bytes, MalformedProtobuf, Span, append_part, merged, message, text_of, varint_of

MAX_SUBGRAPH_DEPTH = 64
"""Maximum nesting depth of graphs. Protobuf's own parsers stop at 100 nested messages."""

SUBMESSAGES: dict[str, dict[int, str]] = {
    "model": {message(7): "graph", message(20): "training", message(25): "function"},
    "training": {message(1): "graph", message(2): "graph"},
    "function": {message(7): "node", message(11): "attribute"},
    "graph": {message(1): "node", message(5): "tensor", message(15): "sparse"},
    "node": {message(5): "attribute"},
    "attribute": {message(5): "tensor", message(10): "tensor", message(6): "graph", message(11): "graph"}
    | {message(22): "sparse", message(23): "sparse"},
    "sparse": {message(1): "tensor", message(2): "tensor"},
}
"""By message: the fields whose messages can contain tensors."""

# Fields that are not repeated. Protobuf merges their occurrences into one message, whose repeated fields are those of
# all occurrences in order.
_MERGED = {
    "model": {message(7)},
    "training": {message(1), message(2)},
    "attribute": {message(5), message(6), message(22)},
    "sparse": {message(1), message(2)},
}

MAX_MESSAGES = 1_000_000
"""Nodes, attributes, graphs and tensors of a model. Large language models have some ten thousand."""

MAX_LOCATIONS = 20_000
MAX_OPERATORS = 10_000

UNKNOWN_TYPE = 255
"""Stands for all larger numbers of element types, of which ONNX defines less than 30."""

EXTERNAL_DATA = message(13)
_COUNTS = ("offset", "length")
MAX_DIGITS = 20
"""Digits of an offset or a length."""

_BITS = {
    **dict.fromkeys(
        ("uint8", "int8", "bool", *[f"float8e{each}" for each in ("4m3fn", "4m3fnuz", "5m2", "5m2fnuz", "8m0")]), 8
    ),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
    **dict.fromkeys(("uint4", "int4", "float4e2m1"), 4),
    **dict.fromkeys(("uint2", "int2"), 2),
}
"""Bits of an element in external data, by type. Source: onnx/onnx, onnx/onnx.proto, TensorProto."""

IN_MEMORY = "*"
"""The first part of the locations by which ONNX Runtime refers to addresses in its memory, such as
`*/_ORT_MEM_ADDR_/*`. Source: microsoft/onnxruntime, core/framework/tensorprotoutils.h."""

_TYPE_NAMES = ("to", "dtype", "output_dtype")
"""Attributes that select the element type of a node's output (Cast, EyeLike, QuantizeLinear and others)."""


class ForbiddenExternalData(Exception):
    """The model names external data in a way that no program may follow. Never leaves the package."""


def tensors_in(data: Bytes) -> tuple[dict[str, int], set[int], set[str]]:
    """Return the external data locations of all tensors, all element type numbers, and the types of all nodes.

    Each location has the bytes that its file must have for its tensors. The element types are those of tensors and
    casts. Raises `ForbiddenExternalData` for a tensor or a location that
    breaks the rules of this module.
    """
    found: dict[str, int] = {}
    types: set[int] = set()
    operators: set[str] = set()
    # Of each message on the way to the current one, what is left to read: a list of all messages would take a hundred
    # times the size of a file of empty nodes.
    stack: list[tuple[str, int, Iterator[tuple[str, Sequence[Span]]]]] = []
    stack.append(("model", 0, _submessages(data, "model", [(0, len(data))])))
    for _ in range(MAX_MESSAGES):
        while stack and (item := next(stack[-1][2], None)) is None:
            stack.pop()
        if not stack or item is None:
            return found, types, operators
        inner, parts = item
        if inner == "tensor":
            if (outside := _location(data, parts, types)) is not None:
                location, end = outside
                found[location] = max(end, found.get(location, 0))
                _limit(len(found), MAX_LOCATIONS, "locations of external data")
            continue
        depth = stack[-1][1] + (inner == "graph")
        if depth > MAX_SUBGRAPH_DEPTH:
            raise MalformedProtobuf(f"Its graphs are nested more than {MAX_SUBGRAPH_DEPTH} deep")
        if inner == "attribute":
            types |= _selected_type(data, parts)
        if inner == "node":
            operators.add(text_of(data, parts, 4))
            _limit(len(operators), MAX_OPERATORS, "different operators")
        stack.append((inner, depth, _submessages(data, inner, parts)))
    raise MalformedProtobuf(f"It has more than {MAX_MESSAGES} nodes, attributes and tensors")


def _limit(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedProtobuf(f"It has more than {most} {what}")


def _submessages(data: Bytes, kind: str, spans: Sequence[Span]) -> Iterator[tuple[str, Sequence[Span]]]:
    """Yield the messages in a message that can contain tensors, each with its spans."""
    submessages, merging = SUBMESSAGES[kind], _MERGED.get(kind, ())
    several: dict[int, list[Span]] = {}
    for tag, start, stop in merged(data, spans):
        inner = submessages.get(tag)
        if inner is None:
            continue
        if tag in merging:
            append_part(several.setdefault(tag, []), (start, stop))
        else:
            yield inner, ((start, stop),)
    for tag, parts in several.items():
        yield submessages[tag], parts


def _selected_type(data: Bytes, spans: Sequence[Span]) -> set[int]:
    """The element type numbers that an attribute selects; empty if it selects none."""
    numbers = {min(a, UNKNOWN_TYPE) for tag, a, _ in merged(data, spans) if tag == varint_of(3)}
    return numbers if numbers and text_of(data, spans, 1) in _TYPE_NAMES else set()


def _location(data: Bytes, spans: Sequence[Span], types: set[int]) -> tuple[str, int] | None:
    """The location of a tensor's external data and the bytes its file must have for it; None if it has none."""
    external, entries, number = False, list[Span](), 0
    for tag, a, b in merged(data, spans):
        if tag == EXTERNAL_DATA:
            append_part(entries, (a, b))
        elif tag == varint_of(2):
            number = min(a, UNKNOWN_TYPE)
            types.add(number)
        elif tag == varint_of(14) and a & 0xFFFFFFFF < 2:  # protobuf ignores unknown values of a closed enum
            external = a & 0xFFFFFFFF == 1
    if not entries:
        if external:
            raise MalformedProtobuf("A tensor has external data but no location")
        return None
    keys = [text_of(data, [entry], 1) for entry in entries]
    if keys[0] != "location" or keys.count("location") > 1:
        raise ForbiddenExternalData(
            "A tensor has external data whose first entry is not its only location, so that MIGraphX would read"
            " another file than the one named"
        )
    location = text_of(data, entries[:1], 2)
    fault = _invalid_location(location)
    if fault:
        raise ForbiddenExternalData(f"The external data {location!r} {fault}")
    size = prod(dims_of(data, spans)) * _BITS.get(type_name(number), 0)
    stated = {name: _count(data, entry) for name, entry in zip(keys, entries, strict=True) if name in _COUNTS}
    return location, stated.get("offset", 0) + max(stated.get("length", 0), (size + 7) // 8)


def _count(data: Bytes, entry: Span) -> int:
    """The number in an entry of external data."""
    value = text_of(data, [entry], 2)
    if not (value.isascii() and value.isdigit() and len(value) < MAX_DIGITS):
        raise MalformedProtobuf("A tensor has external data with an offset or a length that is no number")
    return int(value)


def forbidden(path: Path, fault: ForbiddenExternalData) -> DamagedError:
    """Return the error for a model that names external data that no program may read."""
    return DamagedError(f"{path} is refused. {fault}.", hint=RESAVE)


RESAVE = "Save the model again with its external data next to it, under a plain relative name."


def external_files(model: OnnxModel, *, follow_links: bool = False) -> tuple[tuple[str, Path], ...]:
    """Return each external data location of the model with its file, in the order of `model.external`.

    Raises `DamagedError` for a location that is absolute, is outside the model's folder, or is not a regular file, for
    a symbolic link that `placed` does not follow, and for a file that is shorter than its tensors.
    """
    found = tuple((location, placed(model.path, location, follow_links=follow_links)) for location in model.external)
    for (location, path), needed in zip(found, model.external_sizes, strict=False):
        if (size := path.stat().st_size) < needed:
            raise _refused(
                model.path,
                location,
                f"has {size} bytes, and the tensors in it need {needed}",
                "It is incomplete: download or copy it again.",
            )
    return found


def check_folder(model: OnnxModel, names: set[str]) -> None:
    """Check that the model's external data are exactly the files `names` in its folder, without symbolic links.

    For programs that read the models of others. Raises `DamagedError`.
    """
    check_names(model, names)
    for name in model.external:
        step = model.path.parent
        for part in name.split("/"):
            step = step / part
            if _is_link(step):
                raise _refused(model.path, name, "is a symbolic link", RESAVE)
    external_files(model)


def check_names(model: OnnxModel, names: set[str]) -> None:
    """Check that the locations in the ONNX file are exactly `names`, those of a manifest. Raises `DamagedError`."""
    differing = sorted(names ^ set(model.external))
    if differing:
        name = differing[0]
        there, lacking = ("ONNX file", "manifest") if name in model.external else ("manifest", "ONNX file")
        raise DamagedError(
            f"The external data {name!r} is in the {there} of this model, but not in its {lacking}.",
            hint="Push the model again. Its ONNX file and its external data must belong together.",
            context={"location": name},
        )


def placed(model: Path, location: str, *, follow_links: bool = False) -> Path:
    """Return the file of one external data location of the model at `model`. Raises `DamagedError`.

    A location that is a symbolic link is followed inside one folder `models--*` of a Hugging Face cache, where models
    and their data are links to files in `blobs`; elsewhere only with `follow_links`.
    """
    folder, place = model.parent, model.parent / location
    fault, hint = _invalid_location(location), RESAVE
    # The owner of the folder creates links, but the author of the model writes the location, and may have packed links
    # too: neither must choose which files are read. So the text of the location must stay inside the folder, and so
    # must each folder on its path after links are resolved.
    if not fault and _is_outside(folder, location):
        fault = "is outside the model's folder (through a link)"
    if not fault and _is_link(place) and not follow_links and not _in_one_hub_folder(folder, place):
        fault = "is a symbolic link"
        hint = f"Replace the link by its file, or add {stated('follow_links')} if you trust this folder."
    if not fault:
        hint = f"Put it into {folder.absolute()}: copy a model together with its external data."
        try:
            if not stat.S_ISREG(place.stat().st_mode):
                fault = "is not a regular file"
        except (FileNotFoundError, NotADirectoryError):
            fault = "is missing"
            if _is_link(place):
                fault = f"is a symbolic link to {place.readlink()}, which does not exist"
                hint = "Download the model again: what the link names was removed."
        except (OSError, ValueError) as error:
            fault = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if fault:
        raise _refused(model, location, fault, hint)
    return place


def _refused(model: Path, location: str, fault: str, hint: str) -> DamagedError:
    return DamagedError(
        f"The external data {location!r} of {model} {fault}.", hint=hint, context={"location": location}
    )


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except OSError:  # the name is too long; reading the file says so
        return False


def _in_one_hub_folder(folder: Path, link: Path) -> bool:
    """Whether a folder and the file that a link in it names are in the same folder `models--*`."""
    home = Path(os.path.realpath(folder))
    hub = next((each for each in (home, *home.parents) if each.name.startswith("models--")), None)
    return hub is not None and Path(os.path.realpath(link)).is_relative_to(hub)


def _is_outside(folder: Path, location: str) -> bool:
    home, step = os.path.realpath(folder), folder
    for part in location.split("/")[:-1]:
        step = step / part
        if not Path(os.path.realpath(step)).is_relative_to(home):
            return True
    return False


def _invalid_location(location: str) -> str:
    """What is wrong with the text of a location; empty if nothing is."""
    if "\0" in location or "\\" in location:
        return "contains a NUL or a backslash"
    if location.startswith("/") or (location[:1].isalpha() and location[1:2] == ":"):
        return "is an absolute path"
    parts = location.split("/")
    if parts[0] == IN_MEMORY:
        return "is an address in memory, not a file"
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return "is outside the model's folder"
    return "does not name a file" if parts[-1] in ("", ".", "..") else ""
