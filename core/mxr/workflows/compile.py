"""Request a compile and follow it: request -> upload what the registry lacks -> request again -> follow -> artifact id.

After the first answer, an outage of the registry does not end the operation: see `OUTAGE` in
`mxr.client.retry`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.manifest import File, Manifest, split_file
from mxr.artifact.model_files import PIECE
from mxr.client import transfer
from mxr.client.retry import OUTAGE, Attempts, retry, until
from mxr.errors import CompileFailedError, DamagedError, MxrError, NoSuchBlobError, NoSuchModelError, NotCompiledError
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import jobs as job_protocol
from mxr.request import calibration
from mxr.util import disk
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.request.builder import PreparedRequest
    from mxr.request.model import ModelReference

ONNX = "model.onnx"
"""The name of the ONNX file in the manifest of its model, whatever its name on this host."""

PACE = 30.0
"""Seconds of one long poll."""

TAIL = 20
"""Lines from the end of the log that are part of a failure."""


@dataclass(frozen=True, slots=True)
class CompileOrder:
    """A compile request, with the files that the registry can need for it: the model and its calibration data."""

    ask: job_protocol.CompileRequest
    model: ModelReference
    calibration: Path | None = None

    @classmethod
    def of(
        cls,
        prepared: PreparedRequest,
        calibration: Path | None = None,
        *,
        wait: bool = False,
        retry: bool = False,
        file_name: str | None = None,
    ) -> CompileOrder:
        """Return the order for a request. `wait`: it is refused where no worker can compile it."""
        key, constraints = prepared.request.key, prepared.request.constraints
        ask = job_protocol.CompileRequest(key, constraints, require_worker=wait, retry=retry, file_name=file_name)
        return cls(ask, prepared.model, calibration)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    `elapsed`: seconds since `follow` began. `running`: seconds that the compile has taken so far, None before it
    starts. `log`: new log text, if requested. `away`: why the registry does not answer at the moment, None if it does.
    """

    job: job_protocol.Job
    elapsed: float
    running: float | None = None
    log: str = ""
    away: str | None = None


def request_compile(client: Client, order: CompileOrder) -> job_protocol.Job:
    """Request a compile and return its job. Uploads the model and its calibration data if the registry lacks them.

    Raises `NoWorkerError` when `wanted.ask.require_worker` is set and no worker can compile the program,
    `NoSuchModelError` when neither the registry nor this host has the ONNX file, and `UsageError` for calibration data
    that do not fit.
    """
    if order.calibration is not None:
        calibration.check_calibration(order.calibration, order.model.onnx.inputs, order.ask.request.key.inputs)
    # The model and the calibration data can both be missing: each is uploaded at most once.
    for last in (False, False, True):
        try:
            return retry(until(OUTAGE), lambda: client.request_compile(order.ask))
        except (NoSuchModelError, NoSuchBlobError) as missing:
            if last or not _upload_missing(client, order, missing):
                raise
    raise AssertionError


def _upload_missing(client: Client, order: CompileOrder, missing: MxrError) -> bool:
    """Upload what a request lacked. Returns false when this host does not have it either."""
    if isinstance(missing, NoSuchModelError):
        if order.model.path is None:
            return False
        upload_model(client, order.model)
    else:
        if order.calibration is None:
            return False
        file = _split(order.calibration, "calibration", whole=True)
        _upload(client, order.calibration, file)
    return True


def upload_model(client: Client, model: ModelReference) -> artifact_protocol.Model:
    """Upload the blobs of a model that the registry lacks, and register the model with its manifest.

    Raises `DamagedError` when the file is no longer the requested model.
    """
    assert model.path is not None
    sources = {ONNX: model.path}
    for location, path in model.external:
        sources[location] = path
    if sources[ONNX] != model.path:
        raise DamagedError(
            f"{model.path} has an external-data file named {ONNX}. mxr reserves this name for the model itself.",
            hint="Save the model again with its external data under another name.",
        )
    files = {name: _split(path, name) for name, path in sources.items()}
    for name, path in sources.items():
        _upload(client, path, files[name])
    statement = model.registration(Manifest(tuple(files.values())), ONNX)
    return retry(until(OUTAGE), lambda: client.register_model(statement))


