"""The way of a wanted compile: ask -> upload what the registry lacks -> ask again -> follow the job -> artifact id.

Once the registry has answered, its restarts are borne: what is asked is asked again for some minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mxr.artifact.manifest import Blob, File, Manifest
from mxr.client import transfer
from mxr.errors import CompileFailed, Damaged, MxrError, NoSuchBlob, NoSuchModel, NotCompiled, Temporary, Unreachable
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import jobs as job_protocol
from mxr.util import disk
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.request.model import ModelReference

    from .fetch import Watch

T = TypeVar("T")

PIECE = 64 << 20
"""Bytes of a blob of a model: fixed, so that the same file is always cut alike."""

ONNX = "model.onnx"
"""The ONNX file's name in the manifest of its model, whatever it is called on this host."""

PATIENCE = 300.0
"""Seconds for which a registry that answered before may be silent."""

PACE = 30.0
"""Seconds of one long poll."""

TAIL = 20
"""Lines of the log that come with a failure."""


@dataclass(frozen=True, slots=True)
class CompileOrder:
    """What to ask for, with the files that the registry may need for it. For the fields see `work.Ask`."""

    ask: job_protocol.CompileRequest
    subject: ModelReference
    calibration: Path | None = None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is. `elapsed`: seconds since we follow it. `running`: seconds that its compile has taken so far.

    `log`: what came to it, where that is asked for. `away`: why the registry does not answer at the moment.
    """

    job: job_protocol.Job
    elapsed: float
    running: float | None = None
    log: str = ""
    away: str | None = None


def ask(client: Client, wanted: CompileOrder, watch: Watch) -> job_protocol.Job:
    """The job to wait for. The model and its calibration data are uploaded where the registry lacks them.

    Raises `NoWorker` where `wanted` waits and nothing could do it, `NoSuchModel` where the file is not here either.
    """
    for given in (NoSuchModel, NoSuchBlob, None):
        try:
            return patiently(lambda: client.ask(wanted.ask))
        except (NoSuchModel, NoSuchBlob) as lacking:
            if given is None or not _supply(client, wanted, lacking, watch):
                raise
    raise AssertionError


def _supply(client: Client, wanted: CompileOrder, lacking: MxrError, watch: Watch) -> bool:
    """Uploads what an ask lacked; whether there was anything to upload."""
    if isinstance(lacking, NoSuchModel):
        if wanted.subject.path is None:
            return False
        upload_model(client, wanted.subject, watch)
    else:
        if wanted.calibration is None:
            return False
        file = _cut(wanted.calibration, "calibration", whole=True)
        _upload(client, wanted.calibration, file, watch)
    return True


def upload_model(client: Client, subject: ModelReference, watch: Watch) -> artifact_protocol.Model:
    """Uploads the blobs of a model that the registry lacks, and registers it complete.

    Raises `Damaged` when the file is no longer the model that was asked for.
    """
    assert subject.path is not None
    sources = {ONNX: subject.path}
    for location, path in subject.external:
        sources[location] = path
    if sources[ONNX] != subject.path:
        raise Damaged(
            f"{subject.path} keeps its weights in a file called {ONNX}, a name that mxr gives to the model itself.",
            hint="Save the model again with its external data under another name.",
        )
    files = {name: _cut(path, name) for name, path in sources.items()}
    for name, path in sources.items():
        _upload(client, path, files[name], watch)
    statement = subject.registration(Manifest(tuple(files.values())), ONNX)
    return patiently(lambda: client.register_model(statement))


def _upload(client: Client, path: Path, file: File, watch: Watch) -> None:
    patiently(lambda: transfer.upload(client, path, file, watch(file.size)))


def _cut(path: Path, name: str, *, whole: bool = False) -> File:
    """The manifest entry of a file, in pieces of a fixed size, or in one."""
    total, blobs, count = sha256(), [], 0
    with disk.faults(path, "read"), path.open("rb") as stream:
        while True:
            part, size = sha256(), 0
            while (whole or size < PIECE) and (block := stream.read(1 << 20)):
                part.update(block)
                total.update(block)
                size += len(block)
            if size == 0:
                break
            blobs.append(Blob(part.hexdigest(), size))
            count += size
    return File(name, count, total.hexdigest(), tuple(blobs))


def patiently(
    call: Callable[[], T],
    patience: float = PATIENCE,
    *,
    longest: float = 10.0,
    leave: Callable[[], bool] = lambda: False,
) -> T:
    """What `call` gives, called again while the registry is away, with pauses of `longest` seconds at most.

    Raises what it raised last when `patience` ends, or `leave` says so.
    """
    end, pause = time.monotonic() + patience, 0.5
    while True:
        try:
            return call()
        except (Unreachable, Temporary):
            if leave() or time.monotonic() + pause > end:
                raise
        time.sleep(pause)
        pause = min(pause * 1.6, longest)


def follow(
    client: Client, job: job_protocol.Job, *, deadline: float | None = None, pace: float = PACE, log: bool = False
) -> Iterator[JobProgress]:
    """Progress of a job until it is closed or `deadline` (of `time.monotonic`) has come; the last one says which.

    It comes with each change and at least every `pace` seconds. Raises `Unreachable` when the registry stays away.
    """
    begun, heard, offset = time.monotonic(), time.monotonic(), 0
    while True:
        away, text = None, ""
        try:
            if log and job.id:
                text, offset = _new_log(client, job.id, offset)
            if job.state not in job_protocol.OPEN:
                yield _progress(job, begun, heard, text)
                return
            left = pace if deadline is None else min(pace, deadline - time.monotonic())
            yield _progress(job, begun, heard, text)
            if left <= 0:
                return
            fresh = client.job(job.id, wait=round(left, 3), version=job.version)
            heard = time.monotonic()
            job = fresh
        except (Unreachable, Temporary) as problem:
            away = problem.message
            if time.monotonic() - heard > PATIENCE + pace:
                raise
        if away is not None:
            yield _progress(job, begun, heard, "", away)
            time.sleep(0.5)
            if deadline is not None and time.monotonic() >= deadline:
                return


def _progress(job: job_protocol.Job, begun: float, heard: float, log: str, away: str | None = None) -> JobProgress:
    moment = time.monotonic()
    running = None
    if job.state == job_protocol.RUNNING and job.started_at is not None:
        running = max(0.0, job.updated_at - job.started_at) + moment - heard
    return JobProgress(job, moment - begun, running, log, away)


def _new_log(client: Client, identity: str, offset: int) -> tuple[str, int]:
    data, following = client.log(identity, offset)
    return data.decode("utf-8", "replace"), following


def outcome(client: Client, job: job_protocol.Job) -> str:
    """The id of the artifact that came of a job.

    Raises `CompileFailed` with the failure and the end of the log, `NotCompiled` where the job is open or cancelled.
    """
    detail: dict[str, Any] = {"job": job.id, "state": job.state}
    if job.state == job_protocol.DONE and job.artifact:
        return job.artifact
    if job.state == job_protocol.FAILED:
        failure = job.failure or job_protocol.JobFailure(job_protocol.TRANSIENT, "It failed, and nothing says why.")
        lines = log_tail(client, job.id)
        raise CompileFailed(
            f"The compile failed: {failure.message}",
            hint=f"`mxr jobs {job.id[:12]}` shows its log; --retry tries again in spite of this failure.",
            detail=detail | {"kind": failure.kind, "name": failure.name, "log": lines},
        )
    if job.state == job_protocol.CANCELLED:
        raise NotCompiled(
            f"Job {job.id[:12]} was cancelled.", hint="Ask again with --on-miss ask or wait.", detail=detail
        )
    nobody = f", and no live worker can do it: it needs {job.waiting_for}" if job.waiting_for else ""
    raise NotCompiled(
        f"It is not compiled yet: job {job.id} is {job.state}{nobody}.",
        hint=f"`mxr jobs {job.id[:12]} --follow` follows it; the same fetch gets the program once it is there.",
        detail=detail | ({"waiting_for": job.waiting_for} if job.waiting_for else {}),
    )


def log_tail(client: Client, identity: str) -> list[str]:
    """The last lines of a job's log; none where the registry does not tell."""
    try:
        return client.log(identity)[0].decode("utf-8", "replace").splitlines()[-TAIL:]
    except MxrError:
        return []
