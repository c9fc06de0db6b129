"""Survey and watch many requests: which have an artifact, which an open job, which can be compiled, in what time.

Each reply is what a submission of the request would find now. A survey writes nothing and counts no miss.

A watch returns the jobs that changed since the versions that the client knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from mxr.artifact.attributes import Constraints, Request
from mxr.errors import Json, UsageError
from mxr.protocol import jobs as job_protocol
from mxr.protocol.jobs import RUNNING, JobFailure
from mxr.protocol.surveys import MAX_TOLD, RequestStatus, Survey, SurveyReply
from mxr.util.codec import canonical, decode
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import resolution
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session

from . import askers, counts, estimates, failures, submission, tracking
from .live_capabilities import LiveCapabilities


def survey(session: Session, rules: JobRules, caller: Caller, message: Survey) -> SurveyReply:
    """Return the status of each request, with the open jobs that the caller may see.

    Raises `TooLargeError` as `LiveCapabilities.able` does.
    """
    surveyor = _Surveyor(session, rules, caller)
    return SurveyReply(tuple(surveyor.status_of(request) for request in message.requests))


class _Surveyor:
    """Determines the status of requests, and caches results that several requests share."""

    def __init__(self, session: Session, rules: JobRules, caller: Caller) -> None:
        self._session, self._namespace, self._viewer = session, caller.namespace, caller.owner
        self._live = LiveCapabilities(session, rules, caller.namespace, {caller.principal})
        self._seen = counts.SeenHosts(session, caller.namespace)
        self._able: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self._estimates: dict[tuple[str, str | None], tuple[float | None, str | None]] = {}

    def status_of(self, request: Request) -> RequestStatus:
        try:
            found = resolution.find_compiled(self._session, self._namespace, request)
        except UsageError as problem:
            return RequestStatus(problem=f"{problem.message} {problem.hint}")
        if found is not None:
            return RequestStatus(found[0].id, found[1])
        request = self._seen.complete(request)
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


BATCH = 500
"""Ids per statement. Databases limit the number of parameters."""


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The reply, whether it contains a change, and the ids of the jobs that can still change."""

    reply: Json
    has_changes: bool
    open: frozenset[str]


def changed(session: Session, namespace: str, known: Mapping[str, int], viewer: str | None = None) -> WatchResult:
    """Return the jobs with a newer version than the known one, earliest change first, and the ids that do not exist.

    `known` maps job ids to versions.
    """
    ids = list(known)
    found: list[Row] = []
    for begin in range(0, len(ids), BATCH):
        batch = ids[begin : begin + BATCH]
        query = select(JobRow.id, JobRow.seq, JobRow.version, JobRow.state).where(
            JobRow.namespace == namespace, JobRow.id.in_(batch), *askers.seen_by(viewer)
        )
        found += session.execute(query).all()
    existing = {row.id for row in found}
    gone = [id for id in ids if id not in existing]
    newer = sorted((row for row in found if row.version > known[row.id]), key=lambda row: row.version)
    jobs = [_document(session, row.seq) for row in newer[:MAX_TOLD]]
    still_open = frozenset(row.id for row in found if row.state in job_protocol.OPEN)
    return WatchResult({"jobs": jobs, "gone": gone}, bool(newer or gone), still_open)


def _document(session: Session, seq: int) -> Json:
    """A job without its queue position, which takes one more query per queued job."""
    row = session.execute(tracking.BY_SEQ, {"of": seq}).one()
    seconds, rests_on = None, None
    if row.state in job_protocol.OPEN:
        seconds, rests_on = estimates.estimate(session, row.namespace, row.model, row.arch)
    return tracking.job_document(row) | {"estimate": seconds, "estimate_from": rests_on}
