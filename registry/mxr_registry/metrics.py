"""Metrics for Prometheus: what this process counted, how it reaches database and store, and what the database has.

What is read of the database has names that begin with `mxr_fleet_`: every process that shares it says the same, so take
the `max` of them and not the sum. While the database is away they are absent, and the rest is served.
"""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import case, func, select

from mxr.artifact.key import TARGET
from mxr.artifact.records import INTACT, LOST
from mxr.protocol import jobs as job_protocol
from mxr.version import __version__
from mxr_registry import counters
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database import trail
from mxr_registry.database.job_tables import JobRow, WorkerRow
from mxr_registry.database.session import Database, Session, now
from mxr_registry.database.tables import ArtifactRow, BlobRow, ModelRow, TokenRow
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.storage.store import Store

DAY = 86_400.0
EXPIRING = {"1d": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
"""Periods within which tokens expire, in seconds."""

_Line = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class ReachedPart:
    """How this process reached the database or the store last, and in how many seconds."""

    up: bool
    seconds: float


@dataclass(slots=True)
class FleetMetrics:
    """What the database has, as it was read last. `read` is the check of a probe, which bounds its time."""

    db: Database
    rules: JobRules
    families: list[Metric] = field(default_factory=list)

    def read(self) -> None:
        """Read everything anew. Raises `TemporaryError`."""
        self.families = []
        with self.db.reading() as session:
            queued = _queue(session, func.count())
            self.families = [
                _gauge("mxr_fleet_jobs", "Jobs by state.", _jobs(session)),
                _gauge("mxr_fleet_queue_jobs", "Open jobs by required worker.", queued),
                _gauge("mxr_fleet_queue_oldest_seconds", "Age of the oldest queued job.", _oldest(session)),
                _gauge(
                    "mxr_fleet_unserved_jobs",
                    "Queued jobs for which there is neither a live worker nor a declared pool.",
                    _unserved(session, self.rules),
                ),
                _gauge("mxr_fleet_workers", "Workers by state, toolchain and GPU.", _workers(session, self.rules)),
                _gauge("mxr_fleet_artifacts", "Artifacts; those that are lost lack bytes.", _artifacts(session)),
                _gauge("mxr_fleet_models", "Models.", [({}, _count(session, ModelRow.seq))]),
                _gauge(
                    "mxr_fleet_stored_bytes", "Bytes of all blobs.", [({}, _count(session, BlobRow.size, func.sum))]
                ),
                _gauge("mxr_fleet_tokens_expiring", "Valid tokens that expire within this time.", _tokens(session)),
                _gauge(
                    "mxr_fleet_last_run_timestamp_seconds",
                    "When a sweep, a check or a backup ended last, in seconds since 1970.",
                    [({"run": kind}, moment) for kind, moment in trail.last_runs(session).items()],
                ),
            ]


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def text(
    settings: RegistrySettings,
    store: Store,
    reached: Mapping[str, ReachedPart],
    inspections: Mapping[str, int],
    fleet: Iterable[Metric],
) -> bytes:
    """Return all metrics in the text format 0.0.4. `inspections`: how many run and wait; `fleet`: see `FleetMetrics`.

    It asks neither the database nor the store.
    """
    python = platform.python_version()
    own = [
        _gauge(
            "mxr_build_info", "The version of mxr and of Python.", [({"version": __version__, "python": python}, 1)]
        ),
        _gauge("mxr_up", "Whether this process reaches the part.", _parts(reached, lambda part: float(part.up))),
        _gauge("mxr_probe_seconds", "How long the part took to answer.", _parts(reached, lambda part: part.seconds)),
        _gauge("mxr_free_bytes", "Free bytes on the disk of the part.", _free(settings, store)),
        _gauge("mxr_inspections", "Uploads that are read.", [({"state": name}, n) for name, n in inspections.items()]),
        _gauge("mxr_certificate_expiry_timestamp_seconds", "When the TLS certificate expires.", _certificate(settings)),
    ]
    return generate_latest(counters.REGISTRY) + generate_latest(_Families([*own, *fleet]))


def _gauge(name: str, about: str, lines: Iterable[_Line]) -> Metric:
    family = Metric(name, about, "gauge")
    for labels, value in lines:
        family.add_sample(name, dict(labels), value)
    return family


def _parts(reached: Mapping[str, ReachedPart], value: Callable[[ReachedPart], float]) -> list[_Line]:
    return [({"part": name}, value(part)) for name, part in reached.items()]


def _free(settings: RegistrySettings, store: Store) -> list[_Line]:
    found: list[_Line] = []
    for name, path in (("data", settings.data if settings.embedded else None), ("store", store.folder)):
        with suppress(OSError):
            if path is not None:
                found.append(({"part": name}, shutil.disk_usage(path).free))
    return found


def _certificate(settings: RegistrySettings) -> list[_Line]:
    if settings.tls_cert is None:
        return []
    import ssl

    with suppress(OSError, ValueError, KeyError):
        # The only reader of certificates in Python's library; a certificate that is not read is no reason to fail.
        found: Mapping[str, Any] = ssl._ssl._test_decode_cert(str(settings.tls_cert))  # type: ignore[attr-defined]
        return [({}, ssl.cert_time_to_seconds(found["notAfter"]))]
    return []


def _count(session: Session, column: Any, function: Any = func.count) -> float:
    return float(session.execute(select(function(column))).scalar() or 0)


def _jobs(session: Session) -> list[_Line]:
    found = dict(session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).tuples().all())
    return [({"state": state}, found.get(state, 0)) for state in job_protocol.STATES]


