"""Lanes: partitions of the job queue by required worker, so that a claim reads only jobs that the worker may compile.

A lane consists of the kind, for GPUs vendor and arch, and the short versions: `gpu amd gfx908 2.15 7.2`, `ref 2.16`.
For jobs that record ONNX Runtime's cache files it also names that runtime: `gpu amd gfx908 2.15 7.2 ort:B:1.27.1`.
Lane and constraints of a job alone determine whether a worker can compile it; the result is remembered by a digest.
"""

from __future__ import annotations

import json
import threading

from cachetools import LRUCache, cached

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.target import split_version
from mxr.consumers.ort.recording_form import runtime_in
from mxr.protocol import capabilities
from mxr.protocol.jobs import WorkerCapabilities
from mxr.util.codec import decode, refuse
from mxr_registry.decoding_cache import DecodingCache, digest_of

NO_MODEL = "sha256:" + 64 * "0"


def lane_of(key: Key) -> str:
    """Return the lane of a job with this key."""
    if key.kind == "ref":
        return f"ref {key.migraphx}"
    lane = f"gpu {key.vendor} {key.arch} {key.migraphx} {key.rocm}"
    return lane if key.form == "whole" else f"{lane} ort:{runtime_in(key.form)}"


def _versions(can: WorkerCapabilities) -> tuple[str | None, str | None]:
    """The short versions of MIGraphX and ROCm."""
    has, zeros = can.toolchain, can.toolchain.vendor == "hygon"
    migraphx = split_version(has.migraphx, "migraphx", zeros=zeros)[0] if has.migraphx else None
    return migraphx, split_version(has.rocm, "rocm", zeros=zeros)[0] if has.rocm else None


def lanes_of(can: WorkerCapabilities) -> tuple[str, ...]:
    """Return the lanes from which a worker may claim jobs."""
    migraphx, rocm = _versions(can)
    if migraphx is None:
        return ()
    lanes = []
    for target in can.targets:
        if target.kind == "ref":
            lanes.append(f"ref {migraphx}")
        elif rocm is not None:
            lane = f"gpu {target.vendor} {target.arch} {migraphx} {rocm}"
            lanes += [lane, f"{lane} ort:{can.ort}"] if can.ort is not None else [lane]
    return tuple(dict.fromkeys(lanes))


def cross_lanes_of(can: WorkerCapabilities) -> tuple[str, ...]:
    """Return the lane patterns, with `*` for the arch, for which a worker may cross-compile."""
    if not can.cross:
        return ()
    if not can.targets:
        migraphx, rocm = _versions(can)
        return (f"gpu amd * {migraphx} {rocm}",) if migraphx and rocm else ()
    return tuple(pattern for lane in lanes_of(can) if (pattern := cross_lane(lane)))


def cross_lane(lane: str) -> str | None:
    """Return a lane with `*` for its arch, or None if its jobs cannot be cross-compiled.

    Cross-compiling is possible for whole programs for AMD GPUs only: not for the reference target, for GPUs of another
    vendor, or for ONNX Runtime.
    """
    parts = lane.split()
    return " ".join([*parts[:2], "*", *parts[3:]]) if parts[:2] == ["gpu", "amd"] and len(parts) == 5 else None


def key_of(lane: str) -> Key:
    """Return a key with the target and versions of a lane, and placeholders for the other fields."""
    parts = lane.split()
    if parts[0] == "ref":
        return Key(NO_MODEL, "ref", parts[1], ())
    form = parts[5] if len(parts) > 5 else "whole"
    return Key(NO_MODEL, "gpu", parts[3], (), vendor=parts[1], arch=parts[2], rocm=parts[4], form=form)


MAX_CACHED = 1 << 20
"""Bytes of the texts in each cache of this module."""

MAX_METHODS = 65_536
"""Remembered answers of `compile_method`: each a digest and a small value."""

_CAPABILITIES = DecodingCache(lambda text: decode(WorkerCapabilities, json.loads(text), lenient=True), MAX_CACHED)
_CONSTRAINTS = DecodingCache(lambda text: decode(Constraints, json.loads(text), lenient=True), MAX_CACHED)


def capabilities_of(text: str) -> WorkerCapabilities:
    """Decode the capabilities of a worker from JSON."""
    return _CAPABILITIES.get(text.encode())


def constraints_of(text: str) -> Constraints:
    """Decode the constraints of a job from JSON."""
    return _CONSTRAINTS.get(text.encode())


def request_of(lane: str, constraints: Constraints) -> Request:
    """Return a request with target and versions of a lane, these constraints, and placeholders for other fields."""
    return Request(key_of(lane), constraints)


@cached(
    LRUCache(MAX_METHODS),
    lambda can, lane, constraints: digest_of(can.encode(), lane.encode(), constraints.encode()),
    threading.Lock(),
)
def compile_method(can: str, lane: str, constraints: str) -> capabilities.CompileMethod | None:
    """Return how a worker compiles a job with this lane and constraints, or None if it cannot.

    `can` and `constraints` are the JSON of the worker's capabilities and of the job's constraints. The answer is
    remembered by a digest: a worker looks at the same jobs again and again.
    """
    return capabilities.able(capabilities_of(can), request_of(lane, constraints_of(constraints)))


def expected_attributes(
    can: WorkerCapabilities, method: capabilities.CompileMethod, key: Key, constraints: Constraints
) -> Attributes:
    """Return the attributes of the program that a worker makes with this method for such a job."""
    if method.cross:
        return capabilities.made_across(capabilities.whole_gpu(key, constraints), can.toolchain)
    return capabilities.made_by(can.targets[method.target], can.toolchain, capabilities.tuning_for(constraints))


def check_capabilities(can: WorkerCapabilities, where: str = "can") -> None:
    """Check that every target and version is valid. Raises `UsageError`."""
    for target in can.targets:
        if target.kind not in ("gpu", "ref"):
            raise refuse(f"{where}.targets.kind", "gpu or ref", target.kind)
        if target.kind == "gpu":
            Key(NO_MODEL, "gpu", "1.0", (), vendor=target.vendor, arch=target.arch, rocm="1.0")
        capabilities.made_by(target, can.toolchain)
    lanes_of(can)
