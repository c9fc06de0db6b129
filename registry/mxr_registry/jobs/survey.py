"""Many requests, only looked at: what is there, what is on its way, what could be compiled, how long it took before.

Each answer is what an asker would meet at this moment; nothing is written, and no miss is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mxr.artifact import matching
from mxr.artifact.qualities import Request
from mxr.errors import Usage
from mxr.protocol.jobs import JobFailure
from mxr.protocol.surveys import RequestStatus, Survey, SurveyReply
from mxr.util.codec import canonical, decode, encode
from mxr_registry.artifacts import resolution
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Session

from . import estimates, failures, submission, workers


def survey(session: Session, rules: JobRules, namespace: str, asked: Survey) -> str:
    """The JSON of a `Surveyed`."""
    looks = _Looks(session, rules, namespace)
    return canonical(encode(SurveyReply(tuple(looks.at(request) for request in asked.requests))))


class _Looks:
    """Looks at requests one after the other; what many of them share is asked once."""

    def __init__(self, session: Session, rules: JobRules, namespace: str) -> None:
        self._session, self._rules, self._namespace = session, rules, namespace
        self._able: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self._took: dict[tuple[str, str | None], tuple[float | None, str | None]] = {}

    def at(self, request: Request) -> RequestStatus:
        asked = resolution.ResolveRequest.of(request)
        wanted = {"namespace": self._namespace, "digest": asked.digest, "generic": asked.generic_digest or asked.digest}
        rows = self._session.execute(resolution.ASKED, wanted).all()
        try:
            found = matching.choose(request.demands, resolution.candidates(rows, asked.digest, asked.family))
        except Usage as problem:
            return RequestStatus(problem=f"{problem.message} {problem.hint}")
        if found is not None:
            return RequestStatus(found[0].id, found[1].to_json())
        return self._missing(request, asked.digest)

    def _missing(self, request: Request, digest: str) -> RequestStatus:
        demands = canonical(request.to_json()["demands"])
        able = self._toolchains(lanes.lane_of(request.key), demands)
        job = submission.open_job(self._session, self._namespace, request)
        failure = None
        if job is None:
            terms = submission.terms_of(demands)
            remembered = failures.against_all(self._session, self._namespace, digest, terms, able)
            failure = decode(JobFailure, json.loads(remembered.failure_json), lenient=True) if remembered else None
        seconds, rests_on = self._estimate(request)
        return RequestStatus(
            job=job.id if job else None,
            state=job.state if job else None,
            able=bool(able),
            failure=failure,
            estimate=seconds,
            estimate_from=rests_on,
        )

    def _toolchains(self, lane: str, demands: str) -> list[Mapping[str, Any]]:
        if (lane, demands) not in self._able:
            self._able[lane, demands] = workers.able(self._session, self._rules, self._namespace, lane, demands)
        return self._able[lane, demands]

    def _estimate(self, request: Request) -> tuple[float | None, str | None]:
        of = (request.key.model, request.key.arch)
        if of not in self._took:
            self._took[of] = estimates.estimate(self._session, self._namespace, *of)
        return self._took[of]