def _queue(session: Session, value: Any) -> list[_Line]:
    query = select(JobRow.lane, JobRow.state, value).where(JobRow.state.in_(job_protocol.OPEN))
    rows = session.execute(query.group_by(JobRow.lane, JobRow.state))
    return [(_labels(lane) | {"state": state}, found) for lane, state, found in rows]


def _labels(lane: str) -> dict[str, str]:
    key = lanes.key_of(lane)
    found = {name: value for name in TARGET if (value := getattr(key, name)) is not None}
    return found if key.form == "whole" else found | {"form": key.form}


def _oldest(session: Session) -> list[_Line]:
    query = select(JobRow.lane, func.min(JobRow.created_at)).where(JobRow.state == job_protocol.QUEUED)
    moment = now(session)
    return [(_labels(lane), max(0.0, moment - begun)) for lane, begun in session.execute(query.group_by(JobRow.lane))]


def _unserved(session: Session, rules: JobRules) -> list[_Line]:
    query = select(JobRow.namespace, JobRow.lane, func.count()).where(JobRow.state == job_protocol.QUEUED)
    rows = session.execute(query.group_by(JobRow.namespace, JobRow.lane)).all()
    live = {namespace: LiveCapabilities(session, rules, namespace) for namespace, *_ in rows}
    return [(_labels(lane), count) for namespace, lane, count in rows if not live[namespace].knows(lane)]


def _workers(session: Session, rules: JobRules) -> list[_Line]:
    busy = select(JobRow.seq).where(JobRow.state == job_protocol.RUNNING, JobRow.worker == WorkerRow.id).exists()
    lost = WorkerRow.seen_at < now(session) - rules.lost_after
    state = case((lost, "lost"), (busy, "busy"), else_="idle").label("state")
    rows = session.execute(select(WorkerRow.can_json, state).where(WorkerRow.left_at.is_(None)))
    found: Counter[tuple[str, str, str, str]] = Counter()
    for text_, name in rows:
        can = lanes.capabilities_of(text_)
        archs = "+".join(sorted({target.arch or "ref" for target in can.targets} or {"cross"}))
        found[name, archs, can.toolchain.migraphx or "", can.toolchain.rocm or ""] += 1
    names = ("state", "arch", "migraphx", "rocm")
    return [(dict(zip(names, labels, strict=True)), count) for labels, count in found.items()]


def _artifacts(session: Session) -> list[_Line]:
    lost = float(session.execute(select(func.count()).where(ArtifactRow.lost_at.is_not(None))).scalar_one())
    return [({"state": INTACT}, _count(session, ArtifactRow.seq) - lost), ({"state": LOST}, lost)]


def _tokens(session: Session) -> list[_Line]:
    moment = now(session)
    query = select(TokenRow.expires_at).where(
        TokenRow.revoked_at.is_(None),
        TokenRow.expires_at > moment,
        TokenRow.expires_at < moment + max(EXPIRING.values()),
    )
    left = [end - moment for end in session.execute(query).scalars() if end is not None]
    return [({"within": name}, sum(each <= period for each in left)) for name, period in EXPIRING.items()]
