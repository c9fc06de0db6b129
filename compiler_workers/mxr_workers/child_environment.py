"""What a child sees of its worker's environment: an allow-list, its own folder, and the key's MIGRAPHX_* alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "ROCM_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
TUNING = ("HSA_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_")
"""Variables by their beginning that may change what a compile makes, or how fast that is: kept, and recorded."""

USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


def child_environment(
    outer: Mapping[str, str], folder: Path, migraphx: Mapping[str, str], problem_cache: Path | None = None
) -> dict[str, str]:
    """The whole environment of a child that lives in `folder`.

    `migraphx` are the key's variables. A MIGRAPHX_* of the worker never comes through, as the key would not tell of it.
    """
    found = {name: value for name, value in outer.items() if name in KEPT or name.startswith(TUNING)}
    found.setdefault("PATH", USUAL_PATH)
    if problem_cache is not None:
        found["MIGRAPHX_PROBLEM_CACHE"] = str(problem_cache)
    return found | dict(migraphx) | {"HOME": str(folder), "TMPDIR": str(folder)}


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a child's environment that belongs to the provenance of what it made."""
    names = sorted(name for name in environment if name.startswith(TUNING) or name.endswith("_VISIBLE_DEVICES"))
    return {name: environment[name] for name in names}
