"""Run one leased job on a slot: download the model, compile, upload and publish; or report the failure."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mxr.artifact.limits import MAX_PROVENANCE_BYTES
from mxr.artifact.manifest import File, Manifest
from mxr.client import transfer
from mxr.client.retry import RetryPolicy, retry, until
from mxr.client.worker import HeldLease, WorkerClient
from mxr.display import progress
from mxr.errors import (
    ConflictError,
    DamagedError,
    InterruptionError,
    MismatchError,
    MxrError,
    NoSuchBlobError,
    NotFoundError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
    UsageError,
)
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.trust.envelope import Envelope
from mxr.trust.keys import SigningKey
from mxr.util import disk
from mxr.util.codec import canonical, decode, encode
from mxr.workflows.push import split_program

from .compilation import (
    CompileAttemptFailed,
    CompiledProgram,
    CompileEnvironment,
    CompileTask,
    compile_program,
)
from .failures import CompileFailure
from .heartbeat import LeaseHeartbeat
from .interpreter import Interpreter
from .ort_recording import RecordedFiles, RecordingTask, record_model
from .reading import RefusedInput, check_model, check_samples
from .sandbox import ChildObserver
from .settings import WorkerSettings
from .signing import sign_built
from .slots import CompileSlot
from .spool import Spool, remove_tree

PROGRAM = "model.mxr"
UNREPORTED = "unreported.json"
"""In the folder of a slot: the result whose report the registry did not answer yet, with the secret of its lease."""

JOB_FAILURES = {"permanent": job_protocol.PERMANENT, "poison": job_protocol.POISON} | dict.fromkeys(
    ("transient", "hang"), job_protocol.TRANSIENT
)
"""What the job protocol calls each kind of a failed compile."""

RENEWED = (UnauthenticatedError,)
"""What passes while a token is being renewed: work that was begun must not be lost by it."""

ANSWERS = (ConflictError, NotFoundError, MismatchError, DamagedError, NoSuchBlobError, UsageError)
"""What the registry says of a result, which it would say again."""

OPTIONAL_PROVENANCE = ("env", "warnings", "verified", "phase_seconds")
"""Parts of a provenance that is too long are dropped in this order."""

_LEASE_LOST = CompileFailure("transient", "stopped", "The lease was lost.")

_log = logging.getLogger("mxr-worker")


@dataclass(frozen=True, slots=True)
class SlotContext:
    """What a slot works with. `gpus`: how many this process sees. `must_stop`: whether a compile must end at once.

    `key`: with which it signs what it built; None: it signs nothing.
    """

    slot: CompileSlot
    settings: WorkerSettings
    client: WorkerClient
    interpreter: Interpreter
    spool: Spool
    gpus: int
    must_stop: Callable[[], bool]
    key: SigningKey | None = None


@dataclass(frozen=True, slots=True)
class UploadedPrograms:
    """Programs whose blobs are in the registry, and the request that publishes them together."""

    files: tuple[tuple[Path, File], ...]
    finish: job_protocol.FinishJob


def run_job(context: SlotContext, lease: HeldLease) -> CompileFailure | None:
    """Run a job and report the result to the registry. Returns the failure, if any; it may be caused by this host."""
    outcome: UploadedPrograms | CompileFailure
    client = context.client.with_timeout(lease.seconds / 3)
    with context.spool.in_use(lease), LeaseHeartbeat(client, lease) as heartbeat:
        try:
            outcome = _make(context, lease, heartbeat)
        except CompileAttemptFailed as problem:
            outcome = problem.failure
        except RefusedInput as problem:
            outcome = CompileFailure("permanent", "refused-input", problem.message)
        except (MxrError, OSError) as problem:
            # Errors outside the compile (a full disk, an unreachable registry) are not the model's fault.
            outcome = CompileFailure("transient", "worker", f"{type(problem).__name__}: {problem}")
        except Exception as problem:
            # Counted like a crash: a model that triggers a bug in the worker must not be tried on worker after worker.
            _log.exception("job %s: internal error of mxr-worker", lease.job[:12])
            outcome = CompileFailure("poison", "worker-fault", f"mxr-worker: {type(problem).__name__}: {problem}")
        rest = heartbeat.close()
    if heartbeat.stop == "lost":
        _log.warning("job %s: the lease is lost, the work was stopped", lease.job[:12])
        return _LEASE_LOST
    return _report(context, lease, outcome, rest, cancelled=heartbeat.stop == "cancelled")


def _report(
    context: SlotContext,
    lease: HeldLease,
    outcome: UploadedPrograms | CompileFailure,
    log: str,
    *,
    cancelled: bool,
) -> CompileFailure | None:
    """Report the outcome to the registry. An error here ends the job for this worker, but never the worker."""
    try:
        if isinstance(outcome, CompileFailure):
            _report_failure(context, lease, outcome, log, cancelled=cancelled)
            return outcome
        _finish(context, lease, outcome, log)
        return None
    except (ConflictError, NotFoundError) as problem:
        _log.warning("job %s: the lease is lost, nothing was published: %s", lease.job[:12], problem.traced)
        return _LEASE_LOST
    except (MismatchError, DamagedError) as problem:
        # The registry inspected the program itself and has queued the job for other workers.
        _log.error("job %s: the registry rejected the program: %s", lease.job[:12], problem.traced)
    except MxrError as problem:
        # Without a report the lease expires, and another worker gets the job.
        _log.error("job %s: cannot report the result to the registry: %s", lease.job[:12], problem.traced)
    return CompileFailure("transient", "worker", "The registry did not accept the result.")


def _make(context: SlotContext, lease: HeldLease, heartbeat: LeaseHeartbeat) -> UploadedPrograms:
    """Compile the program, or record the files of ONNX Runtime, and upload the result.

    Raises `CompileAttemptFailed`, and the errors of downloads and uploads.
    """
    client, slot = context.client.client, context.slot
    observer = heartbeat.observer(context.must_stop)
    heartbeat.phase("download")
    with progress.shown_by(lambda action, total: _interruptible(observer)):  # noqa: ARG005 - nothing is shown
        fetch = partial(context.spool.fetch, client, lease)
        models, calibration = retry(until(60.0, also=RENEWED), fetch, stop=observer.stop)
    check_model(models, lease)
    if calibration is not None:
        check_samples(calibration, models, lease)
    folder = context.spool.slot(slot.name) / "work"
    remove_tree(folder)
    folder.mkdir(parents=True)
    task = task_of(context, lease, calibration)
    environment = CompileEnvironment(
        slot.interpreter(context.interpreter, lease.target, context.gpus),
        folder,
        context.settings.limits(task.attributes.tuning),
        context.settings.verify_limits(),
        observer,
        None if lease.cross else slot.problem_cache(context.spool.folder, lease.target),
    )
    result: CompiledProgram | RecordedFiles

    def waits() -> bool:
        heartbeat.phase("wait")
        return observer.stop()

    with context.spool.turn(waits, alone=lease.alone):
        if lease.key.form == "whole":
            result = compile_program(task, models, environment)
            paths = {PROGRAM: result.path}
        else:
            opening = RecordingTask(lease.file_name, tuple(file.name for file in lease.model.files))
            result = record_model(task, opening, models, environment)
            paths = {path.name: path for path in result.paths}
    heartbeat.phase("upload")
    files = tuple((path, split_program(path, name)) for name, path in paths.items())
    _upload(context, lease, files, observer.stop)
    heartbeat.phase("publish")
    manifest = Manifest(tuple(file for _, file in files))
    artifact = artifact_protocol.Publish(
        lease.key, manifest, result.attributes, provenance_of(context, lease, result.provenance)
    )
    return UploadedPrograms(
        files, job_protocol.FinishJob(lease.secret, artifact, built=_signed(context, lease, artifact))
    )


def _signed(context: SlotContext, lease: HeldLease, artifact: artifact_protocol.Publish) -> Envelope | None:
    if context.key is None:
        return None
    sign = partial(sign_built, context.key, context.client.client, lease, context.slot.name, artifact)
    return retry(_delivery(lease), sign, stop=context.must_stop)


def _interruptible(observer: ChildObserver) -> progress.Step:
    """A step of progress that interrupts a transfer when the work must stop: a large model takes long to download."""

    def check(_: int) -> None:
        if observer.stop():
            raise InterruptionError("The worker stopped while it downloaded the model.")

    return check


def _upload(
    context: SlotContext, lease: HeldLease, files: tuple[tuple[Path, File], ...], stop: Callable[[], bool]
) -> None:
    def upload() -> None:
        for path, file in files:
            transfer.upload(context.client.client, path, file)

    retry(_delivery(lease), upload, stop=stop)


def _finish(context: SlotContext, lease: HeldLease, programs: UploadedPrograms, log: str) -> None:
    """Publish the programs and close the job. Raises `ConflictError` where another worker has the job by now."""
    done = replace(programs.finish, log=log)

    def finish() -> None:
        retry(_delivery(lease), lambda: context.client.finish(lease.job, done))

    with _kept(context, lease.job, done):
        try:
            finish()
        except NoSuchBlobError:
            # Garbage collection removed the unreferenced blobs while the registry was unreachable for long.
            _upload(context, lease, programs.files, context.must_stop)
            finish()
    _log.info("job %s: finished", lease.job[:12])


@contextlib.contextmanager
def _kept(context: SlotContext, job: str, done: job_protocol.FinishJob) -> Iterator[None]:
    """Keep the report of a result in the spool until the registry has answered it."""
    path = context.spool.slot(context.slot.name) / UNREPORTED
    # A disk without room for it costs the report only if this process ends now.
    with contextlib.suppress(MxrError, OSError):
        disk.write_whole(path, canonical({"job": job, "finish": encode(done)}).encode(), mode=0o600)
    try:
        yield
    except ANSWERS:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


def report_kept(context: SlotContext) -> None:
    """Send the result that an earlier process of this slot had, and whose answer it did not get.

    The lease may hold still, and the result be that of hours. Raises `UnreachableError` and `TemporaryError`.
    """
    path = context.spool.slot(context.slot.name) / UNREPORTED
    try:
        kept = json.loads(path.read_bytes())
        job, done = str(kept["job"]), decode(job_protocol.FinishJob, kept["finish"], "finish")
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        path.unlink(missing_ok=True)
        return
    try:
        with _kept(context, job, done):
            context.client.finish(job, done)
    except (UnreachableError, TemporaryError):
        raise
    except MxrError as problem:
        _log.warning("job %s: the result of an earlier worker was not accepted: %s", job[:12], problem.traced)
    else:
        _log.info("job %s: finished with the result of an earlier worker", job[:12])


def _delivery(lease: HeldLease) -> RetryPolicy:
    """The policy that delivers the result of hours of work. Several attempts must fit into the rest of a lease.

    While the registry is unreachable, either the lease holds or another worker gets the job; the first answer tells.
    """
    return until(3600.0, longest=min(10.0, lease.seconds / 6), also=RENEWED)


def task_of(context: SlotContext, lease: HeldLease, calibration: Path | None) -> CompileTask:
    """The task of a lease: for the target that it names, or for a cross-compile, for the GPU that it describes."""
    can, constraints = context.slot.can, lease.constraints
    if not lease.cross:
        attributes = capabilities.made_by(
            can.targets[lease.target], can.toolchain, capabilities.tuning_for(constraints)
        )
        return CompileTask(lease.key, attributes, lease.onnx, calibration)
    attributes = capabilities.made_across(constraints, can.toolchain)
    cross = {"gpu_arch": lease.key.arch, "gpu_num_cu": constraints.num_cu, "gpu_num_chiplets": constraints.chiplets}
    return CompileTask(lease.key, attributes, lease.onnx, calibration, cross)


def provenance_of(context: SlotContext, lease: HeldLease, details: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a program, including the `details` of its compile, within the registry's size limit."""
    target = None if lease.cross else context.slot.hardware[lease.target]
    found: dict[str, Any] = {
        "tool": "mxr-worker",
        "worker": context.slot.name,
        "job": lease.job,
        "attempt": lease.attempt,
        "gpu": target and target.name,
        "partition": target and target.partition,
        "sandbox": {"way": context.interpreter.way, "whole": context.slot.can.walls},
        **details,
    }
    for name in OPTIONAL_PROVENANCE:
        if len(canonical(found).encode()) <= MAX_PROVENANCE_BYTES:
            break
        found[name] = "omitted: too long"
    return found


def _report_failure(
    context: SlotContext, lease: HeldLease, failure: CompileFailure, log: str, *, cancelled: bool
) -> None:
    if not cancelled and (failure.name == "stopped" or (failure.name == "worker" and context.must_stop())):
        retry(until(10.0), lambda: context.client.hand_back(lease.job, lease.secret))
        _log.info("job %s: returned to the queue", lease.job[:12])
        return
    _log.info("job %s: %s: %s", lease.job[:12], failure.name, failure.message)
    failed = job_protocol.FailJob(
        lease.secret, job_protocol.JobFailure(JOB_FAILURES[failure.kind], failure.message, failure.name), log
    )
    retry(_delivery(lease), lambda: context.client.fail(lease.job, failed))
