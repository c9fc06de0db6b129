"""The only file that imports migraphx: what this release supports, and its targets."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from .report import ChildRefusal, ChildReport

QUANTIZERS = {
    "fp16": "quantize_fp16",
    "bf16": "quantize_bf16",
    "int8": "quantize_int8",
    "fp8": "quantize_fp8",
    "int4w": "quantize_int4_weights",
}
"""The migraphx function for each precision. As of 2.16 only migraphx-driver supports int4 weights."""


def import_migraphx() -> Any:
    """Import migraphx. Raises `ChildRefusal` where it is missing or is the empty placeholder package."""
    try:
        import migraphx  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ChildRefusal("transient", "no-migraphx", f"{sys.executable} cannot import migraphx: {error}.") from error
    if not hasattr(migraphx, "parse_onnx"):
        where = getattr(migraphx, "__file__", None) or "an empty folder"
        message = f"The migraphx module of {sys.executable} ({where}) is the placeholder package: it has no parse_onnx."
        raise ChildRefusal("transient", "placeholder", message)
    return migraphx


def import_numpy() -> Any:
    """Import numpy. Raises `ChildRefusal` where it is missing."""
    try:
        import numpy
    except ImportError as error:
        raise ChildRefusal("transient", "no-numpy", f"{sys.executable} cannot import numpy: {error}.") from error
    return numpy


def accepts(function: Any, argument: str) -> bool:
    """Whether a bound function accepts an argument, by the signature in its docstring; True without a signature."""
    text = getattr(function, "__doc__", None) or ""
    return "(" not in text or re.search(rf"[(, *]{re.escape(argument)}\b", text) is not None


def features(migraphx: Any) -> dict[str, bool]:
    """The optional features that this release has."""
    dynamic = accepts(migraphx.parse_onnx, "map_dyn_input_dims") and hasattr(migraphx.shape, "dynamic_dimension")
    return {
        "dynamic_dims": dynamic,
        "exhaustive_tune": accepts(migraphx.program.compile, "exhaustive_tune"),
        "compile_mode": hasattr(migraphx, "compile_modes") and accepts(migraphx.program.compile, "compile_mode"),
        # Requires an explicit signature: without one, a worker must not claim that it can compile for absent GPUs.
        "cross_compile": "**kwargs" in (migraphx.get_target.__doc__ or ""),
        "loop_limit": accepts(migraphx.parse_onnx, "limit_max_iterations"),
        "debug_symbols": accepts(migraphx.parse_onnx, "use_debug_symbols"),
    }


def describe(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Describe this interpreter: versions, features, precisions, and the targets that load."""
    migraphx = import_migraphx()
    version, build = version_of(migraphx)
    targets, refusals = [], {}
    for name in request.get("targets", ["gpu", "ref"]):
        report.phase(f"target {name}")
        try:
            migraphx.get_target(name)
            targets.append(name)
        except Exception as error:
            refusals[name] = str(error)
    return {
        "python": sys.version.split()[0],
        "numpy": import_numpy().__version__,
        "file": getattr(migraphx, "__file__", None),
        "migraphx": version,
        "build": build,
        "features": features(migraphx),
        "precisions": [precision for precision, name in QUANTIZERS.items() if hasattr(migraphx, name)],
        "targets": targets,
        "refusals": refusals,
        "roots": _roots(),
    }


def _roots() -> list[str]:
    """The folders of this interpreter, its packages, and the libraries that it has loaded by now."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    libraries = {line.split(maxsplit=5)[5] for line in lines if line.count("/") and ".so" in line}
    folders = {str(Path(each).parent) for each in libraries if each.startswith("/")}
    modules = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    folders |= {str(Path(each).parent) for each in modules if each}
    folders |= {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path)}
    folders |= {str(Path(sys.executable).parent), str(Path(os.path.realpath(sys.executable)).parent)}
    return sorted(each for each in folders if Path(each).is_absolute() and Path(each).exists())


def version_of(migraphx: Any) -> tuple[str | None, str]:
    """MAJOR.MINOR.PATCH, and the full version text.

    Up to ROCm 6.2 the module's version is only "dev", and the number is read from a file that it saves. Files of 2.0 to
    2.6 do not contain it: the first value is None.
    Source: ROCm/AMDMIGraphX, src/py/migraphx_py.cpp and src/program.cpp.
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


def get_target(migraphx: Any, request: dict[str, Any]) -> Any:
    """The target of the request. With `cross` it is a GPU that this host does not have.

    Raises `ChildRefusal` where this MIGraphX cannot cross-compile.
    """
    cross = request.get("cross")
    if not cross:
        return migraphx.get_target(request["kind"])
    if not features(migraphx)["cross_compile"]:
        raise ChildRefusal("permanent", "no-cross", "This MIGraphX can compile only for the GPUs of its own host.")
    return migraphx.get_target(request["kind"], **cross)


def check_backend_options(names: list[str]) -> None:
    """Raise `ChildRefusal` unless this MIGraphX reads these options of the GPU backend.

    It ignores unknown options without a word, and the program would not be the one that the key describes. A library
    that reads an option contains its name. Call this after `get_target`, which loads the library.
    """
    if not names:
        return
    missing = {"MIGRAPHX_GPU_OPTIONS", *names}
    for path in _mapped_libraries():
        missing -= _names_in(path, missing)
    if missing:
        message = f"This MIGraphX does not read the option {' or '.join(sorted(missing.intersection(names) or names))}."
        raise ChildRefusal("permanent", "no-option", message)


def _names_in(path: Path, names: set[str]) -> set[str]:
    """The names that the bytes of a file contain."""
    found, before = set[str](), b""
    with path.open("rb", buffering=0) as file:
        while part := file.read(4 << 20):
            found |= {name for name in names if name.encode() in before + part}
            before = part[-max(map(len, names), default=0) :]
    return found


def _mapped_libraries() -> list[Path]:
    """MIGraphX's library for GPUs, as far as this process has loaded it."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    found = {line.split(maxsplit=5)[5] for line in lines if "migraphx_gpu" in line}
    return [path for path in map(Path, sorted(found)) if path.name.startswith("libmigraphx_gpu") and path.is_file()]
