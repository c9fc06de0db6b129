"""One job on one slot: bring the model, compile, upload, finish; or say why not, in the registry's words."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxr.artifact.manifest import File, Manifest
from mxr.client import transfer
from mxr.client.worker import WorkerClient
from mxr.errors import Conflict, Damaged, Interrupted, Mismatch, MxrError, NoSuchBlob, NotFound
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical
from mxr.workflows.compile import patiently
from mxr.workflows.push import cut
from mxr_workers.compilation import Compiled, CompileEnvironment, CompileTask, Uncompiled, compile_program
from mxr_workers.failures import CompileFailure
from mxr_workers.interpreter import Interpreter
from mxr_workers.sandbox import ChildObserver
from mxr_workers.settings import WorkerSettings
from mxr_workers.slots import CompileSlot
from mxr_workers.spool import Spool

from .heartbeat import LeaseHeartbeat
from .ort_recording import RecordedFiles, RecordingTask, record

PROGRAM = "model.mxr"
CRASHES = 2
"""Attempts after which a job whose compile takes its process down is a poison."""

BRIEF, LOYAL = 60.0, 3600.0
"""Seconds for which a registry may be away: before the compile, and once there is something to tell that took hours.

Meanwhile the lease either goes on, or another worker has it, which the registry's first answer tells.
"""

DISPENSABLE = ("env", "warnings", "verified", "phase_seconds")
"""Parts of a provenance that go, the first first, where it is too long."""

_log = logging.getLogger("mxr-worker")


@dataclass(frozen=True, slots=True)
class SlotContext:
    """Where a slot works. `gpus`: how many this process sees. `leave`: whether the worker must stop at once."""

    slot: CompileSlot
    settings: WorkerSettings
    client: WorkerClient
    interpreter: Interpreter
    spool: Spool
    gpus: int
    leave: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class PublishedPrograms:
    """Programs whose bytes the registry has, and the words that publish them together."""

    files: tuple[tuple[Path, File], ...]
    finish: job_protocol.FinishJob


def attempt(post: SlotContext, lease: job_protocol.Lease) -> CompileFailure | None:
    """Work on a job to its end, and tell the registry; the failure, if any, which may be this worker's own fault."""
    outcome: PublishedPrograms | CompileFailure
    with post.spool.keeping(lease), LeaseHeartbeat(post.client.hurried(lease.seconds / 3), lease) as tending:
        try:
            outcome = _make(post, lease, tending)
        except Uncompiled as problem:
            outcome = problem.failure
        except (MxrError, OSError) as problem:
            # What goes wrong beside the compile (a full disk, a registry that stays away) is no fault of the model.
            outcome = CompileFailure("transient", "worker", f"{type(problem).__name__}: {problem}")
        except Exception as problem:
            # A model that brings a worker itself into trouble must not bring down one after the other.
            _log.exception("job %s: a fault of mxr-worker", lease.job[:12])
            outcome = CompileFailure(
                "poison-suspect", "worker-fault", f"mxr-worker: {type(problem).__name__}: {problem}"
            )
        rest = tending.close()
    if tending.stop == "lost":
        _log.warning("job %s: the lease is lost, stopped", lease.job[:12])
        return CompileFailure("transient", "stopped", "The lease was lost.")
    return _report(post, lease, outcome, rest, cancelled=tending.stop == "cancelled")


def _report(
    post: SlotContext,
    lease: job_protocol.Lease,
    outcome: PublishedPrograms | CompileFailure,
    log: str,
    *,
    cancelled: bool,
) -> CompileFailure | None:
    """Tell the registry how it ended. What goes wrong here ends the job for this worker, never the worker."""
    try:
        if isinstance(outcome, CompileFailure):
            _tell(post, lease, outcome, log, cancelled=cancelled)
            return outcome
        _finish(post, lease, outcome, log)
        return None
    except (Conflict, NotFound) as problem:
        _log.warning("job %s: the lease is lost, nothing was published: %s", lease.job[:12], problem.message)
        return CompileFailure("transient", "stopped", "The lease was lost.")
    except (Mismatch, Damaged) as problem:
        # The registry has given the job to others: it looked into the program itself.
        _log.error("job %s: the registry refused the program: %s", lease.job[:12], problem.message)
    except MxrError as problem:
        # Untold, its lease runs out, and the job is another worker's.
        _log.error("job %s: the registry could not be told how it ended: %s", lease.job[:12], problem.message)
    return CompileFailure("transient", "worker", "The registry did not take what came of it.")


