"""Which artifacts the rules of retention let go: by reading only, what was used longest ago first.

Promoted artifacts and those under a registered lock stay, whatever the rules say.
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
    """An artifact to remove, unless it is used after `moment`; `why` in words, `size` in bytes."""

    seq: int
    id: str
    size: int
    why: str
    moment: float


def choose(db: Database, rules: RetentionRules) -> list[ExpiredArtifact]:
    """The artifacts to remove, each once, the first reason first."""
    with db.reading() as session:
        moment = now(session)
        found: dict[int, ExpiredArtifact] = {}
        for row, why in (*_unused(session, rules, moment), *_surplus(session, rules)):
            found.setdefault(row.seq, ExpiredArtifact(row.seq, row.id, row.size, why, moment))
        for row in _too_much(session, rules, list(found)):
            found[row.seq] = ExpiredArtifact(row.seq, row.id, row.size, "all together are too much", moment)
    return list(found.values())


def _select() -> Any:
    return select(ArtifactRow.seq, ArtifactRow.id, ArtifactRow.size).where(ArtifactRow.promoted == 0, catalog.free())


def _unused(session: Session, rules: RetentionRules, moment: float) -> Iterator[tuple[Row, str]]:
    if rules.unused_days is None:
        return
    row, before = ArtifactRow, moment - rules.unused_days * DAY
    # By namespace, so that the index on uses serves.
    for namespace in session.execute(select(row.namespace).distinct()).scalars().all():
        asked = _select().where(row.namespace == namespace, row.used_at < before).order_by(row.used_at)
        for each in session.execute(asked):
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
        yield each, f"more than {rules.keep_per_model} of its model were used later"


def _too_much(session: Session, rules: RetentionRules, gone: Sequence[int]) -> Iterator[Row]:
    """What has to go, beside what goes already, until the bytes that something is made of fit."""
    if rules.total_bytes is None:
        return
    needed = or_(BlobRow.sha256.in_(select(ArtifactBlobRow.sha256)), BlobRow.sha256.in_(select(ModelBlobRow.sha256)))
    total = int(session.execute(select(func.coalesce(func.sum(BlobRow.size), 0)).where(needed)).scalar_one())
    ledger = _Ledger(session)
    for at in range(0, len(gone), PAGE):
        ledger.take(gone[at : at + PAGE])
    seen = set(gone)
    order = (ArtifactRow.used_at, ArtifactRow.seq)
    last: Any = None
    while total - ledger.freed > rules.total_bytes:
        asked = _select().add_columns(ArtifactRow.used_at).order_by(*order).limit(PAGE)
        if last is not None:
            later = (ArtifactRow.used_at > last.used_at) | (
                (ArtifactRow.used_at == last.used_at) & (ArtifactRow.seq > last.seq)
            )
            asked = asked.where(later)
        page = session.execute(asked).all()
        if not page:
            return
        last = page[-1]
        for row in page:
            if total - ledger.freed <= rules.total_bytes:
                return
            if row.seq not in seen:
                ledger.take([row.seq])
                yield row


class _Ledger:
    """Bytes that become free when artifacts go: those of blobs that nothing else is made of."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._taken: Counter[str] = Counter()
        self.freed = 0

    def take(self, some: Iterable[int]) -> None:
        """These artifacts go."""
        mine = select(ArtifactBlobRow.sha256, func.count().label("count")).where(
            ArtifactBlobRow.artifact.in_(list(some))
        )
        for name, count in self._session.execute(mine.group_by(ArtifactBlobRow.sha256)).all():
            self._taken[name] += count
            if self._taken[name] >= self._uses(name):
                self.freed += self._session.execute(
                    select(func.max(BlobRow.size)).where(BlobRow.sha256 == name)
                ).scalar_one()

    def _uses(self, name: str) -> int:
        made = select(func.count()).select_from(ArtifactBlobRow).where(ArtifactBlobRow.sha256 == name).scalar_subquery()
        of_models = select(func.count()).select_from(ModelBlobRow).where(ModelBlobRow.sha256 == name).scalar_subquery()
        return int(self._session.execute(select(made + of_models)).scalar_one())
