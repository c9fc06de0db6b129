"""Decides which requests a worker can compile, and which attributes the compiled program has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mxr.artifact.attributes import COUNTS, HARDWARE, LIBRARIES, Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.matching import satisfies
from mxr.artifact.products import only_counts, products_of
from mxr.artifact.target import split_version
from mxr.consumers.ort.recording_form import runtime_in
from mxr.host_facts import HostTarget, HostToolchain

from .jobs import WorkerCapabilities


@dataclass(frozen=True, slots=True)
class CompileMethod:
    """How a worker compiles a job: the index in its `can.targets`, and whether it cross-compiles for another GPU.

    The index means nothing for a cross-compile on a host without targets.
    """

    target: int
    cross: bool = False


def made_by(target: HostTarget, toolchain: HostToolchain, tuning: str = "default") -> Attributes:
    """Return the attributes of a program that a worker compiles on this target."""
    gpu = target.kind == "gpu"
    known = {name: each for name in HARDWARE if gpu and (each := getattr(target, name)) is not None}
    real = target.real_arch if gpu and target.real_arch != target.arch else None
    return Attributes(**known, **_versions(toolchain, rocm=gpu), tuning=tuning, real_arch=real)


def made_across(constraints: Constraints, toolchain: HostToolchain) -> Attributes:
    """Return the attributes of a program that a worker cross-compiles for the GPU that these constraints describe.

    A cross-compiled program is not tuned and calls no libraries.
    Source: MIGraphX documentation (develop), "Cross-Compilation".
    """
    counts = {name: getattr(constraints, name) for name in COUNTS}
    return Attributes(**counts, **_versions(toolchain), tuning="cross")


def _versions(toolchain: HostToolchain, *, rocm: bool = True) -> dict[str, Any]:
    zeros, found = toolchain.vendor == "hygon", dict[str, Any](build=toolchain.migraphx_build)
    for name in ("rocm", "migraphx") if rocm else ("migraphx",):
        version = getattr(toolchain, name)
        found[f"{name}_patch"] = split_version(version, name, zeros=zeros)[1] if version else None
    return found


def able(can: WorkerCapabilities, request: Request) -> CompileMethod | None:
    """Return how this worker can compile a program for the request; None if it cannot.

    Chooses the first target that matches the key; otherwise a cross-compile, if the request allows it and the worker
    supports it.
    """
    key, constraints = request.key, request.constraints
    if not _has(can.toolchain, key) or runtime_in(key.form) != _records(can, key):
        return None
    eager = tuning_for(constraints) == "eager"
    if eager and not (can.eager and key.form == "whole"):
        return None
    for index, target in enumerate(can.targets):
        if target.kind != key.kind or (key.kind == "gpu" and (target.vendor, target.arch) != (key.vendor, key.arch)):
            continue
        if serves(constraints, target, can.toolchain):
            return CompileMethod(index)
    return _across(can, request) if key.form == "whole" else None


def _records(can: WorkerCapabilities, key: Key) -> str:
    """Return the ONNX Runtime that would record the files. It must match exactly: the file names depend on it."""
    return str(can.ort) if can.ort is not None and key.form != "whole" else ""


def _has(toolchain: HostToolchain, key: Key) -> bool:
    zeros = toolchain.vendor == "hygon"
    wanted: list[tuple[str, str | None, str | None]] = [("migraphx", toolchain.migraphx, key.migraphx)]
    if key.kind == "gpu":
        wanted.append(("rocm", toolchain.rocm, key.rocm))
    return all(has is not None and split_version(has, name, zeros=zeros)[0] == short for name, has, short in wanted)


def _across(can: WorkerCapabilities, request: Request) -> CompileMethod | None:
    """Return a cross-compile. Requires the counts of the GPU, for which MIGraphX would otherwise use defaults."""
    key, constraints = request.key, request.constraints
    if not can.cross or "cross" not in constraints.allow or (key.kind, key.vendor) != ("gpu", "amd"):
        return None
    constraints = whole_gpu(key, constraints)
    if constraints.num_cu is None or constraints.chiplets is None:
        return None
    if can.cross_for and key.arch not in can.cross_for:
        return None
    if not satisfies(constraints, made_across(constraints, can.toolchain)):
        return None
    if not can.targets:
        return CompileMethod(0, cross=True)
    return next((CompileMethod(at, cross=True) for at, each in enumerate(can.targets) if each.kind == "gpu"), None)


def whole_gpu(key: Key, constraints: Constraints) -> Constraints:
    """Return the constraints of a cross-compile with both counts, where the products with this arch leave no choice."""
    known = ((each.num_cu, each.chiplets) for each in products_of(key.arch))
    found = only_counts(known, constraints.num_cu, constraints.chiplets)
    return replace(constraints, num_cu=found[0], chiplets=found[1]) if found else constraints


def tuning_for(constraints: Constraints) -> str:
    """Return the tuning of a job with these constraints that is compiled on the GPU itself."""
    return constraints.tuning if constraints.tuning in ("eager", "default", "exhaustive") else "default"


def serves(constraints: Constraints, target: HostTarget, toolchain: HostToolchain, tuning: str | None = None) -> bool:
    """Return whether every program that this target and toolchain can produce satisfies the constraints.

    The libraries that a program calls are unknown before the compile. This assumes all of them, so that no program is
    compiled for hours and then refused.
    """
    made = made_by(target, toolchain, tuning or tuning_for(constraints))
    return satisfies(constraints, replace(made, libraries=LIBRARIES if target.kind == "gpu" else ()))
