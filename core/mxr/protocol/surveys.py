"""The messages of API v1 about many programs at once: surveys of requests, and watching many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from mxr.artifact import field_docs, limits
from mxr.artifact.attributes import Request
from mxr.artifact.field_docs import SHA256
from mxr.artifact.matching import Match
from mxr.util.codec import refuse
from mxr.util.doc import Doc

from .jobs import STATES, Job, JobFailure

MAX_TOLD = 500
"""Maximum number of jobs in one reply to a watch. The next reply contains the others."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Asks for the status of requests. Creates and queues nothing, and counts no misses."""

    requests: Annotated[tuple[Request, ...], Doc("The requests.", maxItems=limits.MAX_SURVEYED)]

    def __post_init__(self) -> None:
        limits.check_count(self.requests, limits.MAX_SURVEYED, "requests", "requests")


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """The status of one request.

    Without an artifact, it has the open job that a compile request would join, if the caller asked for it.
    """

    artifact: Annotated[str | None, Doc("The id of the artifact that a resolve would choose.", pattern=SHA256)] = None
    match: Annotated[Match | None, field_docs.MATCH] = None
    job: Annotated[str | None, Doc("The open job that a compile request would join.", pattern=field_docs.ID)] = None
    state: Annotated[str | None, Doc("The state.", enum=STATES)] = None
    able: Annotated[bool, Doc("A live worker or a declared pool can compile it.")] = False
    failure: Annotated[JobFailure | None, Doc("The remembered failure that a compile request would get.")] = None
    estimate: Annotated[float | None, field_docs.ESTIMATE] = None
    estimate_from: Annotated[str | None, field_docs.ESTIMATE_FROM] = None
    problem: Annotated[str | None, Doc("Why the request is ambiguous or invalid.")] = None


@dataclass(frozen=True, slots=True)
class SurveyReply:
    """The reply of `POST /v1/survey`: the status of each request, in the same order."""

    standings: Annotated[tuple[RequestStatus, ...], Doc("The status of each request, in the same order.")]


@dataclass(frozen=True, slots=True)
class WatchJobs:
    """Asks which jobs changed."""

    jobs: Annotated[
        Mapping[str, int], Doc("The known version of each job, by its id.", maxProperties=limits.MAX_WATCHED)
    ]
    wait: Annotated[float, field_docs.WAIT] = 0

    def __post_init__(self) -> None:
        limits.check_count(self.jobs, limits.MAX_WATCHED, "jobs", "jobs")
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class ChangedJobs:
    """The reply of `POST /v1/jobs/watch`: the changed jobs, without `place`, and the ids that do not exist."""

    jobs: Annotated[tuple[Job, ...], Doc("The changed jobs, without their places in the queue.")]
    gone: Annotated[tuple[str, ...], Doc("The ids of jobs that do not exist.")] = ()
