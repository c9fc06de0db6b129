"""Finds the files that a run of ONNX Runtime left in the folder of its provider."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mxr.util import disk

from .hashes import hashed

NAME = re.compile(r"[0-9a-f]{1,8}(-[0-9a-f]{1,16}){2,3}-[0-9a-f]{1,16}\.mxr")


def named(folder: Path) -> list[Path]:
    """The files with a name of the provider, sorted. Raises a disk fault."""
    with disk.faults(folder, "read"):
        return [path for path in sorted(folder.iterdir()) if NAME.fullmatch(path.name)]


def of_arch(paths: Sequence[Path], arch: str) -> list[Path]:
    """The files for one GPU; `arch` is its full name in HIP's notation: gfx942:sramecc+:xnack-."""
    wanted = f"{hashed(arch.encode()):x}"
    return [path for path in paths if wanted in path.name.removesuffix(".mxr").split("-")]


def for_any_shape(path: Path) -> bool:
    """Whether a file belongs to a model with open dims: the provider would load it for any shape."""
    return path.name.endswith("-0.mxr")
