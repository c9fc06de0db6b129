"""Who can compile what: a worker's targets and toolchain against a request, and the qualities of what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxr.artifact.key import Key
from mxr.artifact.matching import Candidate, judge
from mxr.artifact.qualities import LIBRARIES, Demands, Qualities, Request
from mxr.artifact.target import split_version
from mxr.consumers.ort.recording_form import runtime_in
from mxr.host_facts import HostTarget, HostToolchain

from .jobs import WorkerCapabilities


@dataclass(frozen=True, slots=True)
class CompileMethod:
    """How a worker compiles a job: with which of its `can.targets`, and whether for another GPU, which is not there."""

    target: int
    cross: bool = False


def made_by(target: HostTarget, toolchain: HostToolchain, tuning: str = "default") -> Qualities:
    """The qualities of what a worker would compile on this target."""
    gpu = target.kind == "gpu"
    return Qualities(
        sramecc=(gpu and target.sramecc) or "any",
        xnack=(gpu and target.xnack) or "any",
        num_cu=target.num_cu if gpu else None,
        chiplets=target.chiplets if gpu else None,
        rocm_patch=_patch(toolchain.rocm, "rocm", toolchain) if gpu else None,
        migraphx_patch=_patch(toolchain.migraphx, "migraphx", toolchain),
        build=toolchain.migraphx_build,
        tuning=tuning,
        real_arch=target.real_arch if gpu and target.real_arch != target.arch else None,
    )


def made_across(demands: Demands, toolchain: HostToolchain) -> Qualities:
    """The qualities of what a worker would compile for the GPU that these demands describe, without having it.

    Nothing is tuned, and no library is called. Source: MIGraphX documentation (develop), "Cross-Compilation".
    """
    return Qualities(
        num_cu=demands.num_cu,
        chiplets=demands.chiplets,
        rocm_patch=_patch(toolchain.rocm, "rocm", toolchain),
        migraphx_patch=_patch(toolchain.migraphx, "migraphx", toolchain),
        build=toolchain.migraphx_build,
        tuning="cross",
    )


def _patch(version: str | None, name: str, toolchain: HostToolchain) -> str | None:
    return split_version(version, name, zeros=toolchain.vendor == "hygon")[1] if version else None


def able(can: WorkerCapabilities, request: Request) -> CompileMethod | None:
    """The way in which this worker can compile what the request would take; None where there is none.

    The first target that is what the key asks; else, where the request allows it and the worker's library can, a
    cross-compile.
    """
    key, demands = request.key, request.demands
    if not _has(can.toolchain, key) or runtime_in(key.form) != _records(can, key):
        return None
    for index, target in enumerate(can.targets):
        if target.kind != key.kind or (key.kind == "gpu" and (target.vendor, target.arch) != (key.vendor, key.arch)):
            continue
        if serves(demands, target, can.toolchain):
            return CompileMethod(index)
    return _across(can, request) if key.form == "whole" else None


def _records(can: WorkerCapabilities, key: Key) -> str:
    """The ONNX Runtime that comes into play, which has to be the very one: another one gives its files other names."""
    return str(can.ort) if can.ort is not None and key.form != "whole" else ""


def _has(toolchain: HostToolchain, key: Key) -> bool:
    zeros = toolchain.vendor == "hygon"
    wanted: list[tuple[str, str | None, str | None]] = [("migraphx", toolchain.migraphx, key.migraphx)]
    if key.kind == "gpu":
        wanted.append(("rocm", toolchain.rocm, key.rocm))
    return all(has is not None and split_version(has, name, zeros=zeros)[0] == short for name, has, short in wanted)


def _across(can: WorkerCapabilities, request: Request) -> CompileMethod | None:
    """A cross-compile. The GPU must be described: for counts that are not said MIGraphX would take some of its own."""
    key, demands = request.key, request.demands
    if not can.cross or "cross" not in demands.allow or (key.kind, key.vendor) != ("gpu", "amd"):
        return None
    if demands.num_cu is None or demands.chiplets is None:
        return None
    if judge(demands, Candidate("", made_across(demands, can.toolchain))).refused:
        return None
    return next((CompileMethod(at, cross=True) for at, each in enumerate(can.targets) if each.kind == "gpu"), None)


def tuning_for(demands: Demands) -> str:
    """How a job with these demands is tuned when it is compiled on the GPU itself."""
    return demands.tuning if demands.tuning in ("default", "exhaustive") else "default"


def serves(demands: Demands, target: HostTarget, toolchain: HostToolchain, tuning: str | None = None) -> bool:
    """Whether every program that this target and toolchain may make would serve.

    Which libraries the program will call is not known before: it is judged as one that calls them all, so that nothing
    is compiled for hours and refused at the end.
    """
    made = made_by(target, toolchain, tuning or tuning_for(demands))
    made = replace(made, libraries=LIBRARIES if target.kind == "gpu" else ())
    return not judge(demands, Candidate("", made)).refused
