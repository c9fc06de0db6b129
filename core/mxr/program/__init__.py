"""Reading an .mxr without MIGraphX and without a GPU: what it was compiled for, and where to cut it into blobs.

The way of a file: source -> container (the MessagePack walk) -> header and nodes -> code objects (bundle, elf) ->
conclude -> description. Each public name loads its room only when it is asked for, because most commands need none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxr.program.cuts import cut_points, pieces
    from mxr.program.description import Basis, Certainty, Description, Header, Kernels, Sizes
    from mxr.program.reader import describe, describe_file, read_header
    from mxr.program.shapes import Shape
    from mxr.program.source import BytesSource, FileSource, Source, Span

__all__ = [
    "Basis",
    "BytesSource",
    "Certainty",
    "Description",
    "FileSource",
    "Header",
    "Kernels",
    "Shape",
    "Sizes",
    "Source",
    "Span",
    "cut_points",
    "describe",
    "describe_file",
    "pieces",
    "read_header",
]

_ROOMS = {
    **dict.fromkeys(("cut_points", "pieces"), "cuts"),
    **dict.fromkeys(("Description", "Basis", "Header", "Kernels", "Sizes", "Certainty"), "description"),
    **dict.fromkeys(("describe", "describe_file", "read_header"), "reader"),
    "Shape": "shapes",
    **dict.fromkeys(("BytesSource", "FileSource", "Source", "Span"), "source"),
}


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{room}"), name)
