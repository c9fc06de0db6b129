"""One job on one slot: bring the model, compile, upload, finish; or say why not, in the registry's words."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mxr import transfer, wire, work
from mxr.errors import Conflict, Damaged, Mismatch, MxrError, NotFound
from mxr.fields import canonical
from mxr.manifest import Manifest
from mxr.push import cut
from mxr.waiting import patiently
from mxr.worker_client import WorkerClient
from mxr_workers.compilation import Compiled, Order, Uncompiled, Workshop, compile_program
from mxr_workers.failures import Failure
from mxr_workers.interpreter import Interpreter
from mxr_workers.settings import Settings
from mxr_workers.slots import Slot
from mxr_workers.spool import Spool
from mxr_workers.tending import Tending

PROGRAM = "model.mxr"
CRASHES = 2
"""Attempts after which a job whose compile takes its process down is a poison."""

DISPENSABLE = ("env", "warnings", "verified", "phase_seconds")
"""Parts of a provenance that go, the first first, where it is too long."""

_log = logging.getLogger("mxr-worker")


@dataclass(frozen=True, slots=True)
class Post:
    """Where a slot works. `gpus`: how many this process sees. `leave`: whether the worker must stop at once."""

    slot: Slot
    settings: Settings
    client: WorkerClient
    interpreter: Interpreter
    spool: Spool
    gpus: int
    leave: Callable[[], bool]


def attempt(post: Post, lease: work.Lease) -> Failure | None:
    """Work on a job to its end, and tell the registry; the failure, if any, which may be this worker's own fault."""
    failure: Failure | None = None
    finished: work.Finish | None = None
    with Tending(post.client, lease) as tending:
        try:
            finished = _make(post, lease, tending)
        except Uncompiled as problem:
            failure = problem.failure
        except (MxrError, OSError) as problem:
            # What goes wrong beside the compile (a full disk, a registry that stays away) is no fault of the model.
            failure = Failure("transient", "worker", f"{type(problem).__name__}: {problem}")
        rest = tending.close()
    if tending.stop == "lost":
        _log.warning("job %s: the lease is lost, stopped", lease.job[:12])
        return Failure("transient", "stopped", "The lease was lost.")
    try:
        if finished is not None:
            done = replace(finished, log=rest)
            patiently(lambda: post.client.finish(lease.job, done))
            _log.info("job %s: finished", lease.job[:12])
            return None
        assert failure is not None
        _tell(post, lease, failure, rest, cancelled=tending.stop == "cancelled")
    except (Conflict, NotFound):
        _log.warning("job %s: the lease is lost, nothing was published", lease.job[:12])
    except (Mismatch, Damaged) as problem:
        # The registry has given the job to others: it looked into the program itself.
        _log.error("job %s: the registry refused the program: %s", lease.job[:12], problem.message)
    return failure


def _make(post: Post, lease: work.Lease, tending: Tending) -> work.Finish:
    """The program, made and uploaded. Raises `Uncompiled`, and what moving bytes raises."""
    client, slot = post.client.client, post.slot
    tending.phase("download")
    models = post.spool.model(client, lease)
    calibration = post.spool.calibration(client, lease)
    folder = post.spool.slot(slot.name) / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tuning = work.tuning_for(lease.demands)
    target = slot.can.targets[lease.target]
    order = Order(lease.key, work.made_by(target, slot.can.toolchain, tuning), lease.onnx, calibration)
    shop = Workshop(
        slot.interpreter(post.interpreter, lease.target, post.gpus),
        folder,
        post.settings.limits(tuning),
        post.settings.verify_limits(),
        tending.watch(post.leave),
        slot.problem_cache(post.spool.folder, lease.target),
    )
    compiled = compile_program(order, models, shop)
    tending.phase("upload")
    file = cut(compiled.path, PROGRAM)
    transfer.upload(client, compiled.path, file)
    tending.phase("publish")
    artifact = wire.Publish(lease.key, Manifest((file,)), compiled.qualities, provenance_of(post, lease, compiled))
    return work.Finish(lease.fence, artifact)


def provenance_of(post: Post, lease: work.Lease, compiled: Compiled) -> dict[str, Any]:
    """Where the program comes from, within what the registry keeps of that."""
    target = post.slot.can.targets[lease.target]
    found: dict[str, Any] = {
        "tool": "mxr-worker",
        "worker": post.slot.name,
        "job": lease.job,
        "attempt": lease.attempt,
        "gpu": target.name,
        "partition": target.partition,
        **compiled.provenance,
    }
    for name in DISPENSABLE:
        if len(canonical(found).encode()) <= wire.MOST_PROVENANCE:
            break
        found[name] = "too long to keep"
    return found


def _tell(post: Post, lease: work.Lease, failure: Failure, log: str, *, cancelled: bool) -> None:
    if failure.name == "stopped" and not cancelled:
        _log.info("job %s: handed back", lease.job[:12])
        patiently(lambda: post.client.hand_back(lease.job, lease.fence), 10.0)
        return
    _log.info("job %s: %s: %s", lease.job[:12], failure.name, failure.message)
    failed = work.Fail(lease.fence, work.Failure(kind_for(failure, lease), failure.message, failure.name), log)
    patiently(lambda: post.client.fail(lease.job, failed))


def kind_for(failure: Failure, lease: work.Lease) -> str:
    """The registry's word for a failure. A crash may be the host's once; the second time the job is a poison."""
    if failure.kind == "permanent":
        return work.PERMANENT
    if failure.kind == "poison-suspect" and lease.attempt >= CRASHES:
        return work.POISON
    return work.TRANSIENT
