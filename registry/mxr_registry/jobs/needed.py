"""Which worker a request needs, in words, where none that is live and no declared pool can compile it."""

from __future__ import annotations

from collections.abc import Collection

from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.products import described
from mxr.artifact.target import GfxArch, userland
from mxr.consumers.ort.recording_form import runtime_in
from mxr.display.text import printable
from mxr.errors import NoWorkerError
from mxr.protocol import capabilities
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Row, Session

from . import askers
from .live_capabilities import LiveCapabilities


def needed_worker(session: Session, rules: JobRules, job: Row) -> str | None:
    """Describe the worker that a queued job needs, or return None if a live worker or declared pool can compile it."""
    constraints, asked = lanes.constraints_of(job.constraints_json), askers.principals_of(session, job.seq)
    live = LiveCapabilities(session, rules, job.namespace, asked)
    if any(live.able(job.lane, constraints)):
        return None
    return _needed(lanes.key_of(job.lane), constraints) + _trusting(live, job.lane, constraints, asked)


def _trusting(live: LiveCapabilities, lane: str, constraints: Constraints, asked: Collection[str]) -> str:
    """What else a worker needs, where those that could compile this take no jobs of who asked."""
    if not any(live.able(lane, constraints, trusting=False)):
        return ""
    named = " or ".join(printable(each) for each in sorted(asked)[:3])
    return f", behind walls that hold, or one that trusts {named}"


def no_worker_error(request: Request, live: LiveCapabilities | None = None, asker: str = "") -> NoWorkerError:
    """Return the error for a request that no worker can compile. It describes the worker that is needed.

    `live`: the workers, of which some may be able to, and take no jobs of the `asker`.
    """
    key, constraints = request.key, request.constraints
    more = _trusting(live, lanes.lane_of(key), constraints, {asker}) if live else ""
    return NoWorkerError(
        f"No live worker and no declared pool can compile this: it needs {_needed(key, constraints)}{more}.",
        hint=_hint(key, constraints),
        context={
            "needed": request.to_json()["constraints"]
            | {
                "lane": lanes.lane_of(key),
                "kind": key.kind,
                "form": key.form,
                "complete": _is_complete(key, constraints),
                "products": described(key.arch),
            }
        },
    )


def _needed(key: Key, constraints: Constraints) -> str:
    migraphx = constraints.migraphx_patch or key.migraphx
    if key.kind == "ref":
        return f"a worker for the ref target with MIGraphX {migraphx}"
    counted = ((constraints.num_cu, "CUs"), (constraints.chiplets, "chiplets"))
    counts = "".join(f", {count} {unit}" for count, unit in counted if count)
    arch = GfxArch.of(key.arch, constraints)
    return (
        f"a worker for gpu {'' if key.vendor == 'amd' else f'{key.vendor} '}{arch}{counts}"
        f"{f' (a {constraints.real_arch} that reports this arch)' if constraints.real_arch else ''}, with "
        f"{userland(key.vendor)} {constraints.rocm_patch or key.rocm} and MIGraphX {migraphx}{_with_runtime(key)}"
    )


def _with_runtime(key: Key) -> str:
    if key.form == "whole":
        return ""
    generation, version = runtime_in(key.form).split(":")
    return f", and onnxruntime-migraphx {version} (generation {generation}) in its Python interpreter"


def _is_complete(key: Key, constraints: Constraints) -> bool:
    """Whether a cross-compile knows the whole GPU, if one is wanted."""
    known = capabilities.whole_gpu(key, constraints)
    return "cross" not in constraints.allow or None not in (known.num_cu, known.chiplets)


def _hint(key: Key, constraints: Constraints) -> str:
    if not _is_complete(key, constraints):
        wanted = "A cross-compile needs a complete description of the GPU: state num_cu and chiplets as well."
        return f"{wanted} {described(key.arch)}".rstrip()
    hint = (
        "Start a worker (`mxr-worker run`) on such a host, or request it without `require_worker`, so that "
        "it is queued. `GET /v1/workers` lists the workers."
    )
    if constraints.rocm_patch and "patch" not in constraints.allow:
        hint += " The allowance `patch` accepts another ROCm patch version."
    return hint
