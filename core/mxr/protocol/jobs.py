"""The messages of API v1 about compiles: jobs, leases and workers.

A job is one requested compile. A request joins an open job if every result that the job permits would satisfy the
request; otherwise it creates a new job. A worker makes its secrets itself, and the registry keeps their sha256: its
credential, and for each claim one that stands for the lease. All its messages about the job have the latter; after
another worker got the job, they are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from mxr.artifact import field_docs, limits
from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.field_docs import SHA256
from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest, check_sha256
from mxr.artifact.target import BASE_ARCH
from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.errors import UsageError
from mxr.host_facts import HostTarget, HostToolchain
from mxr.trust.envelope import Envelope
from mxr.util.codec import Timestamp, encode, refuse
from mxr.util.doc import Doc

from .access import NAME
from .artifacts import Publish

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)

PERMANENT, TRANSIENT, POISON = "permanent", "transient", "poison"
FAILURE_KINDS = (PERMANENT, TRANSIENT, POISON)

WORKER_STATES = ("idle", "busy", "lost", "left")


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Requests a compile. The model must be registered with its bytes, and the calibration data uploaded as a blob.

    What `POST /v1/resolve` did not find can be sent as it is. Without `require_worker`, the job waits for a worker.
    """

    key: Annotated[Key, field_docs.KEY]
    constraints: Annotated[Constraints, field_docs.CONSTRAINTS] = field(default_factory=Constraints)
    require_worker: Annotated[
        bool, Doc("Answer 409 `no_worker` if no live worker and no declared pool can compile it.")
    ] = False
    retry: Annotated[bool, Doc("Forget the remembered failures of this key first.")] = False
    priority: Annotated[int, field_docs.PRIORITY] = 0
    file_name: Annotated[
        str | None,
        field_docs.FILE_NAME,
    ] = None

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
    """Why a job failed."""

    kind: Annotated[
        str,
        Doc(
            "`permanent`: it fails each time. `transient`: another attempt can succeed. `poison`: it crashes.",
            enum=FAILURE_KINDS,
        ),
    ]
    message: Annotated[str, Doc("What went wrong.", maxLength=limits.MAX_MESSAGE_LENGTH)]
    name: Annotated[
        str, Doc("The name of the failure in the table of `mxr explain`.", maxLength=limits.MAX_WORD_LENGTH)
    ] = "unknown"

    def __post_init__(self) -> None:
        limits.check_length(self.name, limits.MAX_WORD_LENGTH, "name")
        limits.check_length(self.message, limits.MAX_MESSAGE_LENGTH, "message")


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Times are by the clock of the registry's database."""

    id: Annotated[str, Doc("The id of the job; empty if no job was needed.", pattern="^([0-9a-f]{32})?$")]
    state: Annotated[str, Doc("The state.", enum=STATES)]
    digest: Annotated[str, field_docs.DIGEST]
    request: Annotated[Request, Doc("What the compiled program must satisfy.")]
    attempts: Annotated[int, Doc("How often a worker has tried.", minimum=0)]
    version: Annotated[int, Doc("It increases with each change; a long poll waits for a larger one.", minimum=0)]
    created_at: Annotated[Timestamp, field_docs.CREATED_AT]
    updated_at: Annotated[Timestamp, field_docs.UPDATED_AT]
    priority: Annotated[int, field_docs.PRIORITY] = 0
    started_at: Annotated[Timestamp | None, Doc("When a worker claimed it first.")] = None
    phase: Annotated[str | None, field_docs.PHASE] = None
    worker: Annotated[str | None, field_docs.WORKER] = None
    place: Annotated[int | None, Doc("The position in the queue; 1 is the next job to be claimed.", minimum=1)] = None
    estimate: Annotated[float | None, field_docs.ESTIMATE] = None
    estimate_from: Annotated[str | None, field_docs.ESTIMATE_FROM] = None
    artifact: Annotated[str | None, Doc("The id of the result.", pattern=SHA256)] = None
    failure: Annotated[JobFailure | None, Doc("Why it failed.")] = None
    waiting_for: Annotated[str | None, Doc("The worker that a queued job needs, if none can compile it.")] = None
    model_name: Annotated[str | None, field_docs.MODEL_NAME] = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """The reply of `GET /v1/jobs`, latest first."""

    items: Annotated[tuple[Job, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class WorkerCapabilities:
    """What a worker or a declared pool can compile: its targets, with one toolchain."""

    targets: Annotated[
        tuple[HostTarget, ...],
        Doc(
            "The GPUs, or the reference target; empty for a host that only cross-compiles.", maxItems=limits.MAX_TARGETS
        ),
    ]
    toolchain: Annotated[HostToolchain, Doc("The software that compiles.")]
    cross: Annotated[bool, Doc("It can cross-compile for AMD GPUs that it does not have.")] = False
    ort: Annotated[OrtRuntime | None, Doc("The ONNX Runtime whose files it can record.")] = None
    eager: Annotated[bool, Doc("Its MIGraphX has compile modes, and can compile eagerly.")] = False
    walls: Annotated[bool | None, Doc("Whether all walls around its compiles hold, as it found; null: not told.")] = (
        None
    )
    cross_for: Annotated[
        tuple[str, ...],
        Doc(
            "The archs for which it cross-compiles; empty: each.",
            items={"pattern": BASE_ARCH.pattern},
            maxItems=limits.MAX_TARGETS,
        ),
    ] = ()
    trusts: Annotated[
        tuple[str, ...] | None,
        Doc(
            "It takes only jobs that one of these principals asked for, and its own; null: those of everybody.",
            maxItems=limits.MAX_TRUSTED,
        ),
    ] = None

    def takes_from(self, askers: Collection[str] | None) -> bool:
        """Whether it takes a job that these principals asked for; None: whoever they are."""
        return self.trusts is None or askers is None or not set(self.trusts).isdisjoint(askers)

    def __post_init__(self) -> None:
        if len(self.trusts or ()) > limits.MAX_TRUSTED or not all(map(NAME.fullmatch, self.trusts or ())):
            raise refuse("can.trusts", f"at most {limits.MAX_TRUSTED} names of principals", self.trusts)
        least = 0 if self.cross else 1
        if not least <= len(self.targets) <= limits.MAX_TARGETS:
            raise refuse("can.targets", f"{least} to {limits.MAX_TARGETS} targets", len(self.targets))
        archs = self.cross_for
        if len(archs) > limits.MAX_TARGETS or (archs and not self.cross) or not all(map(BASE_ARCH.fullmatch, archs)):
            raise refuse("can.cross_for", "archs such as gfx942, with `cross` true", archs)
        for index, target in enumerate(self.targets):
            for name in ("node", "render_minor", "vram"):
                value = getattr(target, name)
                if value is not None and value < 0:
                    raise refuse(f"can.targets[{index}].{name}", "0 or more", value)
        limits.check_document(encode(self), limits.MAX_CAPABILITIES_BYTES, limits.MAX_PROVENANCE_DEPTH, "can")


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """Registers the capabilities of a worker under a name that stays the same after a restart, such as host and GPU.

    While it is live, only who has its credential can register under its name.
    """

    name: Annotated[str, Doc("A name that stays the same after a restart.", minLength=1, maxLength=200)]
    can: Annotated[WorkerCapabilities, field_docs.CAN]
    credential: Annotated[str, field_docs.CREDENTIAL] = field(repr=False)

    def __post_init__(self) -> None:
        check_secret(self.credential, "credential")
        if not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise refuse("name", "a name of 1 to 200 characters", self.name)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker."""

    id: Annotated[str, field_docs.WORKER_ID]
    name: Annotated[str, field_docs.NAME]
    state: Annotated[str, Doc("`lost`: it was not heard of for too long. `left`: it signed off.", enum=WORKER_STATES)]
    can: Annotated[WorkerCapabilities, field_docs.CAN]
    seen_at: Annotated[Timestamp, Doc("When its last message came.")]
    job: Annotated[str | None, Doc("The job that it compiles now.", pattern=field_docs.ID)] = None


@dataclass(frozen=True, slots=True)
class DeclaredPool:
    """A declared pool of workers, which can be scaled to zero."""

    name: Annotated[str, field_docs.NAME]
    can: Annotated[WorkerCapabilities, field_docs.CAN]
    queued: Annotated[int, field_docs.QUEUED] = 0
    running: Annotated[int, field_docs.RUNNING] = 0


@dataclass(frozen=True, slots=True)
class Workers:
    """The reply of `GET /v1/workers`."""

    items: Annotated[tuple[WorkerInfo, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class Pools:
    """The reply of `GET /v1/pools`."""

    items: Annotated[tuple[DeclaredPool, ...], field_docs.ITEMS]
    next: Annotated[str | None, field_docs.NEXT] = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Open jobs: how many are queued and running, and the age of the oldest queued one."""

    queued: Annotated[int, field_docs.QUEUED]
    running: Annotated[int, field_docs.RUNNING]
    oldest_seconds: Annotated[float, field_docs.OLDEST_SECONDS]


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The reply of `GET /v1/queue`: in total, for each declared pool and for each lane."""

    queued: Annotated[int, field_docs.QUEUED]
    running: Annotated[int, field_docs.RUNNING]
    oldest_seconds: Annotated[float, field_docs.OLDEST_SECONDS]
    pools: Annotated[Mapping[str, QueueCounts], Doc("For each declared pool: the jobs that it can compile.")]
    kinds: Annotated[Mapping[str, QueueCounts], Doc("For each lane: jobs that the same workers can compile.")]


@dataclass(frozen=True, slots=True)
class SignOff:
    """Signs a worker off."""

    credential: Annotated[str, field_docs.CREDENTIAL] = field(repr=False)

    def __post_init__(self) -> None:
        check_secret(self.credential, "credential")


@dataclass(frozen=True, slots=True)
class Claim:
    """Claims a job for a registered worker. Waits for one up to `wait` seconds.

    The same claim again, with the same secret `lease`, gets the same lease.
    """

    credential: Annotated[str, field_docs.CREDENTIAL] = field(repr=False)
    lease: Annotated[str, field_docs.LEASE] = field(repr=False)
    wait: Annotated[float, field_docs.WAIT] = 0
    job: Annotated[str | None, Doc("Claim this job only.", pattern=field_docs.ID)] = None

    def __post_init__(self) -> None:
        check_secret(self.credential, "credential")
        check_secret(self.lease, "lease")
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed job. The worker keeps it, with the secret of its claim, until `seconds` pass without a heartbeat."""

    job: Annotated[str, Doc("The id of a job.", pattern=field_docs.ID)]
    seconds: Annotated[float, field_docs.LEASE_SECONDS]
    key: Annotated[Key, field_docs.KEY]
    constraints: Annotated[Constraints, field_docs.CONSTRAINTS]
    model: Annotated[Manifest, Doc("The files of the model.")]
    onnx: Annotated[str, field_docs.ONNX]
    target: Annotated[int, Doc("The index of the chosen target in `can.targets`.", minimum=0)] = 0
    attempt: Annotated[int, Doc("The number of this attempt; 1 is the first.", minimum=1)] = 1
    cross: Annotated[bool, Doc("Compile for the GPU that key and constraints describe, instead of the target.")] = False
    file_name: Annotated[
        str | None,
        field_docs.FILE_NAME,
    ] = None
    alone: Annotated[bool, Doc("It crashed before: compile nothing else on this host meanwhile.")] = False


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """The reply to a claim: a lease, or None if there was no job."""

    lease: Annotated[Lease | None, Doc("The lease; null if there was no job.")] = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Renews a lease, with the current phase and the log text since the last heartbeat."""

    lease: Annotated[str, field_docs.LEASE] = field(repr=False)
    phase: Annotated[str, field_docs.PHASE] = "compile"
    log: Annotated[str, field_docs.LOG] = ""

    def __post_init__(self) -> None:
        check_secret(self.lease, "lease")
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")
        limits.check_length(self.phase, limits.MAX_PHASE_LENGTH, "phase")


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a heartbeat: the remaining seconds of the lease, and whether the job was cancelled."""

    seconds: Annotated[float, field_docs.LEASE_SECONDS]
    cancelled: Annotated[bool, Doc("The job was cancelled: stop the compile.")] = False


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Publishes `artifact` and closes the job, in one transaction."""

    lease: Annotated[str, field_docs.LEASE] = field(repr=False)
    artifact: Annotated[Publish, Doc("The compiled program.")]
    log: Annotated[str, field_docs.LOG] = ""
    built: Annotated[
        Envelope | None, Doc("That the worker built it, signed with its key, which an operator enrolled.")
    ] = None

    def __post_init__(self) -> None:
        check_secret(self.lease, "lease")
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")


@dataclass(frozen=True, slots=True)
class FailJob:
    """Reports that the job failed on this worker."""

    lease: Annotated[str, field_docs.LEASE] = field(repr=False)
    failure: Annotated[JobFailure, Doc("Why it failed.")]
    log: Annotated[str, field_docs.LOG] = ""
    provenance: Annotated[Mapping[str, Any], field_docs.PROVENANCE] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_secret(self.lease, "lease")
        if self.failure.kind not in FAILURE_KINDS:
            raise refuse("failure.kind", " or ".join(FAILURE_KINDS), self.failure.kind)
        limits.check_length(self.log, limits.MAX_LOG_BYTES, "log")
        limits.check_document(self.provenance, limits.MAX_PROVENANCE_BYTES, limits.MAX_PROVENANCE_DEPTH, "provenance")


@dataclass(frozen=True, slots=True)
class HandBackJob:
    """Returns the job of a worker that stops. It does not count as an attempt."""

    lease: Annotated[str, field_docs.LEASE] = field(repr=False)

    def __post_init__(self) -> None:
        check_secret(self.lease, "lease")


_SECRET = re.compile(field_docs.SECRET.strip("^$"))


def check_secret(secret: str, where: str) -> None:
    """Raise `UsageError`, which does not show it, for what is no secret of 256 bits in base64url."""
    if _SECRET.fullmatch(secret) is None:
        raise UsageError(f"{where}: expected 43 letters of base64url.", hint=f"Correct {where}: it is a random secret.")


def check_job(identity: str) -> str:
    """Return `identity` if it is the id of a job, or at least 8 digits of it. Raises `UsageError`."""
    return check_sha256(identity, "job") if len(identity) == 64 else _short(identity)


def _short(identity: str) -> str:
    if not (8 <= len(identity) < 64 and all(letter in "0123456789abcdef" for letter in identity)):
        raise refuse("job", "the id of a job, or at least its first 8 digits", identity)
    return identity
