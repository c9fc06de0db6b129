"""Which artifacts are used, and how much: counted in memory while requests are answered, written down now and then.

A process that dies loses the counts of its last seconds. Hosts that live on their caches tell of their uses later.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Integer, case, cast, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mxr.errors import MxrError, Usage
from mxr.protocol.artifacts import Use as Told
from mxr_registry.database.session import Database, Session, now
from mxr_registry.database.tables import ArtifactRow, UseRow

from . import catalog

log = logging.getLogger("mxr_registry")

DAY = 86_400.0
EVERY = 10.0
"""Seconds for which uses are gathered before they are written down."""

MOST = 50_000
"""Artifacts that are counted at once; further ones go uncounted until the next writing."""

OLDEST = 3_650
"""Days that can be asked about."""

MOST_LISTED = 10_000


class UsageCounter:
    """What one process has counted and not yet written down."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}
        self._timer: threading.Timer | None = None
        self._closed = False

    def count(self, namespace: str, id: str) -> None:
        """One use of the artifact with this whole id."""
        with self._lock:
            known = self._counts.get((namespace, id))
            if known is not None or len(self._counts) < MOST:
                self._counts[namespace, id] = (known or 0) + 1
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(EVERY, self.write)
                self._timer.daemon = True
                self._timer.start()

    def write(self) -> None:
        """Write down what was counted; what cannot be written is kept for the next time."""
        with self._lock:
            counts, self._counts, self._timer = self._counts, {}, None
        for namespace in {each for each, _ in counts}:
            some = [Told(id, count) for (owner, id), count in counts.items() if owner == namespace]
            try:
                note(self._db, namespace, some)
            except (MxrError, SQLAlchemyError) as problem:
                log.warning("uses of %d artifacts were not written down yet: %s", len(some), problem)
                self._keep(namespace, some)

    def _keep(self, namespace: str, some: list[Told]) -> None:
        with self._lock:
            for use in some:
                key = (namespace, use.id)
                self._counts[key] = self._counts.get(key, 0) + use.count

    def close(self) -> None:
        """Write down the rest; further uses are not counted."""
        with self._lock:
            self._closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            self.write()


def note(db: Database, namespace: str, some: Iterable[Told]) -> int:
    """Write down uses; of how many artifacts, those that are gone left out. Raises `Temporary`."""
    rest, noted = iter(some), 0
    while batch := list(islice(rest, 500)):
        try:
            noted += _note(db, namespace, batch)
        except IntegrityError:
            # One of them was removed in between: those that are left are found anew.
            noted += _note(db, namespace, batch)
    return noted


def _note(db: Database, namespace: str, batch: list[Told]) -> int:
    with db.writing() as session:
        row = ArtifactRow
        asked = select(row.id, row.seq).where(row.namespace == namespace, row.id.in_({use.id for use in batch}))
        known = {id: seq for id, seq in session.execute(asked)}
        moment = now(session)
        # In one order in every process: rows that two of them write must not be waited for crosswise.
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


@dataclass(frozen=True, slots=True)
class UsageFilters:
    """Which uses to list: those of the last `days`, at most `limit` artifacts."""

    days: int = 30
    limit: int = 1_000
    model: str | None = None
    kind: str | None = None
    vendor: str | None = None
    arch: str | None = None
    migraphx: str | None = None
    rocm: str | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> UsageFilters:
        """The filters in a query string. Raises `Usage`."""
        unknown = sorted(set(query) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise Usage(f"There is no filter {unknown[0][:40]!r}.", hint=f"There are {known}.")
        numbers = {name: _number(name, query[name], most) for name, most in _MOST.items() if name in query}
        return cls(**{**query, **numbers})  # type: ignore[arg-type]


_MOST = {"days": OLDEST, "limit": MOST_LISTED}


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise Usage(f"{name}: expected 1 to {most}, found {text[:20]!r}.", hint="Correct it.")
    return int(text)


def listed(session: Session, namespace: str, filters: UsageFilters) -> str:
    """The JSON of a `wire.Usage`."""
    since = cast(now(session) // DAY, Integer) - filters.days
    total: Any = func.sum(UseRow.count).label("total")
    used = select(UseRow.artifact, total, func.max(UseRow.used_at).label("last")).where(UseRow.day > since)
    sums = used.group_by(UseRow.artifact).subquery()
    row = ArtifactRow
    asked = select(*catalog.COLUMNS, sums.c.total, sums.c.last).join(sums, sums.c.artifact == row.seq)
    for name in ("model", "kind", "vendor", "arch", "migraphx", "rocm"):
        value = getattr(filters, name)
        if value is not None:
            asked = asked.where(getattr(row, name) == value)
    asked = asked.where(row.namespace == namespace).order_by(sums.c.total.desc(), row.seq).limit(filters.limit)
    parts = (
        f'{{"artifact":{{{catalog.fields_of(each)}}},"count":{int(each.total)},"used_at":{json.dumps(each.last)}}}'
        for each in session.execute(asked)
    )
    return '{"uses":[' + ",".join(parts) + "]}"
