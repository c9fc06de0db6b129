"""Find the model to whose external data a file belongs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mxr.errors import MxrError

from .reader import read_model

MAX_LEVELS = 3
"""Folders above a file in which models that name it as external data are looked for."""


def model_with_data(path: Path, besides: Collection[Path] = ()) -> Path | None:
    """Return an ONNX file, none of those in `besides`, that names `path` as its external data, or None.

    Looks for files `*.onnx` in the folder of `path` and in `MAX_LEVELS` folders above it.
    """
    folder = path.absolute().parent
    for above in (folder, *folder.parents)[: MAX_LEVELS + 1]:
        for onnx in sorted(above.glob("*.onnx")):
            if any(_is_same(onnx, each) for each in besides):
                continue
            if any(_is_same(above / location, path) for location in _locations(onnx)):
                return onnx
    return None


def _locations(onnx: Path) -> tuple[str, ...]:
    """The external data of an ONNX file; empty for a file that no program may read."""
    try:
        return read_model(onnx).external if onnx.is_file() else ()
    except (MxrError, OSError):
        return ()


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False
