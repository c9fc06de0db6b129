"""What `mxr fetch` does on a miss: queue a compile, wait for one, or have this host do it; and a job on the screen."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING

import click

from mxr.errors import Interrupted, MxrError, NoWorker, Usage
from mxr.request.builder import BuiltRequest
from mxr.request.model import ModelReference
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import Fetched

from .options import Session
from .output import note, watch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable
    from pathlib import Path

    from mxr.protocol.jobs import Job
    from mxr.workflows.compile import JobProgress

WAYS = ("fail", "ask", "wait", "local", "continue")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
GLANCE, LOOK = 1.0, 2.0
"""Seconds between two looks at a job whose log is shown, and at one that a person watches."""


@dataclass(frozen=True, slots=True)
class OnMiss:
    """What to do on a miss. `seconds`: how long to wait at most. `retry` clears remembered failures first."""

    way: str = "fail"
    seconds: float | None = None
    retry: bool = False
    verbose: bool = False

    @classmethod
    def read(cls, text: str, *, retry: bool, verbose: bool) -> OnMiss:
        """`wait=10m`, or another of the ways. Raises `Usage`."""
        way, equals, limit = text.partition("=")
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", limit)
        if way not in WAYS or (equals and (way != "wait" or not found)):
            raise Usage(
                f"--on-miss {text} is not known.", hint="Choose one of: fail, ask, wait[=10m], local, continue."
            )
        return cls(way, float(found[1]) * UNITS[found[2]] if found else None, retry, verbose)


def compiled(
    session: Session,
    how: OnMiss,
    subject: ModelReference,
    asked: BuiltRequest,
    calibration: Path | None,
    file_name: str | None = None,
) -> Fetched:
    """The program, compiled by whoever can; or what ONNX Runtime makes of a model that it opens as `file_name`.

    Raises `NotCompiled` where it is not there yet, `CompileFailed`, `NoWorker`. An interrupt leaves the job as it is.
    """
    from mxr.workflows import fetch as fetch_workflow

    identity = outcome(session, how, ask_for(session, how, subject, asked, calibration, file_name))
    return fetch_workflow.fetch_compiled(
        identity, asked.request, session.cache(), session.client(), watch=watch("fetching")
    )


def ask_for(
    session: Session,
    how: OnMiss,
    subject: ModelReference,
    asked: BuiltRequest,
    calibration: Path | None,
    file_name: str | None = None,
) -> Job:
    """The job for a request; what the registry lacks for it is uploaded. Raises `NoWorker` where one waits for it."""
    from mxr.protocol import jobs as job_protocol
    from mxr.workflows import compile as compile_workflow

    wanted = job_protocol.CompileRequest(asked.request, wait=how.way == "wait", retry=how.retry, file_name=file_name)
    return compile_workflow.ask(
        session.client(), compile_workflow.CompileOrder(wanted, subject, calibration), watch("uploading")
    )


def outcome(session: Session, how: OnMiss, job: Job) -> str:
    """The id of the artifact that comes of a job, done here or waited for where that is the way; else as it stands."""
    from mxr.protocol import jobs as job_protocol

    if how.way == "local" and job.state in job_protocol.OPEN:
        job = _here(session, how, job)
    elif how.way == "wait":
        job = _wait(session, how, job)
    return finished(session, job, quiet=how.verbose)


def advise(session: Session, problem: MxrError, asked: BuiltRequest) -> None:
    """Adds to the hint of a miss what the registry's workers could do about it; nothing where it has none."""
    from mxr.protocol import capabilities

    try:
        found = session.client().workers()
    except MxrError:
        return
    cans = [each.can for each in found.workers if each.state != "lost"] + [each.can for each in found.pools]
    if any(capabilities.able(can, asked.request) is not None for can in cans):
        words = "Add `--on-miss wait`: a worker compiles it, for everyone."
    elif cans:
        words = "Add `--on-miss ask`: that queues it for a worker that can compile it, of which there is none now."
    else:
        return
    problem.hint = f"{words} Or {problem.hint[:1].lower()}{problem.hint[1:]}"


def finished(session: Session, job: Job, *, quiet: bool = False) -> str:
    """The artifact of a job that was followed. Raises as `waiting.outcome`; the log's end is shown unless `quiet`."""
    from mxr.workflows import compile as compile_workflow

    try:
        return compile_workflow.outcome(session.client(), job)
    except MxrError as problem:
        for line in problem.detail.get("log", ()) if not (quiet or session.as_json) else ():
            note(f"  | {printable(line)}")
        raise


def _wait(session: Session, how: OnMiss, job: Job) -> Job:
    from mxr.workflows import compile as compile_workflow

    deadline = None if how.seconds is None else time.monotonic() + how.seconds
    with _Leaving(job):
        seen = compile_workflow.follow(
            session.client(), job, deadline=deadline, pace=pace(how.verbose), log=how.verbose
        )
        return shown(seen, job)


