"""The error of a program whose Python packages were not all installed with it."""

from __future__ import annotations

from mxr.errors import MxrError, Usage


def missing_package(program: str, problem: ModuleNotFoundError, extra: str = "") -> MxrError | None:
    """Return the error that says what to install, or None if a module of this project is missing, which is a bug.

    `extra`: the optional dependencies in pyproject.toml that the program needs.
    """
    name = (problem.name or "").partition(".")[0]
    if not name or name == "mxr" or name.startswith("mxr_"):
        return None
    what = f"'.[{extra}]'" if extra else "."
    wheel = f"'FILE.whl[{extra}]'" if extra else "FILE.whl"
    return Usage(
        f"{program} needs the Python package {name}, which is not installed.",
        hint=f"Install it with its packages: `pip install {what}` in the checkout, or `pip install {wheel}`.",
    )
