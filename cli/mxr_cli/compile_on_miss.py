"""Compile what a fetch misses: queue a job, and wait for it or have this host run it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mxr.errors import InterruptionError, MxrError, NotAllowedError, NoWorkerError, UsageError

from .job_progress import LOG_POLL_SECONDS, interruptible, poll_seconds, show_progress
from .output import note

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mxr.plans.plan import NeededProgram, OnMiss
    from mxr.protocol.jobs import Job
    from mxr.request.builder import PreparedRequest
    from mxr.workflows.compile import JobProgress

    from .options import Session


def compile_programs(
    session: Session, on_miss: OnMiss, calibration: Path | None, needed: Sequence[NeededProgram]
) -> list[str]:
    """Submit a job for each program, then run them here or wait for them. Returns the ids of the artifacts.

    Raises `NotCompiledError` when a job is not finished, `CompileFailedError`, `NoWorkerError`; of several errors the
    most severe, with all of them in its context. An interrupt cancels no job.
    """
    deadline = on_miss.deadline()
    jobs = []
    for each in needed:
        file_name = None
        if each.recording is not None:
            note(f"mxr: {each.recording.reason}")
            file_name = each.recording.file_name
        jobs.append(submit_job(session, on_miss, each.prepared, calibration, file_name))
    artifacts: list[str] = []
    errors: list[MxrError] = []
    for each, job in zip(needed, jobs, strict=True):
        try:
            artifacts.append(artifact_of_job(session, on_miss, job, deadline))
        except InterruptionError:
            raise
        except MxrError as error:
            if len(jobs) == 1:
                raise
            note(f"mxr: batch {each.planned.batch}: {error.message}")
            errors.append(error)
    if errors:
        raise _combined(errors, [job.id for job in jobs])
    return artifacts


def _combined(errors: Sequence[MxrError], jobs: Sequence[str]) -> MxrError:
    from mxr.plans.plan import decisive_error

    worst = decisive_error(errors)
    context = worst.context | {"jobs": list(jobs), "problems": [error.to_json() for error in errors]}
    message = f"{len(errors)} of {len(jobs)} variants are not available, so none was fetched. {worst.message}"
    return type(worst)(message, hint=worst.hint, context=context)


def submit_job(
    session: Session,
    on_miss: OnMiss,
    prepared: PreparedRequest,
    calibration: Path | None,
    file_name: str | None = None,
) -> Job:
    """Submit a compile job, and upload the model and calibration data that the registry lacks.

    Raises `NoWorkerError` when `on_miss` waits and no worker could run the job.
    """
    from mxr.artifact.compile_support import uncalibrated_warnings
    from mxr.workflows import compile as compile_workflow

    if on_miss.action == "local":
        _require_local_scopes(session)
    for warning in uncalibrated_warnings(prepared.request.key):
        note(f"mxr: warning: {warning}")
    order = compile_workflow.CompileOrder.of(
        prepared, calibration, wait=on_miss.waits, retry=on_miss.retry, file_name=file_name
    )
    return compile_workflow.request_compile(session.client(), order)


def _require_local_scopes(session: Session) -> None:
    """Raise `NotAllowedError`, before anything is uploaded, where the worker on this host could not do the job."""
    found = session.client().whoami()
    lacking = [scope for scope in ("ask", "work") if not {scope, "admin"} & set(found.scopes)]
    if lacking:
        raise NotAllowedError(
            f"--on-miss local needs a token with the scopes ask and work; that of {found.name} lacks "
            f"{' and '.join(lacking)}.",
            hint="Use a token that has both, or --on-miss wait: a worker of the registry compiles it.",
        )


def artifact_of_job(session: Session, on_miss: OnMiss, job: Job, deadline: float | None) -> str:
    """The id of the artifact of a job.

    The job is run here or waited for where `on_miss` says so. Raises as `finished_artifact`.
    """
    from mxr.protocol import jobs as job_protocol

    if on_miss.action == "local" and job.state in job_protocol.OPEN:
        job = _run_here(session, on_miss, job)
    elif on_miss.waits:
        job = _wait(session, on_miss, job, deadline)
    return finished_artifact(session, job, log_shown=on_miss.verbose)


def finished_artifact(session: Session, job: Job, *, log_shown: bool = False) -> str:
    """The id of the artifact of a job. Prints the end of the log of a failed job unless `log_shown`.

    Raises `CompileFailedError`, or `NotCompiledError` when the job is open or was cancelled.
    """
    from mxr.workflows import compile as compile_workflow

    try:
        return compile_workflow.outcome(session.client(), job)
    except MxrError as error:
        if not (log_shown or session.as_json):
            for line in error.context.get("log", ()):
                note(f"  | {line}")
        raise


def suggest_compile(session: Session, error: MxrError, prepared: PreparedRequest) -> None:
    """Extend the hint of a miss by the `--on-miss` option that would help, if the registry has workers."""
    from mxr.protocol import capabilities

    try:
        client = session.client()
        available = [worker.can for worker in client.workers() if worker.state != "lost"]
        available += [pool.can for pool in client.pools()]
    except MxrError:
        return
    if any(capabilities.able(each, prepared.request) is not None for each in available):
        hint = "Add `--on-miss wait` to have a worker compile and publish it."
    elif available:
        hint = "Add `--on-miss ask` to queue it until a worker that can compile it starts; there is none now."
    else:
        return
    error.hint = f"{hint} Or {error.hint[:1].lower()}{error.hint[1:]}"


def _wait(session: Session, on_miss: OnMiss, job: Job, deadline: float | None) -> Job:
    from mxr.workflows import compile as compile_workflow

    with interruptible(job):
        updates = compile_workflow.follow(
            session.client(), job, deadline=deadline, pace=poll_seconds(log=on_miss.verbose), log=on_miss.verbose
        )
        return show_progress(updates, job)


def _run_here(session: Session, on_miss: OnMiss, job: Job) -> Job:
    """Start a worker on this host for one job and follow the job. Another worker may claim it first."""
    from mxr.workflows import compile as compile_workflow

    worker = _start_worker(session, job)
    try:
        with interruptible(job):
            updates = compile_workflow.follow(session.client(), job, pace=LOG_POLL_SECONDS, log=on_miss.verbose)
            return show_progress(_until_worker_exits(updates, worker), job)
    finally:
        _stop(worker)


def _until_worker_exits(updates: Iterable[JobProgress], worker: subprocess.Popen[bytes]) -> Iterable[JobProgress]:
    """Pass updates on. Raises `NoWorkerError` when the worker failed before it claimed the job."""
    for progress in updates:
        yield progress
        if progress.job.state == "queued" and worker.poll() not in (None, 0):
            raise NoWorkerError(
                "The worker on this host exited without compiling the program.",
                hint="See its messages above. The job stays queued: `mxr jobs` shows it.",
                context={"job": progress.job.id, "exit": worker.returncode},
            )


def _start_worker(session: Session, job: Job) -> subprocess.Popen[bytes]:
    import os
    import shutil
    import subprocess
    from pathlib import Path

    installed = Path(sys.executable).with_name("mxr-worker")
    program = str(installed) if installed.exists() else shutil.which("mxr-worker")
    if program is None:
        raise UsageError(
            "--on-miss local needs mxr-worker, which is not installed on this host.",
            hint="Install the extra `workers` of the package, or use --on-miss wait: the job is queued.",
            context={"job": job.id},
        )
    environ = os.environ | {"MXR_REGISTRY": session.settings.registry}
    environ |= session.settings.token_variables
    if session.settings.plaintext:
        environ["MXR_PLAINTEXT"] = "1"
    command = [program, "run", "--job", job.id, "--kind", job.request.key.kind]
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """Wait for the worker to exit, so that it returns an unfinished job. Terminate, then kill it if it does not."""
    import subprocess

    for signal, seconds in ((None, 5), (worker.terminate, 20), (worker.kill, 20)):
        if signal is not None:
            signal()
        try:
            worker.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
