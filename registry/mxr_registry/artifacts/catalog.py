"""Published artifacts: find, list, show, promote and remove them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact.attributes import Attributes, RelatedKey
from mxr.artifact.key import TARGET
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.matching import BUILT, PUBLISHER, Candidate
from mxr.artifact.recall import WORDS, Recall
from mxr.artifact.records import INTACT, LOST
from mxr.errors import ConflictError, Json, NotAllowedError, NotFoundError, UsageError
from mxr.util.codec import decode, time_text
from mxr.util.hashing import sha256_hex
from mxr_registry.database import trail
from mxr_registry.database.paging import ListFilters, begins_with, list_page, read_cursor
from mxr_registry.database.session import Row, Session, advisory_lock, default_serve, now
from mxr_registry.database.tables import (
    ArtifactBlobRow,
    ArtifactInputRow,
    ArtifactRow,
    BlobRow,
    LockArtifactRow,
    NamespaceRow,
    TombstoneRow,
    UseRow,
)
from mxr_registry.decoding_cache import DecodingCache
from mxr_registry.json_text import stored

from . import locks

ID = re.compile(r"[0-9a-f]{8,64}")

SERVE = select(NamespaceRow.serve).where(NamespaceRow.name == ArtifactRow.namespace).scalar_subquery().label("serve")
"""The rule of the namespace of an artifact; null: as the process decides."""

RECALLS = (
    select(NamespaceRow.recall_sequence)
    .where(NamespaceRow.name == ArtifactRow.namespace)
    .scalar_subquery()
    .label("recalls")
)
"""The number of the recall list of the namespace of an artifact; null: nothing was ever recalled."""

COLUMNS = (
    ArtifactRow.seq,
    ArtifactRow.id,
    ArtifactRow.digest,
    ArtifactRow.sha256,
    ArtifactRow.size,
    ArtifactRow.key_json,
    ArtifactRow.attributes_json,
    ArtifactRow.provenance_json,
    ArtifactRow.published_at,
    ArtifactRow.promoted_at,
    ArtifactRow.sources_json,
    ArtifactRow.origin,
    ArtifactRow.created_by,
    ArtifactRow.job,
    ArtifactRow.worker,
    ArtifactRow.changed_at,
    ArtifactRow.restored_at,
    ArtifactRow.restored_by,
    ArtifactRow.model_name,
    ArtifactRow.lost_at,
    ArtifactRow.recall_json,
    SERVE,
    RECALLS,
)
"""Columns in a list of artifacts. Manifest and description are left out because they can be long."""


CANDIDATE_COLUMNS = (
    ArtifactRow.seq,
    ArtifactRow.id,
    ArtifactRow.attributes_json,
    ArtifactRow.sources_json,
    ArtifactRow.origin,
    ArtifactRow.promoted,
    SERVE,
    RECALLS,
)
"""Columns of an artifact that `candidate_of` needs."""


class TargetFilters(ListFilters, frozen=True):
    """Filters by model and by where programs run."""

    model: str | None = Field(default=None, description="The identity of the model.")
    kind: str | None = Field(default=None, description="`gpu` or `ref`.")
    vendor: str | None = Field(default=None, description="`amd` or `hygon`.")
    arch: str | None = Field(default=None, description="The GPU architecture.")
    migraphx: str | None = Field(default=None, description="The version of MIGraphX, MAJOR.MINOR.")
    rocm: str | None = Field(default=None, description="The version of ROCm, MAJOR.MINOR.")


class ArtifactFilters(TargetFilters, frozen=True):
    """Filters of a list of artifacts."""

    name: str | None = Field(default=None, description="How the name of the model begins.")
    digest: str | None = Field(default=None, description="The digest of the key.")
    precision: str | None = Field(default=None, description="The precision, such as `fp16`.")
    state: Literal["intact", "lost", "yanked", "quarantined"] | None = Field(
        default=None, description="`lost`: the store lacks bytes of it. `yanked` or `quarantined`: it is recalled."
    )
    input: str | None = Field(default=None, description="The name of an input.")


def list_artifacts(session: Session, namespace: str, filters: ArtifactFilters) -> Json:
    """Return one page of artifacts, newest first."""
    row = ArtifactRow
    query = select(*COLUMNS).where(row.namespace == namespace)
    query = query.where(*filters.equal(row, "model", *TARGET, "digest", "precision"))
    if filters.name is not None:
        query = query.where(begins_with(row.model_name, filters.name))
    if filters.state is not None:
        query = query.where(_in_state(filters.state))
    if filters.input is not None:
        query = query.where(
            row.seq.in_(select(ArtifactInputRow.artifact).where(ArtifactInputRow.name == filters.input))
        )
    if filters.after is not None:
        (seq,) = read_cursor("artifacts", filters.after, int)
        query = query.where(row.seq < seq)
    rule = default_serve(session)
    rows = query.order_by(row.seq.desc())
    return list_page(
        session, rows, lambda each: listed(each, rule), "artifacts", lambda each: (each.seq,), filters.limit
    )


def _in_state(state: str) -> Any:
    """SQL condition: an artifact is in this state."""
    row = ArtifactRow
    if state in WORDS:
        return row.recall_json.like(f'%"word":"{state}"%')
    return row.lost_at.is_(None) if state == INTACT else row.lost_at.is_not(None)


def show_artifact(session: Session, namespace: str, id: str) -> Json:
    """Return one artifact with its manifest and description. Raises `NotFoundError`, `UsageError`."""
    return show_row(find_artifact(session, namespace, id), default_serve(session))


def show_row(row: Row, default: str) -> Json:
    """Return the artifact in a row of `find_artifact`. `default`: see `listed`."""
    return listed(row, default) | {"description": stored(row.description_json), "manifest": stored(row.manifest_json)}


def listed(row: Row, default: str) -> Json:
    """Return the artifact in a row as it is in lists: the JSON value of a `ListedArtifact`.

    `default`: the rule `serve` of a namespace without one of its own.
    """
    return {
        "id": row.id,
        "digest": row.digest,
        "sha256": row.sha256,
        "size": row.size,
        "published_at": time_text(row.published_at),
        "promoted_at": time_text(row.promoted_at),
        "changed_at": time_text(row.changed_at),
        "restored_at": time_text(row.restored_at),
        "restored_by": row.restored_by,
        "created_by": row.created_by,
        "job": row.job,
        "worker": row.worker,
        "origin": row.origin,
        "serve": row.serve or default,
        "model": evidence(row.origin),
        "model_name": row.model_name,
        "state": INTACT if row.lost_at is None else LOST,
        "recall": stored(row.recall_json),
        "key": stored(row.key_json),
        "attributes": stored(row.attributes_json),
        "provenance": stored(row.provenance_json),
        "sources": stored(row.sources_json),
    }


def evidence(origin: str) -> str:
    """Return how the model of an artifact is known: a worker compiled its very bytes."""
    return "verified" if origin == BUILT else "claimed"


def etag_of(row: Row, default: str) -> str:
    """Return the entity tag of an artifact, which changes with every field that a client caches.

    `default`: see `listed`.
    """
    facts = (row.key_json, row.attributes_json, row.provenance_json, row.sources_json, row.manifest_json)
    times = (row.promoted_at, row.changed_at, row.restored_at, row.lost_at, row.recall_json)
    text = "\n".join(map(str, (*facts, row.id, *times, row.origin, row.serve or default, row.model_name)))
    return f'W/"{sha256_hex(text.encode())[:32]}"'


def candidate_of(row: Row, related: RelatedKey | None) -> Candidate:
    """Return the artifact of a row with `CANDIDATE_COLUMNS` as a candidate for a request."""
    attributes, found = attributes_of(row.attributes_json), found_in(row.sources_json)
    return Candidate(row.id, attributes, row.promoted, row.seq, related, row.origin, found)


MAX_CACHED = 1 << 20
"""Bytes of the texts in each of the two caches: the artifacts of a fleet share few different values."""


def _decode_found(text: bytes) -> frozenset[str]:
    return frozenset(name for name, source in json.loads(text).items() if source != PUBLISHER)


_FOUND = DecodingCache(_decode_found, MAX_CACHED)
_ATTRIBUTES = DecodingCache(lambda text: decode(Attributes, json.loads(text), lenient=True), MAX_CACHED)


def found_in(text: str) -> frozenset[str]:
    """Return the names of the facts that the reader or a worker found, from stored sources."""
    return _FOUND.get(text.encode())


def attributes_of(text: str) -> Attributes:
    """Decode stored attributes."""
    return _ATTRIBUTES.get(text.encode())


def has_artifact(session: Session, namespace: str, id: str) -> bool:
    """Whether an artifact with this full id exists."""
    query = select(ArtifactRow.seq).where(ArtifactRow.namespace == namespace, ArtifactRow.id == id)
    return session.execute(query).first() is not None


def find_artifact(session: Session, namespace: str, id: str) -> Row:
    """Return the row of the artifact with this id or unique id prefix (8 digits or more).

    Raises `NotFoundError`, and `UsageError` for an ambiguous prefix or an invalid id.
    """
    if not ID.fullmatch(id):
        raise UsageError(f"{id[:80]!r} is not an artifact id.", hint="Give 8 to 64 lower-case hex digits of the id.")
    row = ArtifactRow
    query = select(*COLUMNS, row.manifest_json, row.description_json).where(row.namespace == namespace)
    rows = session.execute(query.where(row.id >= id, row.id < id + "g").limit(2)).all()
    if not rows:
        raise _not_found(session, namespace, id)
    if len(rows) > 1:
        raise UsageError(
            f"More than one artifact id begins with {id}.",
            hint="Give more digits of the id.",
            context={"object": "artifact", "ids": [row.id for row in rows]},
        )
    return rows[0]


def _not_found(session: Session, namespace: str, id: str) -> NotFoundError:
    """Return the error for an id, which tells one that was removed from one that was lost or never was."""
    row = TombstoneRow
    query = select(row.id, row.removed_by).where(row.namespace == namespace, row.id >= id, row.id < id + "g")
    removed = session.execute(query.limit(1)).first()
    if removed is None:
        return NotFoundError(f"There is no artifact {id}.", context={"object": "artifact"})
    return NotFoundError(
        f"Artifact {removed.id[:12]} was removed by {removed.removed_by}.",
        hint="Request another program. To publish this one again, set `intent.restore`.",
        context={"object": "artifact", "id": removed.id, "removed": True},
    )


def refuse_quarantined(row: Row) -> None:
    """Raise `RecalledError` if nobody may get the artifact in a row."""
    if row.recall_json is not None:
        recall = decode(Recall, json.loads(row.recall_json), "recall")
        if recall.refuses:
            raise recall.error(row.id)


def file_of(row: Row, name: str) -> File:
    """Return one file of the artifact in a row. Raises `NotFoundError`."""
    files = decode(Manifest, json.loads(row.manifest_json), "manifest").files
    for file in files:
        if file.name == name:
            return file
    names = ", ".join(file.name for file in files[:5])
    raise NotFoundError(f"Artifact {row.id[:12]} has no file {name!r}.", hint=f"Use one of its files: {names}.")


def promote_artifact(session: Session, namespace: str, id: str) -> Json:
    """Prefer an artifact over all others that serve the same request, and return it. The last promotion wins.

    Raises `NotFoundError`, `UsageError`, `TooManyRequestsError`.
    """
    trail.refuse_flood(session, "artifact.promote")
    row = find_artifact(session, namespace, id)
    advisory_lock(session, f"promote {namespace} {row.digest}")
    latest = select(func.coalesce(func.max(ArtifactRow.promoted), 0)).where(
        ArtifactRow.namespace == namespace, ArtifactRow.digest == row.digest
    )
    highest = session.execute(latest).scalar_one()
    promoted = highest + 1
    before = select(ArtifactRow.id).where(
        ArtifactRow.namespace == namespace, ArtifactRow.digest == row.digest, ArtifactRow.promoted == highest
    )
    replaced = session.execute(before.limit(1)).scalar() if highest else None
    _record(session, "artifact.promote", namespace, row, {"replaced": replaced})
    session.execute(
        update(ArtifactRow).where(ArtifactRow.seq == row.seq).values(promoted=promoted, promoted_at=now(session))
    )
    return show_artifact(session, namespace, row.id)


SIBLINGS = 500
"""Artifacts of the same model that one is compared with, the latest."""


def siblings(session: Session, namespace: str, row: Row, limit: int) -> list[Json]:
    """Return the artifacts of the same model that differ least, each with the fields in which it does.

    `[{"id","digest","differences":[{"field","this","sibling"}],"used_at"}]`. `row`: that of `find_artifact`.
    """
    own = _facts(row)
    others = select(*CANDIDATE_COLUMNS, ArtifactRow.key_json, ArtifactRow.used_at).where(
        ArtifactRow.namespace == namespace, ArtifactRow.model == json.loads(row.key_json)["model"]
    )
    found, size = [], 0
    result = session.execute(others.order_by(ArtifactRow.seq.desc()).limit(SIBLINGS).execution_options(yield_per=50))
    for each in result:
        size += len(each.key_json)
        if size > MAX_SIBLINGS_BYTES:
            break
        if each.id == row.id:
            continue
        facts = _facts(each)
        different = [name for name in {**own, **facts} if own.get(name) != facts.get(name)]
        rows = [{"field": name, "this": own.get(name), "sibling": facts.get(name)} for name in different]
        found.append({"id": each.id, "differences": rows, "used_at": time_text(each.used_at)})
    return sorted(found, key=lambda each: len(each["differences"]))[:limit]


MAX_SIBLINGS_BYTES = 4 << 20
"""Characters of the keys that are compared: a key can be large, because its text comes from clients."""


def _facts(row: Row) -> dict[str, Any]:
    """The facts of an artifact by which it is compared: each input, variable and option by itself."""
    key = json.loads(row.key_json)
    nested = {name: key.pop(name, None) or {} for name in ("inputs", "env", "options")}
    attributes = {name: value for name, value in json.loads(row.attributes_json).items() if name not in UNCOMPARED}
    return {**key, **{f"{name}.{each}": value for name, values in nested.items() for each, value in values.items()}} | (
        attributes | {"origin": row.origin}
    )


UNCOMPARED = ("latency_ms", "libraries", "build")
"""Attributes that are no reason to choose one artifact or the other."""


def count_unused(session: Session, namespace: str, before: float, most: int) -> int:
    """Return how many artifacts a sweep removes that removes what was not used since; at most one more than `most`."""
    row = ArtifactRow
    unused = (row.namespace == namespace, row.used_at < before, row.promoted == 0, not_pinned())
    found = select(row.seq).where(*unused).limit(most + 1).subquery()
    return int(session.execute(select(func.count()).select_from(found)).scalar_one())


def not_pinned() -> Any:
    """SQL condition: no registered lock pins the artifact."""
    return ~exists().where(LockArtifactRow.artifact == ArtifactRow.seq)


def touch_blobs(session: Session, artifacts: Sequence[int]) -> None:
    """Restart the grace period of the blobs of these artifacts, given by `seq`."""
    names = select(ArtifactBlobRow.sha256).where(ArtifactBlobRow.artifact.in_(artifacts))
    touch = update(BlobRow).where(BlobRow.sha256.in_(names)).values(touched_at=now(session))
    session.execute(touch.execution_options(synchronize_session=False))


def delete_rows(session: Session, artifacts: Sequence[int]) -> int:
    """Delete these artifacts by `seq`, with all dependent rows, and return how many existed.

    This restarts the grace period of their blobs, so that running downloads can finish.
    """
    touch_blobs(session, artifacts)
    return session.execute(delete(ArtifactRow).where(ArtifactRow.seq.in_(artifacts))).rowcount


def remove_artifact(
    session: Session,
    namespace: str,
    id: str,
    by: str,
    owner: str | None = None,
    *,
    force: bool = False,
    counted: Callable[[str, str], bool] | None = None,
) -> Json:
    """Remove an artifact and return it as it was. Its blobs stay until a sweep finds them unreferenced.

    It leaves a tombstone with `by`, the principal who removed it: nobody publishes it again by chance. `owner`: the
    principal that may remove only what it pushed itself. `force`: take it out of the registered locks that pin it, as
    an administrator may, and although it was used; `counted` tells of a use that is not written yet. Raises
    `NotAllowedError` if it is somebody else's, or if a registered lock pins it, and `ConflictError` if somebody used
    it: a removal reaches no copy.
    """
    row = find_artifact(session, namespace, id)
    if owner is not None and (row.origin == BUILT or row.created_by != owner):
        raise NotAllowedError(
            f"Artifact {row.id[:12]} was {row.origin} by {row.created_by}, and {owner} may remove only what it pushed.",
            hint="Ask an administrator of the registry to remove it.",
            context={"id": row.id},
        )
    if force:
        locks.unpin(session, row.seq)
    locks.refuse_pinned(session, row.seq, row.id)
    used = counted is not None and counted(namespace, row.id)
    if not force and row.recall_json is None and (used or _was_used(session, row.seq)):
        raise ConflictError(
            f"Artifact {row.id[:12]} was used, so copies of it may be in caches, which a removal does not reach.",
            hint="Yank or quarantine it first (`PUT /v1/artifacts/{id}/recall`).",
            context={"id": row.id, "used": True},
        )
    removed = show_artifact(session, namespace, row.id)
    try:
        count = delete_rows(session, [row.seq])
    except IntegrityError:
        raise NotAllowedError(
            f"Artifact {row.id[:12]} has just been pinned by a lock.",
            hint="List the locks (`GET /v1/locks`).",
        ) from None
    if not count:
        # Another request removed it at the same time.
        raise _not_found(session, namespace, row.id)
    tombstone = {"namespace": namespace, "id": row.id, "removed_at": now(session), "removed_by": by}
    session.execute(insert(TombstoneRow).values(tombstone))
    _record(session, "artifact.remove", namespace, row, {"forced": force, "sha256": row.sha256})
    return removed


def _was_used(session: Session, seq: int) -> bool:
    return session.execute(select(UseRow.day).where(UseRow.artifact == seq).limit(1)).first() is not None


def _record(session: Session, kind: str, namespace: str, row: Row, detail: Mapping[str, Any]) -> None:
    trail.record(session, kind, row.id, detail, namespace=namespace, model=json.loads(row.key_json)["model"])
