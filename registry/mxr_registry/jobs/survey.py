"""Survey many requests: which have an artifact, which an open job, which can be compiled, and in what time.

Each reply is what a submission of the request would find now. A survey writes nothing and counts no miss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mxr.artifact.attributes import Constraints, Request
from mxr.errors import UsageError
from mxr.protocol.jobs import RUNNING, JobFailure
from mxr.protocol.surveys import RequestStatus, Survey, SurveyReply
from mxr.util.codec import canonical, decode, encode
from mxr_registry.artifacts import resolution
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Session

from . import askers, estimates, failures, submission
from .live_capabilities import LiveCapabilities


def survey(session: Session, rules: JobRules, namespace: str, wanted: Survey, viewer: str | None = None) -> str:
    """Return the JSON of a `SurveyReply`, with the open jobs that the viewer asked for; None: with all.

    Raises `TooLargeError` as `LiveCapabilities.able` does.
    """
    surveyor = _Surveyor(session, rules, namespace, viewer)
    return canonical(encode(SurveyReply(tuple(surveyor.status_of(request) for request in wanted.requests))))


class _Surveyor:
    """Determines the status of requests, and caches results that several requests share."""

    def __init__(self, session: Session, rules: JobRules, namespace: str, viewer: str | None) -> None:
        self._session, self._namespace, self._viewer = session, namespace, viewer
        self._live = LiveCapabilities(session, rules, namespace)
        self._able: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self._estimates: dict[tuple[str, str | None], tuple[float | None, str | None]] = {}

    def status_of(self, request: Request) -> RequestStatus:
        try:
            found = resolution.find_compiled(self._session, self._namespace, request)
        except UsageError as problem:
            return RequestStatus(problem=f"{problem.message} {problem.hint}")
        if found is not None:
            return RequestStatus(found[0].id, found[1].to_json())
        return self._status_without_artifact(request, request.key.digest)

    def _status_without_artifact(self, request: Request, digest: str) -> RequestStatus:
        constraints = canonical(request.to_json()["constraints"])
        able = self._toolchains(lanes.lane_of(request.key), constraints, request.constraints)
        job = submission.open_job(self._session, self._namespace, request)
        failure = None
        if job is None:
            terms = submission.terms_of(constraints)
            remembered = failures.remembered_for_all(self._session, self._namespace, digest, terms, able)
            failure = decode(JobFailure, json.loads(remembered.failure_json), lenient=True) if remembered else None
        # What a submission would join can be compiled, even if somebody else asked for it.
        joins = job is not None and job.state == RUNNING
        if job is not None and not askers.asked(self._session, job.seq, self._viewer):
            job = None
        seconds, rests_on = self._estimate(request)
        return RequestStatus(
            job=job.id if job else None,
            state=job.state if job else None,
            able=bool(able) or joins,
            failure=failure,
            estimate=seconds,
            estimate_from=rests_on,
        )

    def _toolchains(self, lane: str, text: str, constraints: Constraints) -> list[Mapping[str, Any]]:
        if (lane, text) not in self._able:
            self._able[lane, text] = self._live.able_toolchains(lane, constraints)
        return self._able[lane, text]

    def _estimate(self, request: Request) -> tuple[float | None, str | None]:
        model_and_arch = (request.key.model, request.key.arch)
        if model_and_arch not in self._estimates:
            self._estimates[model_and_arch] = estimates.estimate(self._session, self._namespace, *model_and_arch)
        return self._estimates[model_and_arch]
