"""Compile what a fetch misses: queue a job, and wait for it or have this host run it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from mxr.errors import MxrError, NotAllowedError, NoWorkerError, UsageError

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

    Raises as `compile_needed`.
    """
    from mxr.plans.compiling import compile_needed

    if on_miss.action == "local":
        _require_local_scopes(session)
    finish = partial(artifact_of_job, session, on_miss)
    return compile_needed(
        session.client(), on_miss, calibration, needed, finish=finish, say=lambda line: note(f"mxr: {line}")
    )


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
