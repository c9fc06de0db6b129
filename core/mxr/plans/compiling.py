"""Compile what a plan needs: submit a job for each program, then wait for them or do what the caller does instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.compile_support import uncalibrated_warnings
from mxr.errors import InterruptionError, MxrError
from mxr.protocol.jobs import Job
from mxr.workflows import compile as compile_workflow

from .plan import NeededProgram, OnMiss, decisive_error

if TYPE_CHECKING:
    from mxr.client.registry import Client

Finish = Callable[[Job, "float | None"], str]
"""Returns the id of the artifact of a job; waits until a time of `time.monotonic()`, if at all."""

Say = Callable[[str], None]
"""Is called with what the user should know."""


def compile_needed(
    client: Client,
    on_miss: OnMiss,
    calibration: Path | None,
    needed: Sequence[NeededProgram],
    *,
    finish: Finish | None = None,
    say: Say = lambda _: None,
) -> list[str]:
    """Submit a job for each program, then finish each (by default as `on_miss` says). Returns the ids of the artifacts.

    Uploads the models and calibration data that the registry lacks. Raises `NotCompiledError` when a job is not
    finished, `CompileFailedError`, `NoWorkerError`; of several errors the most severe, with all of them in its context.
    An interrupt cancels no job.
    """
    deadline = on_miss.deadline()
    jobs = [_submit(client, on_miss, calibration, each, say) for each in needed]
    artifacts: list[str] = []
    errors: list[MxrError] = []
    for each, job in zip(needed, jobs, strict=True):
        try:
            artifacts.append(finish(job, deadline) if finish else wait_for(client, on_miss, job, deadline))
        except InterruptionError:
            raise
        except MxrError as error:
            if len(jobs) == 1:
                raise
            say(f"batch {each.planned.batch}: {error.message}")
            errors.append(error)
    if errors:
        raise _combined(errors, [job.id for job in jobs])
    return artifacts


def wait_for(client: Client, on_miss: OnMiss, job: Job, deadline: float | None) -> str:
    """Return the id of the artifact of a job; waits for it where `on_miss` says so. Raises as `compile.outcome`."""
    if on_miss.waits:
        for progress in compile_workflow.follow(client, job, deadline=deadline):
            job = progress.job
    return compile_workflow.outcome(client, job)


def _submit(client: Client, on_miss: OnMiss, calibration: Path | None, needed: NeededProgram, say: Say) -> Job:
    """Submit a job. Raises `NoWorkerError` when `on_miss` waits and no worker could run it."""
    prepared, recording = needed.prepared, needed.recording
    if recording is not None:
        say(recording.reason)
    for warning in uncalibrated_warnings(prepared.request.key):
        say(f"warning: {warning}")
    name = recording.file_name if recording is not None else None
    order = compile_workflow.CompileOrder.of(
        prepared, calibration, wait=on_miss.waits, retry=on_miss.retry, file_name=name
    )
    return compile_workflow.request_compile(client, order)


def _combined(errors: Sequence[MxrError], jobs: Sequence[str]) -> MxrError:
    worst = decisive_error(errors)
    context = worst.context | {"jobs": list(jobs), "problems": [error.to_json() for error in errors]}
    message = f"{len(errors)} of {len(jobs)} variants are not available, so none was fetched. {worst.message}"
    return type(worst)(message, hint=worst.hint, context=context)
