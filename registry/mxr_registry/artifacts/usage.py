"""Usage of artifacts: counted in memory while requests are served, and written to the database at intervals.

A process that crashes loses the counts of its last seconds. Hosts that use their local cache report their uses later.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

from pydantic import Field
from sqlalchemy import Integer, case, cast, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mxr.artifact.key import TARGET
from mxr.errors import Json, MxrError
from mxr.protocol.artifacts import Use
from mxr.util.codec import time_text
from mxr_registry.database import tallies
from mxr_registry.database.paging import list_page, read_cursor
from mxr_registry.database.session import Database, Session, default_serve, now
from mxr_registry.database.tables import ArtifactRow, UseRow

from . import catalog

log = logging.getLogger("mxr_registry")

DAY = 86_400.0
FLUSH_INTERVAL = 10.0
"""Seconds between writes to the database."""

MAX_COUNTED = 50_000
"""Maximum number of artifacts with counts in memory. Uses of further ones are not counted until the next write."""

OLDEST = 3_650
"""Maximum age of a use in days."""

MAX_LISTED = 10_000


class UsageCounter:
    """The uses that one process has counted and not yet written to the database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self._answers: Counter[str] = Counter()
        self._timer: threading.Timer | None = None
        self._closed = False

    def count(self, namespace: str, id: str, answers: int = 0) -> None:
        """Count one use of the artifact with this full id. `answers`: 1 where it is the answer to a resolve."""
        with self._lock:
            if answers:
                self._answers[namespace] += answers
            known = self._counts.get((namespace, id))
            if known is not None or len(self._counts) < MAX_COUNTED:
                self._counts[namespace, id] = (known or 0) + 1
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(FLUSH_INTERVAL, self.write)
                self._timer.daemon = True
                self._timer.start()

    def counted(self, namespace: str, id: str) -> bool:
        """Return whether a use of the artifact waits to be written."""
        with self._lock:
            return (namespace, id) in self._counts

    def write(self) -> None:
        """Write the counts to the database. Counts that cannot be written are kept for the next time."""
        with self._lock:
            counts, self._counts, self._timer = self._counts, {}, None
            answers, self._answers = self._answers, Counter()
        self._write_answers(answers)
        for namespace in {each for each, _ in counts}:
            uses = [Use(id, count) for (owner, id), count in counts.items() if owner == namespace]
            try:
                record_uses(self._db, namespace, uses)
            except (MxrError, SQLAlchemyError) as problem:
                log.warning("uses of %d artifacts are not recorded yet: %s", len(uses), problem)
                self._keep(namespace, uses)

    def _write_answers(self, answers: Counter[str]) -> None:
        try:
            with self._db.writing() as session:
                for namespace, count in sorted(answers.items()):
                    tallies.count(session, namespace, tallies.ANSWERED, count)
        except (MxrError, SQLAlchemyError) as problem:
            log.warning("the answers of the last seconds are not recorded yet: %s", problem)
            with self._lock:
                self._answers += answers

    def _keep(self, namespace: str, uses: list[Use]) -> None:
        with self._lock:
            for use in uses:
                key = (namespace, use.id)
                self._counts[key] = self._counts.get(key, 0) + use.count

    def close(self) -> None:
        """Write the remaining counts. Later uses are not written."""
        with self._lock:
            self._closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            self.write()


def record_uses(db: Database, namespace: str, uses: Iterable[Use]) -> int:
    """Record uses and return the number of artifacts. Ignores artifacts that no longer exist.

    Raises `TemporaryError`.
    """
    rest, recorded = iter(uses), 0
    while batch := list(islice(rest, 500)):
        try:
            recorded += _record(db, namespace, batch)
        except IntegrityError:
            # An artifact was removed during the transaction. The second attempt no longer selects it.
            recorded += _record(db, namespace, batch)
    return recorded


def _record(db: Database, namespace: str, batch: list[Use]) -> int:
    with db.writing() as session:
        row = ArtifactRow
        query = select(row.id, row.seq).where(row.namespace == namespace, row.id.in_({use.id for use in batch}))
        known = {id: seq for id, seq in session.execute(query)}
        moment = now(session)
        # Write rows in the same order in every process, to avoid deadlocks.
        for use in sorted((each for each in batch if each.id in known), key=lambda each: known[each.id]):
            _add(session, known[use.id], use.count, moment - min(use.ago, OLDEST * DAY))
        return len(known)


def _add(session: Session, seq: int, count: int, used_at: float) -> None:
    later = case((UseRow.used_at < used_at, used_at), else_=UseRow.used_at)
    keys = {"artifact": seq, "day": int(used_at // DAY)}
    same = update(UseRow).where(UseRow.artifact == seq, UseRow.day == keys["day"])
    if session.execute(same.values(count=UseRow.count + count, used_at=later)).rowcount == 0:
        session.execute(insert(UseRow).values(**keys, count=count, used_at=used_at))
    session.execute(
        update(ArtifactRow).where(ArtifactRow.seq == seq, ArtifactRow.used_at < used_at).values(used_at=used_at)
    )


def by_day(session: Session, artifact: int, days: int) -> list[int]:
    """Return the uses of an artifact, given by its `seq`, on each of the last days, today last."""
    today = int(now(session) // DAY)
    query = select(UseRow.day, UseRow.count).where(UseRow.artifact == artifact, UseRow.day > today - days)
    found = {day: count for day, count in session.execute(query)}
    return [found.get(day, 0) for day in range(today - days + 1, today + 1)]


class UsageFilters(catalog.TargetFilters, frozen=True):
    """Filters of a list of used artifacts."""

    days: int = Field(default=30, description="Uses in so many days.", ge=1, le=OLDEST)
    limit: int = Field(default=1_000, description="How many items a page has at most.", ge=1, le=MAX_LISTED)


def list_usage(session: Session, namespace: str, filters: UsageFilters) -> Json:
    """Return the JSON value of a `UsageReply` (see `mxr.protocol.artifacts`)."""
    since = cast(now(session) // DAY, Integer) - filters.days
    total: Any = func.sum(UseRow.count).label("total")
    used = select(UseRow.artifact, total, func.max(UseRow.used_at).label("last")).where(UseRow.day > since)
    sums = used.group_by(UseRow.artifact).subquery()
    row = ArtifactRow
    query = select(*catalog.COLUMNS, sums.c.total, sums.c.last).join(sums, sums.c.artifact == row.seq)
    query = query.where(row.namespace == namespace, *filters.equal(row, "model", *TARGET)).order_by(
        sums.c.total.desc(), row.seq
    )
    if filters.after is not None:
        total, seq = read_cursor("uses", filters.after, int, int)
        query = query.where((sums.c.total < total) | ((sums.c.total == total) & (row.seq > seq)))
    rule = default_serve(session)
    return list_page(
        session,
        query,
        lambda each: {
            "artifact": catalog.listed(each, rule),
            "count": int(each.total),
            "used_at": time_text(each.last),
        },
        "uses",
        lambda each: (int(each.total), each.seq),
        filters.limit,
    )
