"""External data: where a tensor may hide, the locations that it names, and the files that they are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mxr.errors import Damaged

from .protobuf import Bytes, MalformedProtobuf, fields, message, text_of, varint_of
from .values import OnnxModel

DEEPEST_SUBGRAPH = 64  # graphs within graphs; protobuf's own parsers stop at 100 messages within messages

# Where a tensor may hide: for each message, the fields to go into.
_ROOMS: dict[str, dict[int, str]] = {
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
"""Attributes that choose the element type of what a node makes (Cast, EyeLike, QuantizeLinear and others)."""


def tensors_in(data: Bytes) -> tuple[set[str], set[int]]:
    """The external-data locations of all tensors, and the numbers of the element types of tensors and casts."""
    found: set[str] = set()
    types: set[int] = set()
    waiting = [("model", 0, len(data), 0)]
    while waiting:
        room, at, end, depth = waiting.pop()
        if depth > DEEPEST_SUBGRAPH:
            raise MalformedProtobuf(f"Its graphs lie more than {DEEPEST_SUBGRAPH} deep within each other")
        doors = _ROOMS[room]
        if room == "attribute":
            types |= _chosen(data, at, end)
        for tag, start, stop in fields(data, at, end):
            inner = doors.get(tag)
            if inner == "tensor":
                found |= _locations(data, start, stop, types)
            elif inner:
                waiting.append((inner, start, stop, depth + (inner == "graph")))
    return found, types


def _chosen(data: Bytes, start: int, stop: int) -> set[int]:
    """The element type that an attribute chooses, where it is such an attribute."""
    numbers = {a for tag, a, _ in fields(data, start, stop) if tag == varint_of(3)}
    return numbers if numbers and text_of(data, [(start, stop)], 1) in _TYPE_NAMES else set()


def _locations(data: Bytes, start: int, stop: int, types: set[int]) -> set[str]:
    external, entries = False, []
    for tag, a, b in fields(data, start, stop):
        if tag == message(13):
            entries.append([(a, b)])
        elif tag == varint_of(2):
            types.add(a)
        elif tag == varint_of(14) and a & 0xFFFFFFFF < 2:  # an unknown value of a closed enum changes nothing
            external = a & 0xFFFFFFFF == 1
    if not external:
        return set()
    # Readers differ in which entry they take when there are several, so all of them belong to the model.
    found = {text_of(data, entry, 2) for entry in entries if text_of(data, entry, 1) == "location"}
    if not found:
        raise MalformedProtobuf("It has a tensor with external data and no location")
    return found


def external_files(model: OnnxModel) -> tuple[tuple[str, Path], ...]:
    """Each external-data location of the model with its file, in the order of `model.external`.

    Raises Damaged for a location that is absolute, leaves the model's folder, or names no regular file.
    """
    return tuple((location, placed(model.path, location)) for location in model.external)


def placed(model: Path, location: str) -> Path:
    """The file of one external-data location of the model at `model`. Raises Damaged."""
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