def _here(session: Session, how: OnMiss, job: Job) -> Job:
    """Has this host do a job, by a worker that does nothing else, and follows it; another worker may be faster."""
    from mxr.workflows import compile as compile_workflow

    child = _start_worker(session, job)
    try:
        with _Leaving(job):
            seen = compile_workflow.follow(session.client(), job, pace=GLANCE, log=how.verbose)
            return shown(_while_alive(seen, child), job)
    finally:
        _end(child)


def _while_alive(seen: Iterable[JobProgress], child: subprocess.Popen[bytes]) -> Iterable[JobProgress]:
    for progress in seen:
        yield progress
        if progress.job.state == "queued" and child.poll() not in (None, 0):
            raise NoWorker(
                "The worker on this host ended without compiling it.",
                hint="Its messages above say why; the job stays queued, `mxr jobs` shows it.",
                detail={"job": progress.job.id, "exit": child.returncode},
            )


def _start_worker(session: Session, job: Job) -> subprocess.Popen[bytes]:
    import os
    import shutil
    import subprocess
    from pathlib import Path

    beside = Path(sys.executable).with_name("mxr-worker")
    program = str(beside) if beside.exists() else shutil.which("mxr-worker")
    if program is None:
        raise Usage(
            "--on-miss local needs mxr-worker, which is not installed here.",
            hint="pip install 'mxr[workers]', or use --on-miss wait; the job is queued.",
            detail={"job": job.id},
        )
    environ = os.environ | {"MXR_REGISTRY": session.settings.registry}
    if session.settings.token:
        environ["MXR_TOKEN"] = session.settings.token
    command = [program, "run", "--job", job.id, "--kind", job.request.key.kind]
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())


def _end(child: subprocess.Popen[bytes]) -> None:
    """Lets the worker end by itself, which hands back what it holds; then not."""
    import subprocess

    for stop in (None, child.terminate, child.kill):
        if stop is not None:
            stop()
        try:
            child.wait(5 if stop is None else 20)
            return
        except subprocess.TimeoutExpired:
            continue


class _Leaving:
    """Tells who interrupts that the job goes on."""

    def __init__(self, job: Job) -> None:
        self._job = job.id

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted; job {self._job} goes on without you.",
                hint=f"`mxr jobs {self._job[:12]} --follow` follows it, `--cancel` ends it.",
                detail={"job": self._job},
            ) from None


def pace(verbose: bool) -> float:
    """How often to look at a job."""
    from mxr.workflows import compile as compile_workflow

    return GLANCE if verbose else LOOK if sys.stderr.isatty() else compile_workflow.PACE


def shown(seen: Iterable[JobProgress], job: Job) -> Job:
    """Shows a job while it is followed, in one line on a terminal, else a line for each change; the job at the end."""
    terminal, before = sys.stderr.isatty(), ""
    try:
        for progress in seen:
            job = progress.job
            if progress.log:
                click.echo(("\r\x1b[K" if terminal else "") + printable(progress.log), err=True, nl=False)
            if terminal:
                click.echo(f"\r{_fitted('mxr: ' + line(progress))}\x1b[K", err=True, nl=False)
            elif (change := f"{job.state} {job.phase} {job.worker} {job.waiting_for} {progress.away}") != before:
                before = change
                note(f"mxr: {line(progress)}")
    finally:
        if terminal:
            click.echo(err=True)
    return job


def _fitted(text: str) -> str:
    """What fits in one line of the terminal: a line that wraps could not be written over."""
    import shutil

    return text[: shutil.get_terminal_size().columns - 1]


def line(progress: JobProgress) -> str:
    """Where a job stands, in one line: place in the queue, or phase; elapsed; estimate."""
    job = progress.job
    name = f"job {job.id[:12]}" if job.id else "no job"
    if progress.away:
        return f"{name}: the registry does not answer, trying again ({duration(progress.elapsed)})"
    about = (
        f"about {duration(job.estimate)} by {job.estimate_from}"
        if job.estimate
        else "no estimate: nothing like this was compiled yet"
    )
    if job.state == "queued" and job.waiting_for:
        return f"{name}: queued, no live worker: it needs {job.waiting_for}; waiting {duration(progress.elapsed)}"
    if job.state == "queued":
        place = f", number {job.place} in the queue" if job.place else ""
        again = f", attempt {job.attempts + 1} to come" if job.attempts else ""
        return f"{name}: queued{place}{again}, waiting {duration(progress.elapsed)} ({about})"
    if job.state == "running":
        took = duration(progress.running or 0)
        return f"{name}: {job.phase or 'running'} on {job.worker}, {took} ({about})"
    return f"{name}: {job.state} after {duration(progress.elapsed)}"


def duration(seconds: float) -> str:
    """A time span for a person."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def printable(text: str) -> str:
    """A log that cannot steer a terminal: lines stay lines."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
