"""The words of API v1 about compiling: jobs, leases and workers, as frozen values.

A job is one wanted compile. An asker attaches to an open one when every result that it permits would satisfy the asker,
else it makes a new one. A worker that claims a job gets a lease with a fencing number, and speaks of the job only with
that number: one that lost its lease can neither publish nor finish over its successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest, check_sha256
from mxr.artifact.qualities import Demands, Request
from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.host_facts import HostTarget, HostToolchain
from mxr.util.codec import refuse

from .artifacts import MOST_PROVENANCE, Publish

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)

PERMANENT, TRANSIENT, POISON = "permanent", "transient", "poison"
FAILURE_KINDS = (PERMANENT, TRANSIENT, POISON)

MOST_LOG = 256 * 1024
"""Characters of log in one message of a worker."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Ask for a compile. The model must be registered complete, the calibration data uploaded as a blob.

    `wait` refuses (`NoWorker`) when nothing live or declared could do it; without it the job waits for such a worker.
    `retry` clears remembered failures first. A higher `priority` (-100 to 100) is claimed first. `file_name` is for a
    key of ONNX Runtime's form alone, which was made of it: what the model is called where it is opened.
    """

    request: Request
    wait: bool = False
    retry: bool = False
    priority: int = 0
    file_name: str | None = None

    def __post_init__(self) -> None:
        if not -100 <= self.priority <= 100:
            raise refuse("priority", "a number from -100 to 100", self.priority)


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed: `kind` is permanent, transient or poison; `name` is one that `mxr explain` knows."""

    kind: str
    message: str
    name: str = "unknown"

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise refuse("kind", " or ".join(FAILURE_KINDS), self.kind)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as an asker sees it. Times are seconds since 1970 by the registry's database.

    `version` grows with every change (long polls wait for a larger one). `place` is 1 for the next to be claimed.
    `estimate` is in seconds for the whole compile, with `estimate_from` saying what it rests on. `artifact` is the id
    of what came of it. `waiting_for`: the worker that a queued job needs, where nothing live or declared can do it now.
    """

    id: str
    state: str
    digest: str
    request: Request
    attempts: int
    version: int
    created_at: float
    updated_at: float
    priority: int = 0
    started_at: float | None = None
    phase: str | None = None
    worker: str | None = None
    place: int | None = None
    estimate: float | None = None
    estimate_from: str | None = None
    artifact: str | None = None
    failure: JobFailure | None = None
    waiting_for: str | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """The reply of `GET /v1/jobs`, the latest first."""

    jobs: tuple[Job, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerCapabilities:
    """What a worker, or a declared pool, can compile for: targets, one toolchain.

    `cross`: its MIGraphX can also compile for AMD's GPUs that are not there. `ort`: the ONNX Runtime whose files it can
    record.
    """

    targets: tuple[HostTarget, ...]
    toolchain: HostToolchain
    cross: bool = False
    ort: OrtRuntime | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.targets) <= 64:
            raise refuse("can.targets", "1 to 64 targets", len(self.targets))


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """A worker says what it can do, under a name that it keeps over restarts (host and GPU, say)."""

    name: str
    can: WorkerCapabilities

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise refuse("name", "a name of 1 to 200 characters", self.name)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker: `state` is idle, busy, lost, or left (it signed off); `seen_at` when it last spoke."""

    id: str
    name: str
    state: str
    can: WorkerCapabilities
    seen_at: float
    job: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """A declared kind of worker that may stand at zero."""

    name: str
    can: WorkerCapabilities
    queued: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class Workers:
    """The reply of `GET /v1/workers`."""

    workers: tuple[WorkerInfo, ...]
    pools: tuple[DeclaredPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A registered worker asks for a job, waiting up to `wait` seconds for one; `job` names the only one it wants."""

    worker: str
    wait: float = 0
    job: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job to do: until `seconds` pass without a heartbeat it is this worker's, under the number `fence`.

    `onnx` names the ONNX file in `model`; `target` is the index in the worker's `can.targets` that was chosen. `cross`:
    the program is for the GPU that key and demands describe, and not for that target. `file_name`: see `Ask`.
    """

    job: str
    fence: int
    seconds: float
    key: Key
    demands: Demands
    model: Manifest
    onnx: str
    target: int = 0
    attempt: int = 1
    cross: bool = False
    file_name: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """The reply of a claim: a lease, or none after the wait."""

    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker is alive: the phase it is in, and what came to the log since the last."""

    fence: int
    phase: str = "compile"
    log: str = ""

    def __post_init__(self) -> None:
        if len(self.log) > MOST_LOG or len(self.phase) > 40:
            raise refuse("log", f"at most {MOST_LOG} characters", len(self.log))


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat: how long the lease goes on, and whether somebody cancelled the job."""

    seconds: float
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The job is done: publishes `artifact` and closes the job, both or neither."""

    fence: int
    artifact: Publish
    log: str = ""


@dataclass(frozen=True, slots=True)
class FailJob:
    """The job failed here."""

    fence: int
    failure: JobFailure
    log: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.log) > MOST_LOG or len(str(self.provenance)) > MOST_PROVENANCE:
            raise refuse("log", f"at most {MOST_LOG} characters", len(self.log))


@dataclass(frozen=True, slots=True)
class HandBackJob:
    """A worker that stops gives its job back; it counts as no attempt."""

    fence: int


def covers(permitted: Demands, asked: Demands) -> bool:
    """Whether every result that a job with the demands `permitted` may have would satisfy `asked` as well.

    True only where each demand of the asker is a demand of the job, and the job lets nothing pass that the asker does
    not. Once a job is claimed its result is known, and `judge` decides instead.
    """
    for name in ("sramecc", "xnack", "num_cu", "chiplets", "rocm_patch", "migraphx_patch", "build", "tuning"):
        if getattr(asked, name) not in (None, getattr(permitted, name)):
            return False
    if asked.real_arch != permitted.real_arch:
        return False
    return set(permitted.allow) <= set(asked.allow) and (permitted.exact or not asked.exact)


def check_job(identity: str) -> str:
    """`identity`, when it is a job's id. Raises `Usage`."""
    return check_sha256(identity, "job") if len(identity) == 64 else _short(identity)


def _short(identity: str) -> str:
    if not (8 <= len(identity) < 64 and all(letter in "0123456789abcdef" for letter in identity)):
        raise refuse("job", "a job's id, or at least 8 digits of it", identity)
    return identity
