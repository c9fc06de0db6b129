"""The environment variables of a child: an allow-list of the worker's, its own folder, and the key's MIGRAPHX_*."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mxr.artifact.compile_settings import backend_options, check_env

ALLOWED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "ROCM_PATH", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
TUNING_PREFIXES = ("HSA_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_")
"""Prefixes of variables that can change the result or the speed of a compile: passed on, and recorded."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def child_environment(
    environ: Mapping[str, str],
    folder: Path,
    migraphx: Mapping[str, str],
    problem_cache: Path | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The complete environment of a child that runs in `folder`; `environ` is the worker's.

    `migraphx` are the key's variables, which are checked here once more: they come from the registry. They never
    replace a variable that the worker sets. The worker's own MIGRAPHX_* are never passed on, because the key does not
    contain them. `options` are the key's, for MIGraphX's GPU backend. Raises `UsageError` for a variable or an option
    that no key may set.
    """
    check_env(migraphx.items())
    found = {name: value for name, value in environ.items() if name in ALLOWED or name.startswith(TUNING_PREFIXES)}
    found.setdefault("PATH", DEFAULT_PATH)
    # NumPy's BLAS starts a thread for each core when it is imported, which count against the limits of the child, and
    # no child multiplies matrices with NumPy.
    own = {"HOME": str(folder), "TMPDIR": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    if problem_cache is not None:
        own["MIGRAPHX_PROBLEM_CACHE"] = str(problem_cache)
    if options:
        own["MIGRAPHX_GPU_OPTIONS"] = backend_options(options)
    return dict(migraphx) | found | own


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child that are recorded in the provenance of its program."""
    names = sorted(
        name for name in environment if name.startswith(TUNING_PREFIXES) or name.endswith("_VISIBLE_DEVICES")
    )
    return {name: environment[name] for name in names}