def _make(post: SlotContext, lease: job_protocol.Lease, tending: LeaseHeartbeat) -> PublishedPrograms:
    """The program, or all that ONNX Runtime wrote; made and uploaded. Raises `Uncompiled`, what moving bytes raises."""
    client, slot = post.client.client, post.slot
    watch = tending.watch(post.leave)
    tending.phase("download")
    models, calibration = patiently(lambda: post.spool.bring(client, lease, _going_on(watch)), BRIEF, leave=watch.stop)
    folder = post.spool.slot(slot.name) / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    order = order_of(post, lease, calibration)
    shop = CompileEnvironment(
        slot.interpreter(post.interpreter, lease.target, post.gpus),
        folder,
        post.settings.limits(order.qualities.tuning),
        post.settings.verify_limits(),
        watch,
        None if lease.cross else slot.problem_cache(post.spool.folder, lease.target),
    )
    made: Compiled | RecordedFiles
    if lease.key.form == "whole":
        made = compile_program(order, models, shop)
        named = {PROGRAM: made.path}
    else:
        opening = RecordingTask(lease.file_name, tuple(file.name for file in lease.model.files))
        made = record(order, opening, models, shop)
        named = {path.name: path for path in made.paths}
    tending.phase("upload")
    files = tuple((path, cut(path, name)) for name, path in named.items())
    _upload(post, lease, files, watch.stop)
    tending.phase("publish")
    manifest = Manifest(tuple(file for _, file in files))
    artifact = artifact_protocol.Publish(
        lease.key, manifest, made.qualities, provenance_of(post, lease, made.provenance)
    )
    return PublishedPrograms(files, job_protocol.FinishJob(lease.fence, artifact))


def _going_on(watch: ChildObserver) -> transfer.Progress:
    """Breaks off a transfer that is no longer wanted: of a large model it may go on for long."""

    def check(_: int) -> None:
        if watch.stop():
            raise Interrupted("The worker stopped while it fetched the model.")

    return check


def _upload(
    post: SlotContext, lease: job_protocol.Lease, files: tuple[tuple[Path, File], ...], leave: Callable[[], bool]
) -> None:
    def upload() -> None:
        for path, file in files:
            transfer.upload(post.client.client, path, file)

    patiently(upload, LOYAL, longest=_pause(lease), leave=leave)


def _finish(post: SlotContext, lease: job_protocol.Lease, made: PublishedPrograms, log: str) -> None:
    """Publish the program and close the job. Raises `Conflict` where another worker has the job by now."""
    done = replace(made.finish, log=log)

    def finish() -> None:
        patiently(lambda: post.client.finish(lease.job, done), LOYAL, longest=_pause(lease))

    try:
        finish()
    except NoSuchBlob:
        # Swept while the registry was away for long: nobody had named these bytes yet.
        _upload(post, lease, made.files, post.leave)
        finish()
    _log.info("job %s: finished", lease.job[:12])


def _pause(lease: job_protocol.Lease) -> float:
    """Seconds between two tries: several must fit into what may be left of a lease."""
    return min(10.0, lease.seconds / 6)


def order_of(post: SlotContext, lease: job_protocol.Lease, calibration: Path | None) -> CompileTask:
    """What to compile: for the target that the lease names; or, across, for the GPU that it describes."""
    can, demands = post.slot.can, lease.demands
    if not lease.cross:
        made = capabilities.made_by(can.targets[lease.target], can.toolchain, capabilities.tuning_for(demands))
        return CompileTask(lease.key, made, lease.onnx, calibration)
    made = capabilities.made_across(demands, can.toolchain)
    absent = {"gpu_arch": lease.key.arch, "gpu_num_cu": demands.num_cu, "gpu_num_chiplets": demands.chiplets}
    return CompileTask(lease.key, made, lease.onnx, calibration, absent)


def provenance_of(post: SlotContext, lease: job_protocol.Lease, told: Mapping[str, Any]) -> dict[str, Any]:
    """Where the program comes from, with what its making told, within what the registry keeps of that."""
    target = post.slot.hardware[lease.target]
    found: dict[str, Any] = {
        "tool": "mxr-worker",
        "worker": post.slot.name,
        "job": lease.job,
        "attempt": lease.attempt,
        "gpu": None if lease.cross else target.name,
        "partition": None if lease.cross else target.partition,
        **told,
    }
    for name in DISPENSABLE:
        if len(canonical(found).encode()) <= artifact_protocol.MOST_PROVENANCE:
            break
        found[name] = "too long to keep"
    return found


def _tell(post: SlotContext, lease: job_protocol.Lease, failure: CompileFailure, log: str, *, cancelled: bool) -> None:
    if not cancelled and (failure.name == "stopped" or (failure.name == "worker" and post.leave())):
        patiently(lambda: post.client.hand_back(lease.job, lease.fence), 10.0)
        _log.info("job %s: handed back", lease.job[:12])
        return
    _log.info("job %s: %s: %s", lease.job[:12], failure.name, failure.message)
    failed = job_protocol.FailJob(
        lease.fence, job_protocol.JobFailure(kind_for(failure, lease), failure.message, failure.name), log
    )
    patiently(lambda: post.client.fail(lease.job, failed), LOYAL, longest=_pause(lease))


def kind_for(failure: CompileFailure, lease: job_protocol.Lease) -> str:
    """The registry's word for a failure. A crash may be the host's once; the second time the job is a poison."""
    if failure.kind == "permanent":
        return job_protocol.PERMANENT
    if failure.kind == "poison-suspect" and lease.attempt >= CRASHES:
        return job_protocol.POISON
    return job_protocol.TRANSIENT