def _upload(client: Client, path: Path, file: File) -> None:
    retry(until(OUTAGE), lambda: transfer.upload(client, path, file))


def _split(path: Path, name: str, *, whole: bool = False) -> File:
    """Return the manifest entry of a file, split into blobs of a fixed size, or as one blob."""
    with disk.faults(path, "read"):
        size = path.stat().st_size
    inner = () if whole else range(PIECE, size, PIECE)
    return split_file(path, name, (0, *inner, size) if size else (0,))


def follow(
    client: Client, job: job_protocol.Job, *, deadline: float | None = None, pace: float = PACE, log: bool = False
) -> Iterator[JobProgress]:
    """Yield the progress of a job until it is closed or `deadline` (of `time.monotonic`) is reached.

    Yields after each change of the job and at least every `pace` seconds; the last progress shows whether the job is
    closed. Raises `UnreachableError` when the registry does not answer for longer than `retry.OUTAGE` allows.
    """
    begun, answered, offset = time.monotonic(), time.monotonic(), 0
    attempts = Attempts(until(OUTAGE, longest=2.0))
    while True:
        text = ""
        try:
            if log and job.id:
                text, offset = attempts.run(partial(_new_log, client, job.id, offset))
            yield _progress(job, begun, answered, text)
            left = pace if deadline is None else min(pace, deadline - time.monotonic())
            if job.state not in job_protocol.OPEN or left <= 0:
                return
            job = attempts.run(partial(client.job, job.id, wait=round(left, 3), version=job.version))
            answered = time.monotonic()
        except MxrError as problem:
            pause = attempts.pause_after(problem)
            yield _progress(job, begun, answered, "", problem.message)
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            if deadline is not None and time.monotonic() >= deadline:
                return


def _progress(job: job_protocol.Job, begun: float, answered: float, log: str, away: str | None = None) -> JobProgress:
    moment = time.monotonic()
    running = None
    if job.state == job_protocol.RUNNING and job.started_at is not None:
        running = max(0.0, job.updated_at - job.started_at) + moment - answered
    return JobProgress(job, moment - begun, running, log, away)


def _new_log(client: Client, identity: str, offset: int) -> tuple[str, int]:
    data, following = client.log(identity, offset)
    return data.decode("utf-8", "replace"), following


def outcome(client: Client, job: job_protocol.Job) -> str:
    """Return the id of the artifact that a job produced.

    Raises `CompileFailedError` with the failure and the end of the log, and `NotCompiledError` when the job is open or
    cancelled.
    """
    context: dict[str, Any] = {"job": job.id, "state": job.state}
    if job.state == job_protocol.DONE and job.artifact:
        return job.artifact
    if job.state == job_protocol.FAILED:
        failure = job.failure or job_protocol.JobFailure(job_protocol.TRANSIENT, "The reason is unknown.")
        lines = log_tail(client, job.id)
        raise CompileFailedError(
            f"The compile failed: {failure.message}",
            hint=f"Read the log with `mxr jobs {job.id[:12]}`. Use --retry to compile again despite this failure.",
            context=context | {"kind": failure.kind, "name": failure.name, "log": lines},
        )
    if job.state == job_protocol.CANCELLED:
        raise NotCompiledError(
            f"Job {job.id[:12]} was cancelled.",
            hint="Request the compile again with --on-miss ask or --on-miss wait.",
            context=context,
        )
    needed = f", and no live worker can compile it: it needs {job.waiting_for}" if job.waiting_for else ""
    raise NotCompiledError(
        f"The program is not compiled yet: job {job.id} is {job.state}{needed}.",
        hint=f"Follow the job with `mxr jobs {job.id[:12]} --follow`. When it is done, run the same fetch again.",
        context=context | ({"waiting_for": job.waiting_for} if job.waiting_for else {}),
    )


def log_tail(client: Client, identity: str) -> list[str]:
    """Return the last lines of the log of a job; an empty list when the log cannot be read."""
    try:
        return client.log(identity)[0].decode("utf-8", "replace").splitlines()[-TAIL:]
    except MxrError:
        return []
