"""The words of API v1 for pipelines, which ask about many programs at once: surveys, and watching many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mxr.artifact.qualities import Request
from mxr.util.codec import refuse

from .jobs import Job, JobFailure

MOST_SURVEYED = 1_000
"""Requests in one survey."""

MOST_WATCHED = 20_000
"""Jobs in one watch."""

MOST_TOLD = 500
"""Jobs in one answer to a watch; the rest comes with the next."""


@dataclass(frozen=True, slots=True)
class Survey:
    """How do these requests stand? Nothing is made, queued or counted as a miss."""

    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        if len(self.requests) > MOST_SURVEYED:
            raise refuse("requests", f"at most {MOST_SURVEYED} requests", len(self.requests))


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """How one request stands: the `artifact` that a resolve would choose, with its `match`; else what could be done.

    `job` is the open job that an asker would be attached to, `state` its state. `able`: something live or declared
    could compile it. `failure`: what an asker would be told at once. `estimate` is in seconds for the compile,
    `estimate_from` what it rests on. `problem`: why this request cannot be answered at all.
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
    """The reply of `POST /v1/survey`: one standing for each request, in the same order."""

    standings: tuple[RequestStatus, ...]


@dataclass(frozen=True, slots=True)
class WatchJobs:
    """Which of these jobs changed? `jobs` has the version that the asker knows for each id; `wait` as for one job."""

    jobs: Mapping[str, int]
    wait: float = 0

    def __post_init__(self) -> None:
        if len(self.jobs) > MOST_WATCHED:
            raise refuse("jobs", f"at most {MOST_WATCHED} jobs", len(self.jobs))
        if not 0 <= self.wait <= 60:
            raise refuse("wait", "0 to 60 seconds", self.wait)


@dataclass(frozen=True, slots=True)
class ChangedJobs:
    """The reply of `POST /v1/jobs/watch`: those that changed, without place; and the ids that there are not."""

    jobs: tuple[Job, ...]
    gone: tuple[str, ...] = ()
