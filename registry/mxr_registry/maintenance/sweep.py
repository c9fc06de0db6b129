"""Sweep: remove artifacts by the retention rules, then garbage-collect unreferenced blobs and old records.

    artifacts by the retention rules  ->  bytes of idle models  ->  unreferenced blobs after the grace period
    ->  closed jobs, expired failures, old misses, uses, events and tokens  ->  damaged blobs that were set aside

Several registries may sweep at the same time, while clients publish and fetch. A sweep selects rows in read
transactions and checks them again in the short transaction that removes them. Removing an artifact restarts the grace
period of its blobs, so that running downloads can finish; a later sweep removes the bytes.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import and_, delete, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mxr.errors import MxrError
from mxr.protocol import jobs as job_protocol
from mxr_registry.access import tokens
from mxr_registry.artifacts import catalog
from mxr_registry.artifacts.lost import lock_name
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.retention import DAY, RetentionRules
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database import tallies, trail
from mxr_registry.database.job_tables import JobRow, RememberedFailureRow
from mxr_registry.database.session import Database, Session, advisory_lock, now
from mxr_registry.database.tables import (
    ArtifactBlobRow,
    ArtifactRow,
    BlobRow,
    EventRow,
    MissRow,
    ModelBlobRow,
    ModelRow,
    SessionRow,
    TallyRow,
    UseRow,
)
from mxr_registry.jobs import lease_endings
from mxr_registry.storage.store import Store

from .expiry import ExpiredArtifact, choose_expired

log = logging.getLogger("mxr_registry")

T = TypeVar("T")

TARGET_DURATION = 0.15
"""Target duration of a sweep transaction in seconds. Other transactions wait for it."""

MAX_PER_BATCH = 2_000
PAGE = 5_000
OLD_USES = 400
"""Days after which daily use counts are deleted."""

UNREFERENCED = and_(
    ~exists().where(ArtifactBlobRow.namespace == BlobRow.namespace, ArtifactBlobRow.sha256 == BlobRow.sha256),
    ~exists().where(ModelBlobRow.namespace == BlobRow.namespace, ModelBlobRow.sha256 == BlobRow.sha256),
    ~exists().where(JobRow.namespace == BlobRow.namespace, JobRow.calibration == BlobRow.sha256),
)
"""SQL condition: no artifact, model or job refers to the blob."""


@dataclass(frozen=True, slots=True)
class SweptItem:
    """One removed item (in a dry run: to be removed). `kind`: artifact, model, blob or damaged; `why`: the reason."""

    kind: str
    name: str
    why: str
    size: int


@dataclass(slots=True)
class SweepReport:
    """Counts of removed items. `bytes` counts removed blobs; blobs of artifacts follow after the grace period.

    `damaged`: blobs that were set aside.
    """

    dry: bool
    artifacts: int = 0
    models: int = 0
    blobs: int = 0
    bytes: int = 0
    jobs: int = 0
    failures: int = 0
    misses: int = 0
    tokens: int = 0
    damaged: int = 0
    longest: float = field(default=0.0)
    """Seconds of the longest transaction that removed something."""

    def to_json(self) -> dict[str, Any]:
        """`{"dry","artifacts","models","blobs","bytes","jobs","failures","misses","tokens","damaged","longest"}`."""
        return asdict(self) | {"longest": round(self.longest, 3)}


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep. It calls `on_item` for each item. `grace`: seconds for which a blob is kept after it was touched."""

    db: Database
    store: Store
    retention: RetentionRules
    rules: JobRules
    grace: float
    on_item: Callable[[SweptItem], None]
    report: SweepReport

    def run(self) -> SweepReport:
        """Run the sweep.

        Raises `TemporaryError` if database or store do not answer; earlier removals stay in effect.
        """
        if not self.report.dry:
            lease_endings.expire(self.db, self.rules)
        self._artifacts()
        self._models()
        self._blobs()
        self._old_records()
        self._damaged()
        if not self.report.dry:
            trail.note_run(self.db, "sweep", self.report.to_json())
        return self.report

    def _artifacts(self) -> None:
        expired = choose_expired(self.db, self.retention)
        for each in expired:
            self.on_item(SweptItem("artifact", each.id, each.why, each.size))
        self.report.artifacts = self._removed(expired, self._remove_artifacts)

    def _remove_artifacts(self, session: Session, batch: Sequence[ExpiredArtifact]) -> int:
        row = ArtifactRow
        newest = max(each.moment for each in batch)
        guards = (row.seq.in_([each.seq for each in batch]), row.used_at <= newest, row.promoted == 0)
        query = select(row.seq, row.namespace, row.id, row.model).where(*guards, catalog.not_pinned())
        found = session.execute(query.order_by(row.namespace).with_for_update()).all()
        why = {each.seq: each.why for each in batch}
        for namespace, group in groupby(found, lambda each: each.namespace):
            subjects = [(each.id, each.model, {"why": why[each.seq]}) for each in group]
            trail.record_all(session, "artifact.expire", subjects, namespace=namespace)
        return catalog.delete_rows(session, [each.seq for each in found]) if found else 0

    def _models(self) -> None:
        if self.retention.model_days is None:
            return
        with self.db.reading() as session:
            rows = session.execute(_idle(now(session) - self.retention.model_days * DAY)).all()
        for row in rows:
            self.on_item(SweptItem("model", row.model, f"not compiled for {self.retention.model_days:g} days", 0))
        self.report.models = self._removed([row.seq for row in rows], self._remove_models)

    def _remove_models(self, session: Session, batch: Sequence[int]) -> int:
        assert self.retention.model_days is not None
        before = now(session) - self.retention.model_days * DAY
        query = _idle(before).where(ModelRow.seq.in_(batch)).with_for_update(of=ModelRow)
        still_idle = session.execute(query).scalars().all()
        names = select(ModelBlobRow.sha256).where(ModelBlobRow.model.in_(still_idle))
        session.execute(update(BlobRow).where(BlobRow.sha256.in_(names)).values(touched_at=now(session)))
        session.execute(delete(ModelBlobRow).where(ModelBlobRow.model.in_(still_idle)))
        declared_only = {"complete": False, "onnx": None, "manifest_json": None}
        session.execute(update(ModelRow).where(ModelRow.seq.in_(still_idle)).values(declared_only))
        return len(still_idle)

    def _blobs(self) -> None:
        for namespace, names in self._unreferenced_blobs():
            self.report.blobs += self._removed(names, partial(self._remove_blobs, namespace))

    def _unreferenced_blobs(self) -> Iterator[tuple[str, list[str]]]:
        """Yield pages of unreferenced blobs that were not touched for the grace period, by namespace."""
        row = BlobRow
        with self.db.reading() as session:
            before = now(session) - self.grace
            namespaces = session.execute(select(row.namespace).distinct()).scalars().all()
        for namespace in namespaces:
            after = ""
            while True:
                with self.db.reading() as session:
                    conditions = (row.namespace == namespace, row.sha256 > after, row.touched_at < before, UNREFERENCED)
                    query = select(row.sha256, row.size).where(*conditions).order_by(row.sha256).limit(PAGE)
                    page = session.execute(query).all()
                if not page:
                    break
                for each in page:
                    self.on_item(SweptItem("blob", each.sha256, "unreferenced", each.size))
                if self.report.dry:
                    self.report.bytes += sum(each.size for each in page)
                yield namespace, [each.sha256 for each in page]
                after = page[-1].sha256

    def _remove_blobs(self, namespace: str, session: Session, names: Sequence[str]) -> int:
        """Delete rows and bytes in one transaction, whose locks keep an upload from writing its row in between."""
        row = BlobRow
        advisory_lock(session, *map(lock_name, names))
        before = now(session) - self.grace
        conditions = (row.namespace == namespace, row.sha256.in_(names), row.touched_at < before, UNREFERENCED)
        found = session.execute(select(row.sha256, row.size).where(*conditions).with_for_update(of=row)).all()
        removed = [each.sha256 for each in found]
        session.execute(delete(row).where(row.namespace == namespace, row.sha256.in_(removed)))
        shared = set(session.execute(select(row.sha256).where(row.sha256.in_(removed))).scalars())
        for name in removed:
            if name not in shared:
                self.store.delete(name)
        self.report.bytes += sum(each.size for each in found if each.sha256 not in shared)
        tallies.add(session, namespace, tallies.STORED_BYTES, -sum(each.size for each in found))
        return len(removed)

    def _old_records(self) -> None:
        with self.db.reading() as session:
            moment = now(session)
            old = moment - self.retention.job_days * DAY
            jobs = session.execute(
                select(JobRow.seq)
                .where(JobRow.state.not_in(job_protocol.OPEN), JobRow.updated_at < old)
                .order_by(JobRow.seq)
            ).scalars()
            closed = list(jobs)
        self.report.jobs = self._removed(closed, _remove_jobs)
        missed = MissRow.last_at < moment - self.retention.miss_days * DAY
        self.report.misses = self._delete_and_count(MissRow, missed)
        self.report.failures = self._delete_and_count(RememberedFailureRow, RememberedFailureRow.expires_at < moment)
        self._delete_and_count(UseRow, UseRow.day < int(moment // DAY) - OLD_USES)
        self._delete_and_count(TallyRow, TallyRow.hour.between(1, int(moment // tallies.HOUR) - OLD_USES * 24))
        self._delete_and_count(SessionRow, SessionRow.expires_at < moment)
        self._delete_and_count(EventRow, EventRow.at < moment - self.retention.event_days * DAY)
        ended = moment - self.retention.token_days * DAY
        self.report.tokens = tokens.remove_ended(self.db, self.store, ended, dry=self.report.dry)

    def _damaged(self) -> None:
        days = self.retention.damaged_days
        for item in self.store.damaged():
            if item.modified < time.time() - days * DAY:
                self.on_item(
                    SweptItem("damaged", item.sha256 or item.name, f"set aside more than {days:g} days ago", item.size)
                )
                if not self.report.dry:
                    self.store.drop(item)
                self.report.damaged += 1
                self.report.bytes += item.size

    def _delete_and_count(self, table: Any, where: Any) -> int:
        if self.report.dry:
            with self.db.reading() as session:
                return int(session.execute(select(func.count()).select_from(table).where(where)).scalar_one())
        with self.db.writing() as session:
            return session.execute(delete(table).where(where)).rowcount

    def _removed(self, items: Sequence[T], remove: Callable[[Session, Sequence[T]], int]) -> int:
        """Remove items in batches and return how many were removed (in a dry run: the number of items).

        The batch size adapts so that a transaction takes about `TARGET_DURATION`.
        """
        if self.report.dry:
            return len(items)
        count, at, size = 0, 0, 20
        while at < len(items):
            batch = items[at : at + size]
            start = time.monotonic()
            count += self._remove_batch(batch, remove)
            duration = time.monotonic() - start
            self.report.longest = max(self.report.longest, duration)
            at += len(batch)
            if duration < TARGET_DURATION / 2:
                size = min(MAX_PER_BATCH, size * 2)
            elif duration > TARGET_DURATION:
                size = max(1, size // 2)
        return count

    def _remove_batch(self, batch: Sequence[T], remove: Callable[[Session, Sequence[T]], int]) -> int:
        """Remove one batch, with retries if an item is used at the same time."""
        for _ in range(3):
            try:
                with self.db.writing() as session:
                    return remove(session, batch)
            except IntegrityError:
                continue
        return 0


def _idle(before: float) -> Any:
    """SELECT of models with bytes, without an open job, and without a job or a registration since `before`."""
    row = ModelRow
    compiled = exists().where(
        JobRow.namespace == row.namespace,
        JobRow.model == row.model,
        or_(JobRow.state.in_(job_protocol.OPEN), JobRow.updated_at >= before),
    )
    return select(row.seq, row.model).where(row.manifest_json.is_not(None), row.created_at < before, ~compiled)


def _remove_jobs(session: Session, batch: Iterable[int]) -> int:
    return session.execute(delete(JobRow).where(JobRow.seq.in_(batch), JobRow.state.not_in(job_protocol.OPEN))).rowcount


@contextmanager
def sweep_regularly(settings: RegistrySettings, db: Database, store: Store) -> Iterator[None]:
    """Sweep in a background thread every `every_hours` of the retention rules, until the block ends."""
    retention, ended = settings.retention, threading.Event()
    every = retention.every_hours * 3600.0

    def work() -> None:
        # Random intervals, so that registries started together do not sweep together.
        while not ended.wait(every * random.uniform(0.8, 1.2)):
            try:
                sweep = Sweep(db, store, retention, settings.rules, settings.grace, _ignore, SweepReport(False))
                report = settings.reserve.run(sweep.run)
                settings.reserve.hold()
                log.info("sweep finished: %s", report.to_json())
            except (MxrError, SQLAlchemyError, OSError) as problem:
                log.warning("sweep ended early: %s", problem)

    thread = threading.Thread(target=work, daemon=True)
    if every:
        thread.start()
    try:
        yield
    finally:
        ended.set()


def _ignore(_: SweptItem) -> None:
    return
