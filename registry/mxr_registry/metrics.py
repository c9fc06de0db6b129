"""Metrics for Prometheus. Jobs and workers are counted in the database, resolves in each process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Counter, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import case, func, select

from mxr.artifact.attributes import HARDWARE, PATCHES
from mxr.artifact.key import TARGET
from mxr.errors import MxrError, NoSuchArtifactError
from mxr.facts import CONSTRAINT, FACTS, KEY
from mxr.protocol import jobs as job_protocol
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow, WorkerRow
from mxr_registry.database.session import Session, now

REASONS = frozenset(fact.name for fact in FACTS if fact.place in (KEY, CONSTRAINT)) | {*("form", *HARDWARE, *PATCHES)}
"""Fields that can be the reason of a miss; all others count as `other`."""

_Line = tuple[Mapping[str, str], float]

# Otherwise each counter has a second metric: the time at which it began.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Counters:
    """Resolve hits and misses of this process since it started."""

    def __init__(self) -> None:
        self.hits = Counter("mxr_resolve_hits", "Resolves that found an artifact.", registry=None)
        self.misses = Counter(
            "mxr_resolve_misses",
            "Resolves that found no artifact, by the first field in which the nearest artifact differs.",
            ["reason"],
            registry=None,
        )

    def count_error(self, path: str, problem: MxrError) -> None:
        """Count an error reply to a resolve by its reason. Other paths are not counted."""
        if path == "/v1/resolve":
            self.misses.labels(reason_of(problem)).inc()


def reason_of(problem: MxrError) -> str:
    """Return the field in which the nearest artifact differs first.

    Returns `nothing` if the model has no artifact, and the code of any error other than `NoSuchArtifactError`.
    """
    if not isinstance(problem, NoSuchArtifactError):
        return problem.code
    nearest = problem.context.get("nearest") or []
    if not nearest:
        return "nothing"
    field = str(nearest[0]["differences"][0]["field"]).partition(".")[0]
    return field if field in REASONS else "other"


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def text(session: Session, rules: JobRules, counters: Counters) -> bytes:
    """Return all metrics in the text format 0.0.4."""
    families = [
        _gauge("mxr_jobs", "Jobs by state.", _jobs(session)),
        _gauge("mxr_queue_jobs", "Open jobs by required worker.", _queue(session)),
        _gauge("mxr_queue_oldest_seconds", "Age of the oldest queued job.", _oldest(session)),
        _gauge("mxr_workers", "Workers by state.", _workers(session, rules)),
        _compiles(session),
    ]
    return generate_latest(_Families([*families, *counters.hits.collect(), *counters.misses.collect()]))


def _gauge(name: str, about: str, lines: Iterable[_Line]) -> Metric:
    family = Metric(name, about, "gauge")
    for labels, value in lines:
        family.add_sample(name, dict(labels), value)
    return family


def _jobs(session: Session) -> list[_Line]:
    found = dict(session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).tuples().all())
    return [({"state": state}, found.get(state, 0)) for state in job_protocol.STATES]


def _queue(session: Session) -> list[_Line]:
    query = (
        select(JobRow.lane, JobRow.state, func.count())
        .where(JobRow.state.in_(job_protocol.OPEN))
        .group_by(JobRow.lane, JobRow.state)
    )
    return [(_labels(lane) | {"state": state}, count) for lane, state, count in session.execute(query)]


def _labels(lane: str) -> dict[str, str]:
    key = lanes.key_of(lane)
    found = {name: value for name in TARGET if (value := getattr(key, name)) is not None}
    return found if key.form == "whole" else found | {"form": key.form}


def _oldest(session: Session) -> list[_Line]:
    oldest = session.execute(select(func.min(JobRow.created_at)).where(JobRow.state == job_protocol.QUEUED)).scalar()
    return [({}, max(0.0, now(session) - oldest) if oldest is not None else 0.0)]


def _workers(session: Session, rules: JobRules) -> list[_Line]:
    busy = select(JobRow.seq).where(JobRow.state == job_protocol.RUNNING, JobRow.worker == WorkerRow.id).exists()
    lost = WorkerRow.seen_at < now(session) - rules.lost_after
    state = case((lost, "lost"), (busy, "busy"), else_="idle").label("state")
    states = select(state).where(WorkerRow.left_at.is_(None)).subquery()
    counts = select(states.c.state, func.count()).group_by(states.c.state)
    found = {name: count for name, count in session.execute(counts)}
    return [({"state": name}, found.get(name, 0)) for name in ("idle", "busy", "lost")]


def _compiles(session: Session) -> Metric:
    query = select(JobRow.arch, func.sum(JobRow.seconds), func.count(JobRow.seconds)).where(
        JobRow.state == job_protocol.DONE
    )
    family = SummaryMetricFamily("mxr_compile_seconds", "Duration of finished compiles by arch.", labels=["arch"])
    for arch, total, count in session.execute(query.where(JobRow.seconds.is_not(None)).group_by(JobRow.arch)):
        family.add_metric([arch or "ref"], count, total or 0.0)
    return family
