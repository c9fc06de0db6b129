"""The progress of a compile job: one line that is updated on a terminal, one line per change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mxr.display import streams
from mxr.errors import InterruptionError

from .output import format_duration, note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mxr.protocol.jobs import Job
    from mxr.workflows.compile import JobProgress

LOG_POLL_SECONDS, TERMINAL_POLL_SECONDS = 1.0, 2.0
"""The poll interval while the log of a job is shown, and while a terminal shows its progress."""


QUIET_SECONDS = 60.0
"""Seconds after which a job or matrix that waits says so again where there is no terminal: CI ends jobs that are silent
for ten minutes."""


@contextmanager
def interruptible(job: Job) -> Iterator[None]:
    """Turn Ctrl-C into an `InterruptionError` that says that the job continues, and how to follow or cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptionError(
            f"Interrupted; job {job.id} continues.",
            hint=f"Run `mxr jobs {job.id[:12]} --follow` to follow it, `--cancel` to cancel it.",
            context={"job": job.id},
        ) from None


def poll_seconds(*, log: bool) -> float:
    """The poll interval for a job."""
    from mxr.workflows import compile as compile_workflow

    if log:
        return LOG_POLL_SECONDS
    return TERMINAL_POLL_SECONDS if streams.on_terminal() else compile_workflow.PACE


def show_progress(updates: Iterable[JobProgress], job: Job) -> Job:
    """Show the progress and the log of a job until the updates end. Returns the job as it is then."""
    terminal, shown, told = streams.on_terminal(), "", 0.0
    log = streams.LogWriter()
    try:
        for progress in updates:
            job = progress.job
            if progress.log:
                log.write(progress.log)
            if terminal:
                streams.update_line(f"mxr: {progress_line(progress)}")
            elif (
                status := f"{job.state} {job.phase} {job.worker} {job.waiting_for} {progress.away}"
            ) != shown or progress.elapsed - told >= QUIET_SECONDS:
                shown, told = status, progress.elapsed
                note(f"mxr: {progress_line(progress)}")
    finally:
        log.close()
        streams.clear_line()
    return job


def job_share(running: float, estimate: float) -> str:
    """What a compile has behind it and before it, both in seconds, by its estimate: "25%, 3 min 00 s left"."""
    if running >= estimate:
        return "longer than estimated"
    return f"{running * 100 // estimate:.0f}%, {format_duration(estimate - running)} left"


def progress_line(progress: JobProgress) -> str:
    """The state of a job in one line: position in the queue or phase, elapsed time, estimate."""
    job = progress.job
    name = f"job {job.id[:12]}" if job.id else "no job"
    elapsed = format_duration(progress.elapsed)
    if progress.away:
        return f"{name}: the registry does not answer, retrying ({elapsed})"
    estimate = (
        f"about {format_duration(job.estimate)}, based on {job.estimate_from}"
        if job.estimate
        else "no estimate: no similar compile yet"
    )
    if job.state == "queued" and job.waiting_for:
        return f"{name}: queued, no live worker, needs {job.waiting_for}; waiting for {elapsed}"
    if job.state == "queued":
        position = f", position {job.place}" if job.place else ""
        attempt = f", attempt {job.attempts + 1}" if job.attempts else ""
        return f"{name}: queued{position}{attempt}, waiting for {elapsed} ({estimate})"
    if job.state == "running":
        running = progress.running or 0
        left = f", {job_share(running, job.estimate)}" if job.estimate else ""
        return f"{name}: {job.phase or 'running'} on {job.worker}, {format_duration(running)}{left} ({estimate})"
    return f"{name}: {job.state} after {elapsed}"
