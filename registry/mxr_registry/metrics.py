"""Metrics in the Prometheus text format. Jobs and workers are counted in the database, resolves in each process.

Source: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

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

Line = tuple[Mapping[str, str], float]


class Counters:
    """Resolve hits and misses of this process since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits = 0
        self.misses: dict[str, int] = {}

    def hit(self) -> None:
        """Count a resolve that found an artifact."""
        with self._lock:
            self.hits += 1

    def count_error(self, path: str, problem: MxrError) -> None:
        """Count an error reply to a resolve by its reason. Other paths are not counted."""
        if path != "/v1/resolve":
            return
        reason = reason_of(problem)
        with self._lock:
            self.misses[reason] = self.misses.get(reason, 0) + 1


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


def text(session: Session, rules: JobRules, counters: Counters) -> str:
    """Return all metrics in the text format."""
    parts = [
        _family("mxr_jobs", "gauge", "Jobs by state.", _jobs(session)),
        _family("mxr_queue_jobs", "gauge", "Open jobs by required worker.", _queue(session)),
        _family("mxr_queue_oldest_seconds", "gauge", "Age of the oldest queued job.", _oldest(session)),
        _family("mxr_workers", "gauge", "Workers by state.", _workers(session, rules)),
        *_compiles(session),
        _family("mxr_resolve_hits_total", "counter", "Resolves that found an artifact.", [({}, counters.hits)]),
        _family(
            "mxr_resolve_misses_total",
            "counter",
            "Resolves that found no artifact, by the first field in which the nearest artifact differs.",
            [({"reason": reason}, count) for reason, count in sorted(counters.misses.items())],
        ),
    ]
    return "".join(parts)


def _family(name: str, kind: str, help_text: str, lines: Iterable[Line]) -> str:
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n" + "".join(_line(name, *line) for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
    return f"{name}{{{written}}} {value:.12g}\n" if written else f"{name} {value:.12g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _jobs(session: Session) -> list[Line]:
    found = dict(session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).tuples().all())
    return [({"state": state}, found.get(state, 0)) for state in job_protocol.STATES]


def _queue(session: Session) -> list[Line]:
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


def _oldest(session: Session) -> list[Line]:
    oldest = session.execute(select(func.min(JobRow.created_at)).where(JobRow.state == job_protocol.QUEUED)).scalar()
    return [({}, max(0.0, now(session) - oldest) if oldest is not None else 0.0)]


def _workers(session: Session, rules: JobRules) -> list[Line]:
    busy = select(JobRow.seq).where(JobRow.state == job_protocol.RUNNING, JobRow.worker == WorkerRow.id).exists()
    lost = WorkerRow.seen_at < now(session) - rules.lost_after
    state = case((lost, "lost"), (busy, "busy"), else_="idle").label("state")
    states = select(state).where(WorkerRow.left_at.is_(None)).subquery()
    counts = select(states.c.state, func.count()).group_by(states.c.state)
    found = {name: count for name, count in session.execute(counts)}
    return [({"state": name}, found.get(name, 0)) for name in ("idle", "busy", "lost")]


def _compiles(session: Session) -> list[str]:
    query = select(JobRow.arch, func.sum(JobRow.seconds), func.count(JobRow.seconds)).where(
        JobRow.state == job_protocol.DONE
    )
    rows = session.execute(query.where(JobRow.seconds.is_not(None)).group_by(JobRow.arch)).all()
    name = "mxr_compile_seconds"
    found = [({"arch": arch or "ref"}, total or 0.0, count) for arch, total, count in rows]
    head = f"# HELP {name} Duration of finished compiles by arch.\n# TYPE {name} summary\n"
    lines = (
        _line(f"{name}_sum", labels, total) + _line(f"{name}_count", labels, count) for labels, total, count in found
    )
    return [head, *lines]
