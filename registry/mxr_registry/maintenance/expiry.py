"""Select the artifacts that the retention rules remove, least recently used first. This only reads.

Promoted artifacts, and artifacts that a registered lock pins, are never selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, or_, select

from mxr_registry.artifacts import catalog
from mxr_registry.config.retention import DAY, RetentionRules
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow, ModelBlobRow

PAGE = 500


@dataclass(frozen=True, slots=True)
class ExpiredArtifact:
    """An artifact to remove, unless it was used after `moment`. `why` is the reason, `size` is in bytes."""

    seq: int
    id: str
    size: int
    why: str
    moment: float


def choose_expired(db: Database, rules: RetentionRules) -> list[ExpiredArtifact]:
    """Return the artifacts to remove, each with the first rule that applies."""
    with db.reading() as session:
        moment = now(session)
        found: dict[int, ExpiredArtifact] = {}
        for row, why in (*_unused(session, rules, moment), *_surplus(session, rules)):
            found.setdefault(row.seq, ExpiredArtifact(row.seq, row.id, row.size, why, moment))
        for row in _over_total_size(session, rules, list(found)):
            found[row.seq] = ExpiredArtifact(row.seq, row.id, row.size, "the total size is exceeded", moment)
    return list(found.values())


def _select() -> Any:
    return select(ArtifactRow.seq, ArtifactRow.id, ArtifactRow.size).where(
        ArtifactRow.promoted == 0, catalog.not_pinned()
    )


def _unused(session: Session, rules: RetentionRules, moment: float) -> Iterator[tuple[Row, str]]:
    if rules.unused_days is None:
        return
    row, before = ArtifactRow, moment - rules.unused_days * DAY
    # One query per namespace, so that the index on (namespace, used_at) applies.
    for namespace in session.execute(select(row.namespace).distinct()).scalars().all():
        query = _select().where(row.namespace == namespace, row.used_at < before).order_by(row.used_at)
        for each in session.execute(query):
            yield each, f"not used for {rules.unused_days:g} days"


def _surplus(session: Session, rules: RetentionRules) -> Iterator[tuple[Row, str]]:
    if rules.keep_per_model is None:
        return
    row = ArtifactRow
    full = (
        select(row.namespace, row.model)
        .group_by(row.namespace, row.model)
        .having(func.count() > rules.keep_per_model)
        .subquery()
    )
    place = func.row_number().over(
        partition_by=(row.namespace, row.model), order_by=(row.promoted.desc(), row.used_at.desc(), row.seq.desc())
    )
    same = (full.c.namespace == row.namespace) & (full.c.model == row.model)
    placed = select(row.seq, place.label("place")).join(full, same).subquery()
    surplus = select(placed.c.seq).where(placed.c.place > rules.keep_per_model)
    for each in session.execute(_select().where(row.seq.in_(surplus)).order_by(row.used_at)):
        yield each, f"not among the {rules.keep_per_model} artifacts of its model used last"


def _over_total_size(session: Session, rules: RetentionRules, selected: Sequence[int]) -> Iterator[Row]:
    """The artifacts to remove, in addition to those selected already, until all referenced blobs fit the limit."""
    if rules.total_size is None:
        return
    needed = or_(BlobRow.sha256.in_(select(ArtifactBlobRow.sha256)), BlobRow.sha256.in_(select(ModelBlobRow.sha256)))
    total = int(session.execute(select(func.coalesce(func.sum(BlobRow.size), 0)).where(needed)).scalar_one())
    removal = _FreedBytes(session)
    for at in range(0, len(selected), PAGE):
        removal.remove(selected[at : at + PAGE])
    seen = set(selected)
    order = (ArtifactRow.used_at, ArtifactRow.seq)
    last: Any = None
    while total - removal.freed > rules.total_size:
        query = _select().add_columns(ArtifactRow.used_at).order_by(*order).limit(PAGE)
        if last is not None:
            later = (ArtifactRow.used_at > last.used_at) | (
                (ArtifactRow.used_at == last.used_at) & (ArtifactRow.seq > last.seq)
            )
            query = query.where(later)
        page = session.execute(query).all()
        if not page:
            return
        last = page[-1]
        for row in page:
            if total - removal.freed <= rules.total_size:
                return
            if row.seq not in seen:
                removal.remove([row.seq])
                yield row


class _FreedBytes:
    """Counts the bytes that removing artifacts frees: those of blobs without any other reference."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._removed: Counter[str] = Counter()
        self.freed = 0

    def remove(self, artifacts: Iterable[int]) -> None:
        """Count the removal of these artifacts."""
        blobs = select(ArtifactBlobRow.sha256, func.count().label("count")).where(
            ArtifactBlobRow.artifact.in_(list(artifacts))
        )
        for name, count in self._session.execute(blobs.group_by(ArtifactBlobRow.sha256)).all():
            self._removed[name] += count
            if self._removed[name] >= self._references(name):
                self.freed += self._session.execute(
                    select(func.max(BlobRow.size)).where(BlobRow.sha256 == name)
                ).scalar_one()

    def _references(self, name: str) -> int:
        counts = [
            select(func.count()).select_from(row).where(row.sha256 == name).scalar_subquery()
            for row in (ArtifactBlobRow, ModelBlobRow)
        ]
        return int(self._session.execute(select(counts[0] + counts[1])).scalar_one())
