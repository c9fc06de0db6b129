"""Sweeping: what nobody uses goes, then the bytes that nothing is made of any more.

    artifacts by the rules of retention  ->  bytes of idle models  ->  blobs without a use, after the grace period
    ->  closed jobs, expired failures, old misses and uses

Several registries may sweep at once, while clients publish and fetch. Everything is chosen by reading only, and looked
at once more in the short transaction that removes it. What is removed leaves its blobs touched: whoever is downloading
one has the whole grace period to finish, and a later sweep takes the bytes.
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
from typing import Any, TypeVar

from sqlalchemy import and_, delete, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mxr.errors import MxrError
from mxr.protocol import jobs as job_protocol
from mxr_registry.artifacts import catalog
from mxr_registry.artifacts.blobs import turn_of
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.retention import DAY, RetentionRules
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.job_tables import JobRow, RememberedFailureRow
from mxr_registry.database.session import Database, Session, now, take_turns
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow, MissRow, ModelBlobRow, ModelRow, UseRow
from mxr_registry.jobs import lease_endings
from mxr_registry.storage.store import Store

from .expiry import ExpiredArtifact, choose

log = logging.getLogger("mxr_registry")

T = TypeVar("T")

BRIEF = 0.15
"""Seconds that a transaction of a sweep aims at: others wait for it."""

MOST_AT_ONCE = 2_000
PAGE = 5_000
OLD_USES = 400
"""Days for which uses are kept."""

UNUSED = and_(
    ~exists().where(ArtifactBlobRow.namespace == BlobRow.namespace, ArtifactBlobRow.sha256 == BlobRow.sha256),
    ~exists().where(ModelBlobRow.namespace == BlobRow.namespace, ModelBlobRow.sha256 == BlobRow.sha256),
    ~exists().where(JobRow.namespace == BlobRow.namespace, JobRow.calibration == BlobRow.sha256),
)
"""Of a blob: nothing is made of it."""


@dataclass(frozen=True, slots=True)
class SweptItem:
    """One thing that went, or would go: `kind` is artifact, model or blob; `why` in words."""

    kind: str
    name: str
    why: str
    size: int


@dataclass(slots=True)
class SweepReport:
    """How much went, or would go. `bytes` are those of blobs; those of artifacts follow after the grace period."""

    dry: bool
    artifacts: int = 0
    models: int = 0
    blobs: int = 0
    bytes: int = 0
    jobs: int = 0
    failures: int = 0
    misses: int = 0
    longest: float = field(default=0.0)
    """Seconds of the longest transaction that removed something."""

    def to_json(self) -> dict[str, Any]:
        """`{"dry","artifacts","models","blobs","bytes","jobs","failures","misses","longest"}`."""
        return asdict(self) | {"longest": round(self.longest, 3)}


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep. `say` hears of each thing at once. `grace`: seconds for which a blob stays after it was touched."""

    db: Database
    store: Store
    retention: RetentionRules
    rules: JobRules
    grace: float
    say: Callable[[SweptItem], None]
    report: SweepReport

    def run(self) -> SweepReport:
        """Sweep everything once. Raises `Temporary` where database or store do not answer; what went is gone."""
        if not self.report.dry:
            lease_endings.expire(self.db, self.rules)
        self._artifacts()
        self._models()
        self._blobs()
        self._records()
        return self.report

    def _artifacts(self) -> None:
        doomed = choose(self.db, self.retention)
        for each in doomed:
            self.say(SweptItem("artifact", each.id, each.why, each.size))
        self.report.artifacts = self._removed(doomed, self._remove_artifacts)

    def _remove_artifacts(self, session: Session, some: Sequence[ExpiredArtifact]) -> int:
        row = ArtifactRow
        newest = max(each.moment for each in some)
        guards = (row.seq.in_([each.seq for each in some]), row.used_at <= newest, row.promoted == 0)
        still = session.execute(select(row.seq).where(*guards, catalog.free()).with_for_update()).scalars().all()
        return catalog.forget(session, still) if still else 0

    def _models(self) -> None:
        if self.retention.model_days is None:
            return
        with self.db.reading() as session:
            rows = session.execute(_idle(now(session) - self.retention.model_days * DAY)).all()
        for row in rows:
            self.say(SweptItem("model", row.model, "nothing was compiled from it lately", 0))
        self.report.models = self._removed([row.seq for row in rows], self._remove_models)

    def _remove_models(self, session: Session, some: Sequence[int]) -> int:
        assert self.retention.model_days is not None
        before = now(session) - self.retention.model_days * DAY
        still = (
            session.execute(_idle(before).where(ModelRow.seq.in_(some)).with_for_update(of=ModelRow)).scalars().all()
        )
        mine = select(ModelBlobRow.sha256).where(ModelBlobRow.model.in_(still))
        session.execute(update(BlobRow).where(BlobRow.sha256.in_(mine)).values(touched_at=now(session)))
        session.execute(delete(ModelBlobRow).where(ModelBlobRow.model.in_(still)))
        bare = {"complete": False, "onnx": None, "manifest_json": None}
        session.execute(update(ModelRow).where(ModelRow.seq.in_(still)).values(bare))
        return len(still)

    def _blobs(self) -> None:
        for namespace, names in self._idle_blobs():
            self.report.blobs += self._removed(names, partial(self._drop, namespace))

    def _idle_blobs(self) -> Iterator[tuple[str, list[str]]]:
        """Pages of blobs that nothing is made of and nobody touched for the grace period, by namespace."""
        row = BlobRow
        with self.db.reading() as session:
            before = now(session) - self.grace
            namespaces = session.execute(select(row.namespace).distinct()).scalars().all()
        for namespace in namespaces:
            after = ""
            while True:
                with self.db.reading() as session:
                    wanted = (row.namespace == namespace, row.sha256 > after, row.touched_at < before, UNUSED)
                    asked = select(row.sha256, row.size).where(*wanted).order_by(row.sha256).limit(PAGE)
                    page = session.execute(asked).all()
                if not page:
                    break
                for each in page:
                    self.say(SweptItem("blob", each.sha256, "nothing is made of it", each.size))
                if self.report.dry:
                    self.report.bytes += sum(each.size for each in page)
                yield namespace, [each.sha256 for each in page]
                after = page[-1].sha256

    def _drop(self, namespace: str, session: Session, names: Sequence[str]) -> int:
        """Rows and bytes, both within one transaction that holds these names: no upload gets its row in between."""
        row = BlobRow
        take_turns(session, *map(turn_of, names))
        wanted = (row.namespace == namespace, row.sha256.in_(names), row.touched_at < now(session) - self.grace, UNUSED)
        found = session.execute(select(row.sha256, row.size).where(*wanted).with_for_update(of=row)).all()
        gone = [each.sha256 for each in found]
        session.execute(delete(row).where(row.namespace == namespace, row.sha256.in_(gone)))
        shared = set(session.execute(select(row.sha256).where(row.sha256.in_(gone))).scalars())
        for name in gone:
            if name not in shared:
                self.store.delete(name)
        self.report.bytes += sum(each.size for each in found if each.sha256 not in shared)
        return len(gone)

    def _records(self) -> None:
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
        self.report.misses = self._counted(MissRow, missed)
        self.report.failures = self._counted(RememberedFailureRow, RememberedFailureRow.expires_at < moment)
        self._counted(UseRow, UseRow.day < int(moment // DAY) - OLD_USES)

    def _counted(self, table: Any, where: Any) -> int:
        if self.report.dry:
            with self.db.reading() as session:
                return int(session.execute(select(func.count()).select_from(table).where(where)).scalar_one())
        with self.db.writing() as session:
            return session.execute(delete(table).where(where)).rowcount

    def _removed(self, some: Sequence[T], remove: Callable[[Session, Sequence[T]], int]) -> int:
        """Remove in batches that keep nobody waiting; how many went (all of them in a dry run)."""
        if self.report.dry:
            return len(some)
        gone, at, size = 0, 0, 20
        while at < len(some):
            batch = some[at : at + size]
            begun = time.monotonic()
            gone += self._once_more(batch, remove)
            spent = time.monotonic() - begun
            self.report.longest = max(self.report.longest, spent)
            at += len(batch)
            size = min(MOST_AT_ONCE, size * 2) if spent < BRIEF / 2 else max(1, size // 2) if spent > BRIEF else size
        return gone

    def _once_more(self, batch: Sequence[T], remove: Callable[[Session, Sequence[T]], int]) -> int:
        """A batch of which something came into use at that very moment is looked at anew."""
        for _ in range(3):
            try:
                with self.db.writing() as session:
                    return remove(session, batch)
            except IntegrityError:
                continue
        return 0


def _idle(before: float) -> Any:
    """Models whose bytes nothing needed since then."""
    row = ModelRow
    compiled = exists().where(
        JobRow.namespace == row.namespace,
        JobRow.model == row.model,
        or_(JobRow.state.in_(job_protocol.OPEN), JobRow.updated_at >= before),
    )
    return select(row.seq, row.model).where(row.complete, row.created_at < before, ~compiled)


def _remove_jobs(session: Session, some: Iterable[int]) -> int:
    return session.execute(delete(JobRow).where(JobRow.seq.in_(some), JobRow.state.not_in(job_protocol.OPEN))).rowcount


@contextmanager
def sweep_regularly(settings: RegistrySettings, db: Database, store: Store) -> Iterator[None]:
    """Sweeps now and then in a thread of its own, as the rules of retention say, until the block ends."""
    retention, ended = settings.retention or RetentionRules(), threading.Event()
    every = retention.every_hours * 3600.0

    def sweep() -> None:
        # Several registries that were started together need not sweep together.
        while not ended.wait(every * random.uniform(0.8, 1.2)):
            try:
                rules = settings.rules or JobRules()
                report = Sweep(db, store, retention, rules, settings.grace, _silent, SweepReport(False)).run()
                log.info("swept: %s", report.to_json())
            except (MxrError, SQLAlchemyError, OSError) as problem:
                log.warning("this sweep ended early: %s", problem)

    thread = threading.Thread(target=sweep, daemon=True)
    if every:
        thread.start()
    try:
        yield
    finally:
        ended.set()


def _silent(_: SweptItem) -> None:
    return
