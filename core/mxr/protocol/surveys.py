"""The messages of API v1 about many programs at once: surveys of requests, and watching many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxr.artifact.attributes import Request
from mxr.artifact.limits import MAX_SURVEYED, MAX_WATCHED, check_count
from mxr.util.codec import refuse

from .jobs import Job, JobFailure

MAX_TOLD = 500
"""Maximum number of jobs in one reply to a watch. The next reply contains the others."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Asks for the status of requests. Creates and queues nothing, and counts no misses."""

    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        check_count(self.requests, MAX_SURVEYED, "requests", "requests")


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The status of one request.

    `artifact`: the artifact that a resolve would choose, with its `match`. Without one: `job` is the open job that a
    compile request would join, if the caller asked for it, and `state` its state. `able`: a live worker or a declared
    pool can compile it. `failure`: the cached failure that a compile request would return. `estimate`: seconds for the
    compile; `estimate_from`: its basis. `problem`: why the request is ambiguous or invalid.
    """

    artifact: str | None = None
    match: Mapping[str, Any] = field(default_factory=dict)
    job: str | None = None
    state: str | None = None
    able: bool = False
    failure: JobFailure | None = None
    estimate: float | None = None
    estimate_from: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SurveyReply:
    """The reply of `POST /v1/survey`: the status of each request, in the same order."""

    standings: tuple[RequestStatus, ...]


@dataclass(frozen=True, slots=True)
class WatchJobs:
    """Asks which jobs changed. `jobs`: the known version by job id. `wait`: seconds to wait for a change."""

    jobs: Mapping[str, int]
    wait: float = 0

    def __post_init__(self) -> None:
        check_count(self.jobs, MAX_WATCHED, "jobs", "jobs")
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class ChangedJobs:
    """The reply of `POST /v1/jobs/watch`: the changed jobs, without `place`, and the ids that do not exist."""

    jobs: tuple[Job, ...]
    gone: tuple[str, ...] = ()
