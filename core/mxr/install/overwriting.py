"""What a command may replace: never a model, never a device, and other people's files only with --force."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from mxr import onnxfile
from mxr.errors import MxrError, WouldOverwriteError
from mxr.facts import stated
from mxr.onnxfile.neighbours import model_with_data
from mxr.util import disk


def refuse_models(paths: Iterable[Path], model_files: Sequence[Path]) -> None:
    """Raise `WouldOverwriteError` if one of these paths is a file of the model, by whatever name or link it is
    reached.
    """
    for path in paths:
        for file in model_files:
            if _is_same(path, file):
                what = "the model itself" if path == file else f"the model's file {file}"
                raise WouldOverwriteError(
                    f"{path} is {what}. Nothing was written.", hint="Give another path with -o, such as -o FOLDER/."
                )


def refuse_forced(path: Path) -> None:
    """Raise `WouldOverwriteError` for what even --force does not replace: a device, a pipe, or a file of an ONNX
    model.
    """
    with disk.faults(path, "read"):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
    if stat.S_ISLNK(mode):
        # A link to nothing is replaced like a file.
        with suppress(OSError):
            mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        raise WouldOverwriteError(
            f"{path} is a device or a pipe. Nothing was written.", hint="Give the path of a file."
        )
    if is_model(path):
        raise WouldOverwriteError(
            f"{path} is an ONNX model, which {stated('force')} does not replace. Nothing was written.",
            hint="Move it away, or give another path.",
        )
    if model := model_with_data(path):
        raise WouldOverwriteError(
            f"{path} is the external data of {model}, which {stated('force')} does not replace. Nothing was written.",
            hint="Move the model and its data away, or give another path.",
        )


def is_model(path: Path) -> bool:
    """Whether a regular file, or what a link leads to, is an ONNX model."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        return bool(onnxfile.read_model(path).outputs)
    except (MxrError, OSError, ValueError):
        return path.suffix == ".onnx"


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
