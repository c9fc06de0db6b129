"""What a run of ONNX Runtime has left in its provider's folder: the files that it named for one GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mxr.util import disk

from .hashes import hashed

NAME = re.compile(r"[0-9a-f]{1,8}(-[0-9a-f]{1,16}){2,3}-[0-9a-f]{1,16}\.mxr")


def named(folder: Path) -> list[Path]:
    """The files that have a name of the provider's, in order. Raises a disk fault."""
    with disk.faults(folder, "read"):
        return [path for path in sorted(folder.iterdir()) if NAME.fullmatch(path.name)]


def of_arch(paths: Sequence[Path], arch: str) -> list[Path]:
    """Those that are for a GPU, said in full as HIP has it: gfx942:sramecc+:xnack-."""
    wanted = f"{hashed(arch.encode()):x}"
    return [path for path in paths if wanted in path.name.removesuffix(".mxr").split("-")]


def for_any_shape(path: Path) -> bool:
    """Whether it belongs to a model with open dims, whose file would be loaded for any shape."""
    return path.name.endswith("-0.mxr")
