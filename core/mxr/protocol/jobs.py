"""The messages of API v1 about compiles: jobs, leases and workers.

A job is one requested compile. A request joins an open job if every result that the job permits would satisfy the
request; otherwise it creates a new job. A worker that claims a job gets a lease with a fencing number, which all its
messages about the job contain. After another worker got a lease, messages with the old number are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxr.artifact import limits
from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest, check_sha256
from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.host_facts import HostTarget, HostToolchain
from mxr.util.codec import Timestamp, encode, refuse

from .artifacts import Publish

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)

PERMANENT, TRANSIENT, POISON = "permanent", "transient", "poison"
FAILURE_KINDS = (PERMANENT, TRANSIENT, POISON)


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Requests a compile. The model must be registered with its bytes, and the calibration data uploaded as a blob.

    `key` and `constraints` are those of a resolve: what `POST /v1/resolve` did not find can be sent to `POST /v1/jobs`.
    `require_worker`: raise `NoWorkerError` if no live worker and no declared pool can compile it; otherwise the job
    waits for such a worker. `retry`: clear cached failures first. Jobs with a higher `priority` (-100 to 100) are
    claimed first. `file_name`: only for a key of ONNX Runtime's form, which depends on it: the name under which the
    model is opened.
    """

    key: Key
    constraints: Constraints = field(default_factory=Constraints)
    require_worker: bool = False
    retry: bool = False
    priority: int = 0
    file_name: str | None = None

    @property
    def request(self) -> Request:
        """What the compiled program must satisfy. Raises `UsageError`."""
        return Request(self.key, self.constraints)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", self.request.constraints)
        if not -100 <= self.priority <= 100:
            raise refuse("priority", "a number from -100 to 100", self.priority)


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed. `kind`: permanent, transient or poison. `name`: a failure in the table of `mxr explain`."""

    kind: str
    message: str
    name: str = "unknown"

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise refuse("kind", " or ".join(FAILURE_KINDS), self.kind)
        limits.check_length(self.name, limits.MAX_WORD_LENGTH, "name")
        limits.check_length(self.message, limits.MAX_MESSAGE_LENGTH, "message")


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Times are by the clock of the registry's database.

    `version` increases with every change; long polls wait for a larger one. `place`: position in the queue, 1 for the
    next job to be claimed. `estimate`: seconds for the whole compile; `estimate_from`: its basis. `artifact`: id of the
    result. `waiting_for`: the worker that a queued job needs, if no live worker and no declared pool can compile it.
    `model_name`: the name with which the model was registered, a label.
    """

    id: str
    state: str
    digest: str
    request: Request
    attempts: int
    version: int
    created_at: Timestamp
    updated_at: Timestamp
    priority: int = 0
    started_at: Timestamp | None = None
    phase: str | None = None
    worker: str | None = None
    place: int | None = None
    estimate: float | None = None
    estimate_from: str | None = None
    artifact: str | None = None
    failure: JobFailure | None = None
    waiting_for: str | None = None
    model_name: str | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """The reply of `GET /v1/jobs`, latest first."""

    items: tuple[Job, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerCapabilities:
    """What a worker or a declared pool can compile: its targets, with one toolchain.

    `cross`: its MIGraphX can cross-compile for AMD GPUs that it does not have. `ort`: the ONNX Runtime whose files it
    can record. `eager`: its MIGraphX has compile modes.
    """

    targets: tuple[HostTarget, ...]
    toolchain: HostToolchain
    cross: bool = False
    ort: OrtRuntime | None = None
    eager: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.targets) <= limits.MAX_TARGETS:
            raise refuse("can.targets", f"1 to {limits.MAX_TARGETS} targets", len(self.targets))
        for index, target in enumerate(self.targets):
            for name in ("node", "render_minor", "vram"):
                value = getattr(target, name)
                if value is not None and value < 0:
                    raise refuse(f"can.targets[{index}].{name}", "0 or more", value)
        limits.check_document(encode(self), limits.MAX_CAPABILITIES_BYTES, limits.MAX_PROVENANCE_DEPTH, "can")


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """Registers the capabilities of a worker under a name that stays the same after a restart, such as host and GPU."""

    name: str
    can: WorkerCapabilities

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise refuse("name", "a name of 1 to 200 characters", self.name)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker. `state`: idle, busy, lost, or left (signed off). `seen_at`: time of its last message."""

    id: str
    name: str
    state: str
    can: WorkerCapabilities
    seen_at: Timestamp
    job: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """A declared pool of workers, which can be scaled to zero."""

    name: str
    can: WorkerCapabilities
    queued: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class Workers:
    """The reply of `GET /v1/workers`."""

    items: tuple[WorkerInfo, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Pools:
    """The reply of `GET /v1/pools`."""

    items: tuple[DeclaredPool, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Open jobs: how many are queued and running, and the age of the oldest queued one."""

    queued: int
    running: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The reply of `GET /v1/queue`: in total, for each declared pool the jobs that it can compile, and for each lane.

    `kinds`: by the name of a lane, which a worker serves or not as a whole.
    """

    queued: int
    running: int
    oldest_seconds: float
    pools: Mapping[str, QueueCounts]
    kinds: Mapping[str, QueueCounts]


@dataclass(frozen=True, slots=True)
class Claim:
    """Claims a job for a registered worker. Waits up to `wait` seconds. `job`: claim this job only."""

    worker: str
    wait: float = 0
    job: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed job. The worker keeps it, under the fencing number `fence`, until `seconds` pass without a heartbeat.

    `onnx`: name of the ONNX file in `model`. `target`: index of the chosen target in the worker's `can.targets`.
    `cross`: compile for the GPU that key and constraints describe instead of that target. `file_name`: see
    `CompileRequest`.
    """

    job: str
    fence: int
    seconds: float
    key: Key
    constraints: Constraints
    model: Manifest
    onnx: str
    target: int = 0
    attempt: int = 1
    cross: bool = False
    file_name: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """The reply to a claim: a lease, or None if there was no job."""

    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Renews a lease, with the current phase and the log text since the last heartbeat."""

    fence: int
    phase: str = "compile"
    log: str = ""

    def __post_init__(self) -> None:
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")
        limits.check_length(self.phase, limits.MAX_PHASE_LENGTH, "phase")


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat: the remaining seconds of the lease, and whether the job was cancelled."""

    seconds: float
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Publishes `artifact` and closes the job, in one transaction."""

    fence: int
    artifact: Publish
    log: str = ""

    def __post_init__(self) -> None:
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")


@dataclass(frozen=True, slots=True)
class FailJob:
    """Reports that the job failed on this worker."""

    fence: int
    failure: JobFailure
    log: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")
        limits.check_document(self.provenance, limits.MAX_PROVENANCE_BYTES, limits.MAX_PROVENANCE_DEPTH, "provenance")


@dataclass(frozen=True, slots=True)
class HandBackJob:
    """Returns the job of a worker that stops. It does not count as an attempt."""

    fence: int


def check_job(identity: str) -> str:
    """Return `identity` if it is the id of a job, or at least 8 digits of it. Raises `UsageError`."""
    return check_sha256(identity, "job") if len(identity) == 64 else _short(identity)


def _short(identity: str) -> str:
    if not (8 <= len(identity) < 64 and all(letter in "0123456789abcdef" for letter in identity)):
        raise refuse("job", "the id of a job, or at least its first 8 digits", identity)
    return identity
