"""Finds the external data of a model: the tensors that have any, their locations and the files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mxr.errors import Damaged

from .protobuf import Bytes, MalformedProtobuf, fields, message, text_of, varint_of
from .values import OnnxModel

DEEPEST_SUBGRAPH = 64
"""Maximum nesting depth of graphs. Protobuf's own parsers stop at 100 nested messages."""

# By message: the fields whose messages can contain tensors.
_SUBMESSAGES: dict[str, dict[int, str]] = {
    "model": {message(7): "graph", message(20): "training", message(25): "function"},
    "training": {message(1): "graph", message(2): "graph"},
    "function": {message(7): "node", message(11): "attribute"},
    "graph": {message(1): "node", message(5): "tensor", message(15): "sparse"},
    "node": {message(5): "attribute"},
    "attribute": {message(5): "tensor", message(10): "tensor", message(6): "graph", message(11): "graph"}
    | {message(22): "sparse", message(23): "sparse"},
    "sparse": {message(1): "tensor", message(2): "tensor"},
}

_TYPE_NAMES = ("to", "dtype", "output_dtype")
"""Attributes that select the element type of a node's output (Cast, EyeLike, QuantizeLinear and others)."""


def tensors_in(data: Bytes) -> tuple[set[str], set[int]]:
    """Return the external data locations of all tensors, and the element type numbers of all tensors and casts."""
    found: set[str] = set()
    types: set[int] = set()
    waiting = [("model", 0, len(data), 0)]
    while waiting:
        kind, at, end, depth = waiting.pop()
        if depth > DEEPEST_SUBGRAPH:
            raise MalformedProtobuf(f"Its graphs are nested more than {DEEPEST_SUBGRAPH} deep")
        submessages = _SUBMESSAGES[kind]
        if kind == "attribute":
            types |= _selected_type(data, at, end)
        for tag, start, stop in fields(data, at, end):
            inner = submessages.get(tag)
            if inner == "tensor":
                found |= _locations(data, start, stop, types)
            elif inner:
                waiting.append((inner, start, stop, depth + (inner == "graph")))
    return found, types


def _selected_type(data: Bytes, start: int, stop: int) -> set[int]:
    """The element type number that an attribute selects; empty if it selects none."""
    numbers = {a for tag, a, _ in fields(data, start, stop) if tag == varint_of(3)}
    return numbers if numbers and text_of(data, [(start, stop)], 1) in _TYPE_NAMES else set()


def _locations(data: Bytes, start: int, stop: int, types: set[int]) -> set[str]:
    external, entries = False, []
    for tag, a, b in fields(data, start, stop):
        if tag == message(13):
            entries.append([(a, b)])
        elif tag == varint_of(2):
            types.add(a)
        elif tag == varint_of(14) and a & 0xFFFFFFFF < 2:  # protobuf ignores unknown values of a closed enum
            external = a & 0xFFFFFFFF == 1
    if not external:
        return set()
    # If there are several location entries, readers differ in which one they use. All of them belong to the model.
    found = {text_of(data, entry, 2) for entry in entries if text_of(data, entry, 1) == "location"}
    if not found:
        raise MalformedProtobuf("A tensor has external data but no location")
    return found


def external_files(model: OnnxModel) -> tuple[tuple[str, Path], ...]:
    """Return each external data location of the model with its file, in the order of `model.external`.

    Raises `Damaged` for a location that is absolute, is outside the model's folder, or is not a regular file.
    """
    return tuple((location, placed(model.path, location)) for location in model.external)


def placed(model: Path, location: str) -> Path:
    """Return the file of one external data location of the model at `model`. Raises `Damaged`."""
    folder, place = model.parent, model.parent / location
    fault = _invalid_location(location)
    hint = "Save the model again with its external data next to it, under a plain relative name."
    # The location is resolved relative to the given path of the model. The data file itself may be a link to anywhere:
    # in a Hugging Face cache both model.onnx and model.onnx_data are links into ../../blobs. The owner of the folder
    # creates such a link, but the author of the model writes the location, and the author must not choose which files
    # are read. So the text of the location must stay inside the folder, and so must each folder on its path after
    # links are resolved.
    if not fault and _is_outside(folder, location):
        fault = "is outside the model's folder (through a link)"
    if not fault:
        hint = f"Put it into {folder.absolute()}: copy a model together with its external data."
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
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return "is outside the model's folder"
    return "does not name a file" if parts[-1] in ("", ".", "..") else ""
