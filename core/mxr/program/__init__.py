"""Reads .mxr files without MIGraphX and without a GPU: what a program was compiled for, and where to cut it into blobs.

Data flow: source -> container (MessagePack) -> header and nodes -> code objects (bundle, elf) -> derivation ->
description. The package imports a submodule only when one of its names is used, because most commands use none.
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

_MODULE_OF = {
    **dict.fromkeys(("cut_points", "pieces"), "cuts"),
    **dict.fromkeys(("Description", "Basis", "Header", "Kernels", "Sizes", "Certainty"), "description"),
    **dict.fromkeys(("describe", "describe_file", "read_header"), "reader"),
    "Shape": "shapes",
    **dict.fromkeys(("BytesSource", "FileSource", "Source", "Span"), "source"),
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
