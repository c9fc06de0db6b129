"""Recalled artifacts: what was yanked or quarantined, and the list of a namespace that hosts keep.

A recall belongs to the id of an artifact, not to its row: it stays when the artifact is removed, because copies live on
in caches and bundles, and holds again when the same bytes are published again.

Each change of a list has a number higher than all before it, also where an older database was restored: the time in
seconds since 1970, or one more than the last.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update

from mxr.artifact.matching import PUSHED
from mxr.artifact.recall import QUARANTINED, YANKED, Recall, Recalled, check_reason
from mxr.errors import ConflictError, MxrError, NotAllowedError, NotFoundError, TemporaryError, UsageError
from mxr.protocol.recalls import RecallList
from mxr.trust.envelope import Envelope
from mxr.trust.recall_list import PAYLOAD_TYPE, SignedRecalls
from mxr.util import codec
from mxr.util.codec import Timestamp, canonical, decode, encode
from mxr.util.hashing import sha256_hex
from mxr_registry.access import signing_keys
from mxr_registry.config.retention import DAY
from mxr_registry.database import trail
from mxr_registry.database.session import Database, Row, Session, advisory_lock, now, signer_of, upsert
from mxr_registry.database.tables import ArtifactRow, NamespaceRow, RecallRow, TombstoneRow
from mxr_registry.signer import Signer
from mxr_registry.storage.store import Store

from . import catalog, namespaces

log = logging.getLogger("mxr_registry")


@dataclass(frozen=True, slots=True)
class KeptList:
    """The list of a namespace as the store keeps it."""

    namespace: str
    sequence: int
    items: tuple[Recalled, ...]


MAX_RECALLS = 2_000
"""Recalled artifacts of a namespace: every host keeps the whole list."""

RECALLS = "recalls"
"""In the context of a miss, until it is a header of its reply: the number of the list."""

KINDS = {YANKED: "artifact.yank", QUARANTINED: "artifact.quarantine"}
"""How the trail calls it."""

FULL = 64


def recall_artifact(
    session: Session, namespace: str, id: str, word: str, reason: str, by: str, owner: str | None = None
) -> Recalled:
    """Yank or quarantine an artifact, also one that was removed, and return what is said of it.

    `by`: the principal. `owner`: the principal that may only yank what it pushed itself. Raises `NotFoundError`,
    `UsageError`, `NotAllowedError`, `TooManyRequestsError`, and `ConflictError` where it would weaken a quarantine.
    """
    trail.refuse_flood(session, KINDS[word])
    found = Recall(word, check_reason(reason), Timestamp(now(session)), by)
    advisory_lock(session, f"recalls {namespace}")
    identity, row = _identify(session, namespace, id)
    if owner is not None and (row is None or word != YANKED or row.origin != PUSHED or row.created_by != owner):
        raise NotAllowedError(
            f"{owner} may only yank what it pushed itself, and artifact {identity[:12]} is to be {word}.",
            hint="Use a token with the scope recall.",
            context={"id": identity},
        )
    before = recall_of(session, namespace, identity)
    if before is not None and before.refuses and word == YANKED:
        raise ConflictError(
            f"Artifact {identity[:12]} is quarantined, which is more than yanked.",
            hint="End the quarantine first (`DELETE /v1/artifacts/{id}/recall`).",
            context={"id": identity, "word": before.word},
        )
    if before is None:
        _refuse_too_many(session, namespace)
    text = canonical(encode(found))
    upsert(session, RecallRow, {"namespace": namespace, "id": identity}, {"recall_json": text}, {"recall_json": text})
    _apply(session, namespace, identity, text)
    detail = {"reason": found.reason} | ({"replaced": before.word} if before is not None else {})
    trail.record(session, KINDS[word], identity, detail, namespace=namespace, model=_model(row))
    return Recalled(identity, found)


def end_recall(session: Session, namespace: str, id: str) -> Recalled:
    """End the recall of an artifact, and return what was said of it. Raises `NotFoundError`, `UsageError`."""
    advisory_lock(session, f"recalls {namespace}")
    identity, row = _identify(session, namespace, id)
    before = recall_of(session, namespace, identity)
    if before is None:
        raise NotFoundError(
            f"Artifact {identity[:12]} is neither yanked nor quarantined.",
            hint="List what is (`GET /v1/recalls`).",
            context={"object": "recall", "id": identity},
        )
    session.execute(delete(RecallRow).where(RecallRow.namespace == namespace, RecallRow.id == identity))
    _apply(session, namespace, identity, None)
    detail = {"replaced": before.word, "reason": before.reason}
    trail.record(session, "artifact.unyank", identity, detail, namespace=namespace, model=_model(row))
    return Recalled(identity, before)


def list_recalls(session: Session, namespace: str) -> RecallList:
    """Return what is recalled in a namespace, by id, signed where this registry can sign."""
    row = RecallRow
    found = session.execute(select(row.id, row.recall_json).where(row.namespace == namespace).order_by(row.id)).all()
    items = tuple(Recalled(each.id, _read(each)) for each in found)
    sequence = sequence_of(session, namespace)
    return RecallList(namespace, sequence, items, _signed(session, namespace, sequence, items))


def _signed(session: Session, namespace: str, sequence: int, items: tuple[Recalled, ...]) -> Envelope | None:
    """The list, signed as of today: whoever asks again on the same day gets the same bytes."""
    signer = signer_of(session)
    try:
        key = (signer or Signer(None)).key()
        signing_keys.require_active(session, key)
    except TemporaryError:
        return None
    assert signer is not None
    issued = now(session) // DAY * DAY
    document = SignedRecalls(
        signing_keys.registry_id(session),
        namespace,
        sequence,
        Timestamp(issued),
        Timestamp(issued + signer.recall_seconds),
        items,
        signing_keys.known_keys(session),
    )
    return Envelope.sign(PAYLOAD_TYPE, encode(document), key)


def renumber(session: Session) -> None:
    """Give the list of each namespace its next number: what all of them say has changed."""
    for namespace in dict.fromkeys((namespaces.DEFAULT, *session.execute(select(NamespaceRow.name)).scalars())):
        advisory_lock(session, f"recalls {namespace}")
        _next(session, namespace)


def keep(db: Database, store: Store, namespace: str) -> None:
    """Keep the list in the store, from which a database that is restored learns it again. Where that fails, the next
    change or start does it."""
    with db.reading() as session:
        found = list_recalls(session, namespace)
    document = {"namespace": namespace, "sequence": found.sequence, "items": encode(found.items)}
    try:
        store.keep_note(_note_name(namespace), canonical(document).encode())
    except MxrError as problem:
        log.warning("the recall list is not in the store yet: %s", problem)


def reconcile(db: Database, store: Store) -> int:
    """Take over the lists of the store that are later than those of the database, and the other way round.

    Return how many lists the database had forgotten: it comes from an older backup. Raises `TemporaryError`.
    """
    notes = [decode(KeptList, json.loads(data), lenient=True) for data in store.notes().values()]
    count = 0
    for kept in notes:
        with db.writing() as session:
            advisory_lock(session, f"recalls {kept.namespace}")
            if kept.sequence > sequence_of(session, kept.namespace):
                _take_over(session, kept)
                count += 1
    if count:
        log.warning("this database had forgotten recalls, which the store has: it comes from an older backup")
    with db.reading() as session:
        query = select(NamespaceRow.name, NamespaceRow.recall_sequence)
        numbers = {row.name: row.recall_sequence for row in session.execute(query) if row.recall_sequence}
    kept_numbers = {kept.namespace: kept.sequence for kept in notes}
    for namespace, number in numbers.items():
        if kept_numbers.get(namespace, 0) < number:
            keep(db, store, namespace)
    return count


def _take_over(session: Session, kept: KeptList) -> None:
    row, namespace = RecallRow, kept.namespace
    known = set(session.execute(select(row.id).where(row.namespace == namespace)).scalars())
    for id in known - {each.id for each in kept.items}:
        session.execute(delete(row).where(row.namespace == namespace, row.id == id))
        _mark(session, namespace, id, None)
    for each in kept.items:
        text = canonical(encode(each.recall))
        upsert(session, row, {"namespace": namespace, "id": each.id}, {"recall_json": text}, {"recall_json": text})
        _mark(session, namespace, each.id, text)
    _next(session, namespace, kept.sequence)


def _mark(session: Session, namespace: str, id: str, text: str | None) -> None:
    artifact = update(ArtifactRow).where(ArtifactRow.namespace == namespace, ArtifactRow.id == id)
    session.execute(artifact.values(recall_json=text))


def _note_name(namespace: str) -> str:
    return sha256_hex(namespace.encode())[:32]


def sequence_of(session: Session, namespace: str) -> int:
    """Return the number of the last change of the list; 0 before the first."""
    query = select(NamespaceRow.recall_sequence).where(NamespaceRow.name == namespace)
    return session.execute(query).scalar() or 0


def recall_of(session: Session, namespace: str, identity: str) -> Recall | None:
    """Return what is said of an artifact; None if it is not recalled. It need not be published."""
    row = RecallRow
    query = select(row.recall_json).where(row.namespace == namespace, row.id == identity)
    found = session.execute(query).first()
    return None if found is None else _read(found)


def stored_recall(session: Session, namespace: str, identity: str) -> str | None:
    """Return the column `recall_json` of an artifact that is published, perhaps again."""
    found = recall_of(session, namespace, identity)
    return None if found is None else canonical(encode(found))


def refuse_quarantined(row: Row) -> None:
    """Raise `RecalledError` if the artifact of a row with `id` and `recall_json` is quarantined."""
    if row.recall_json is not None and (found := _read(row)).refuses:
        raise found.error(row.id)


def _read(row: Row) -> Recall:
    return codec.decode(Recall, json.loads(row.recall_json), "recall")


def _apply(session: Session, namespace: str, identity: str, text: str | None) -> None:
    """Write what is said of an artifact beside it, and give the list its next number."""
    _mark(session, namespace, identity, text)
    _next(session, namespace)


def _next(session: Session, namespace: str, above: int = 0) -> None:
    moment = now(session)
    following = {"recall_sequence": max(int(moment), sequence_of(session, namespace) + 1, above + 1)}
    upsert(session, NamespaceRow, {"name": namespace}, {**following, "created_at": moment}, following)


def _identify(session: Session, namespace: str, id: str) -> tuple[str, Row | None]:
    """Return the id that is meant and the row of its artifact; None where it is not published.

    What was removed, and what is recalled, is known by a prefix, too; any other artifact by its whole id, because
    copies of it may be anywhere. Raises `NotFoundError`, `UsageError`.
    """
    try:
        row = catalog.find_artifact(session, namespace, id)
        return row.id, row
    except NotFoundError:
        known: Sequence[Any] = (RecallRow, TombstoneRow)
        found = {
            identity
            for table in known
            for identity in session.execute(
                select(table.id).where(table.namespace == namespace, table.id >= id, table.id < id + "g").limit(2)
            ).scalars()
        }
        if len(found) > 1:
            raise UsageError(
                f"More than one artifact id begins with {id}.",
                hint="Give more digits of the id.",
                context={"object": "artifact", "ids": sorted(found)},
            ) from None
        if not found and len(id) < FULL:
            raise
        return (found.pop() if found else id), None


def _model(row: Row | None) -> str | None:
    return None if row is None else str(json.loads(row.key_json)["model"])


def _refuse_too_many(session: Session, namespace: str) -> None:
    count = select(func.count()).where(RecallRow.namespace == namespace)
    if session.execute(count).scalar_one() >= MAX_RECALLS:
        raise ConflictError(
            f"{MAX_RECALLS} artifacts are recalled, which is the limit.",
            hint="End recalls of artifacts that no host has any more (`DELETE /v1/artifacts/{id}/recall`).",
            context={"recalls": MAX_RECALLS},
        )
