"""Lanes: what of a request the database can choose by, so that a claim looks only at jobs that a worker may do.

A lane is the kind, and for a GPU vendor and arch, with the short versions: `gpu amd gfx908 2.15 7.2`, `ref 2.16`.
One of jobs that record ONNX Runtime's files names that too: `gpu amd gfx908 2.15 7.2 ort:B:1.27.1`.
Whether a worker can do a job follows from the job's lane and demands alone, and is worked out once for equal ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from mxr.artifact.key import Key
from mxr.artifact.qualities import Demands, Qualities, Request
from mxr.artifact.target import split_version
from mxr.consumers.ort.recording_form import runtime_in
from mxr.protocol import capabilities
from mxr.protocol.jobs import WorkerCapabilities
from mxr.util.codec import decode, refuse

NO_MODEL = "xxh3:" + 32 * "0"


def lane_of(key: Key) -> str:
    """The lane of a job."""
    if key.kind == "ref":
        return f"ref {key.migraphx}"
    lane = f"gpu {key.vendor} {key.arch} {key.migraphx} {key.rocm}"
    return lane if key.form == "whole" else f"{lane} ort:{runtime_in(key.form)}"


def lanes_of(can: WorkerCapabilities) -> tuple[str, ...]:
    """The lanes that a worker may look at."""
    zeros = can.toolchain.vendor == "hygon"
    if can.toolchain.migraphx is None:
        return ()
    migraphx = split_version(can.toolchain.migraphx, "migraphx", zeros=zeros)[0]
    rocm = split_version(can.toolchain.rocm, "rocm", zeros=zeros)[0] if can.toolchain.rocm else None
    found = []
    for target in can.targets:
        if target.kind == "ref":
            found.append(f"ref {migraphx}")
        elif rocm is not None:
            lane = f"gpu {target.vendor} {target.arch} {migraphx} {rocm}"
            found += [lane, f"{lane} ort:{can.ort}"] if can.ort is not None else [lane]
    return tuple(dict.fromkeys(found))


def wide_of(can: WorkerCapabilities) -> tuple[str, ...]:
    """What stands for the lanes of all archs for which a worker may cross-compile: a lane with `*` for the arch."""
    return tuple(wide for lane in lanes_of(can) if (wide := widened(lane))) if can.cross else ()


def widened(lane: str) -> str | None:
    """A lane with `*` for its arch; None where nobody compiles across: for the reference target, for another vendor's
    GPUs, for ONNX Runtime.
    """
    words = lane.split()
    return " ".join([*words[:2], "*", *words[3:]]) if words[:2] == ["gpu", "amd"] and len(words) == 5 else None


def key_in(lane: str) -> Key:
    """A key of this lane, with nothing else in it."""
    words = lane.split()
    if words[0] == "ref":
        return Key(NO_MODEL, "ref", words[1], ())
    form = words[5] if len(words) > 5 else "whole"
    return Key(NO_MODEL, "gpu", words[3], (), vendor=words[1], arch=words[2], rocm=words[4], form=form)


@lru_cache(maxsize=4_096)
def can_of(text: str) -> WorkerCapabilities:
    """What a worker can do, from its JSON."""
    return decode(WorkerCapabilities, json.loads(text), lenient=True)


@lru_cache(maxsize=4_096)
def demands_of(text: str) -> Demands:
    """A job's demands, from their JSON."""
    return decode(Demands, json.loads(text), lenient=True)


@lru_cache(maxsize=65_536)
def fitting(can: str, lane: str, demands: str) -> capabilities.CompileMethod | None:
    """The way in which what `can` says can do a job of this lane and demands; None where there is none."""
    return capabilities.able(can_of(can), Request(key_in(lane), demands_of(demands)))


def directly(cans: Iterable[str], lane: str, demands: str) -> bool:
    """Whether one of these can do a job of this lane and demands on the GPU itself."""
    return any((way := fitting(can, lane, demands)) is not None and not way.cross for can in cans)


def pinned(can: WorkerCapabilities, way: capabilities.CompileMethod, demands: Demands) -> Qualities:
    """The qualities of what comes of a job with these demands on this way of a worker."""
    if way.cross:
        return capabilities.made_across(demands, can.toolchain)
    return capabilities.made_by(can.targets[way.target], can.toolchain, capabilities.tuning_for(demands))


def check_can(can: WorkerCapabilities, where: str = "can") -> None:
    """Returns when every target and version in it can be read. Raises `Usage`."""
    for target in can.targets:
        if target.kind not in ("gpu", "ref"):
            raise refuse(f"{where}.targets.kind", "gpu or ref", target.kind)
        if target.kind == "gpu":
            Key(NO_MODEL, "gpu", "1.0", (), vendor=target.vendor, arch=target.arch, rocm="1.0")
        capabilities.made_by(target, can.toolchain)
    lanes_of(can)
