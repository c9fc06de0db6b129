"""The one file that imports migraphx: what this release of it offers, and its targets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from .report import ChildRefusal, ChildReport

QUANTISERS = {
    "fp16": "quantize_fp16",
    "bf16": "quantize_bf16",
    "int8": "quantize_int8",
    "fp8": "quantize_fp8",
    "int4w": "quantize_int4_weights",
}
"""The module's function for each precision. As of 2.16 int4 weights are migraphx-driver's alone."""


def library() -> Any:
    """The migraphx module. Raises `Refused` where there is none, or only the empty package of that name."""
    try:
        import migraphx  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ChildRefusal(
            "transient", "no-migraphx", f"{sys.executable} has no migraphx that loads: {error}."
        ) from error
    if not hasattr(migraphx, "parse_onnx"):
        where = getattr(migraphx, "__file__", None) or "an empty folder"
        words = f"The migraphx of {sys.executable} ({where}) is the placeholder package, which is empty: no parse_onnx."
        raise ChildRefusal("transient", "placeholder", words)
    return migraphx


def numpy() -> Any:
    """The numpy module. Raises `Refused` where there is none."""
    try:
        import numpy as found
    except ImportError as error:
        raise ChildRefusal("transient", "no-numpy", f"{sys.executable} has no numpy: {error}.") from error
    return found


def takes(function: Any, name: str) -> bool:
    """Whether a bound function takes this argument, by the signature in its docstring; True where it tells nothing."""
    text = getattr(function, "__doc__", None) or ""
    return "(" not in text or re.search(rf"[(, *]{re.escape(name)}\b", text) is not None


def features(migraphx: Any) -> dict[str, bool]:
    """What this release can do beyond the first."""
    dynamic = takes(migraphx.parse_onnx, "map_dyn_input_dims") and hasattr(migraphx.shape, "dynamic_dimension")
    return {
        "dynamic_dims": dynamic,
        "exhaustive_tune": takes(migraphx.program.compile, "exhaustive_tune"),
        # Told by its signature or not there: a GPU that is not here must not be claimed by mistake.
        "cross_compile": "**kwargs" in (migraphx.get_target.__doc__ or ""),
        "loop_limit": takes(migraphx.parse_onnx, "limit_max_iterations"),
        "debug_symbols": takes(migraphx.parse_onnx, "use_debug_symbols"),
    }


def about(order: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """What this interpreter offers: versions, features, precisions, and which targets load."""
    migraphx = library()
    version, build = version_of(migraphx)
    targets, refusals = [], {}
    for name in order.get("targets", ["gpu", "ref"]):
        report.phase(f"target {name}")
        try:
            migraphx.get_target(name)
            targets.append(name)
        except Exception as error:
            refusals[name] = str(error)
    return {
        "python": sys.version.split()[0],
        "numpy": numpy().__version__,
        "file": getattr(migraphx, "__file__", None),
        "migraphx": version,
        "build": build,
        "features": features(migraphx),
        "precisions": [word for word, call in QUANTISERS.items() if hasattr(migraphx, call)],
        "targets": targets,
        "refusals": refusals,
    }


def version_of(migraphx: Any) -> tuple[str | None, str]:
    """MAJOR.MINOR.PATCH, and the whole text. Up to ROCm 6.2 the module only says "dev", but a file that it saves tells.

    The first is None where its files do not tell either (2.0 to 2.6). Source: ROCm/AMDMIGraphX,
    src/py/migraphx_py.cpp and src/program.cpp.
    """
    text = str(getattr(migraphx, "__version__", "") or "")
    found = re.match(r"\d+\.\d+\.\d+", text)
    if found:
        return found.group(), text
    path = Path("version.mxr")
    migraphx.save(migraphx.program(), str(path))
    with path.open("rb") as stream:
        head = re.search(rb"migraphx_version.(\d+\.\d+\.\d+)", stream.read(4096), re.DOTALL)
    path.unlink()
    return (head.group(1).decode() if head else None), text


def target_of(migraphx: Any, order: dict[str, Any]) -> Any:
    """The target; of a GPU that is not here where the order says so and the library can. Raises `Refused`."""
    cross = order.get("cross")
    if not cross:
        return migraphx.get_target(order["kind"])
    if not features(migraphx)["cross_compile"]:
        raise ChildRefusal("permanent", "no-cross", "This MIGraphX compiles only for the GPU of its own host.")
    return migraphx.get_target(order["kind"], **cross)
