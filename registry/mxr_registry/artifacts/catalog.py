"""Artifacts: finding, listing, promoting and removing them, and the bytes of their files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact.manifest import File, Manifest
from mxr.artifact.qualities import Qualities
from mxr.errors import NotAllowed, NotFound, Usage
from mxr.util.codec import decode
from mxr_registry.database.session import Row, Session, now, take_turns
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactInputRow, ArtifactRow, BlobRow, LockArtifactRow

from . import locks

ID = re.compile(r"[0-9a-f]{8,64}")
MOST_LISTED = 1_000

COLUMNS = (
    ArtifactRow.seq,
    ArtifactRow.id,
    ArtifactRow.digest,
    ArtifactRow.sha256,
    ArtifactRow.size,
    ArtifactRow.key_json,
    ArtifactRow.qualities_json,
    ArtifactRow.provenance_json,
    ArtifactRow.published_at,
    ArtifactRow.promoted_at,
    ArtifactRow.stated_json,
)
"""What a list says of an artifact; the manifest and the description can be long."""


@dataclass(frozen=True, slots=True)
class ArtifactFilters:
    """What a list is narrowed to; None is all. `input` is the name of one. `after`: the `next` of the page before."""

    model: str | None = None
    digest: str | None = None
    kind: str | None = None
    vendor: str | None = None
    arch: str | None = None
    migraphx: str | None = None
    rocm: str | None = None
    precision: str | None = None
    input: str | None = None
    limit: int = 100
    after: str | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> ArtifactFilters:
        """The filters of a query string. Raises `Usage` for one that there is not."""
        known = set(cls.__dataclass_fields__)
        for name in query:
            if name not in known:
                raise Usage(f"{name}: there is no such filter.", hint=f"Filters: {', '.join(sorted(known))}.")
        limit, after = query.get("limit", "100"), query.get("after")
        if not re.fullmatch(r"[1-9][0-9]{0,3}", limit, re.ASCII) or int(limit) > MOST_LISTED:
            raise Usage(f"limit: expected 1 to {MOST_LISTED}, found {limit[:20]!r}.", hint="Correct it.")
        if after is not None and not re.fullmatch(r"[0-9]{1,18}", after, re.ASCII):
            raise Usage(f"after: {after[:40]!r} is not where a page ended.", hint="Use `next` of the page before.")
        return cls(**{**query, "limit": int(limit)})  # type: ignore[arg-type]


def listed(session: Session, namespace: str, filters: ArtifactFilters) -> str:
    """The JSON of a page of artifacts, the newest first."""
    row = ArtifactRow
    asked = select(*COLUMNS).where(row.namespace == namespace)
    for name in ("model", "digest", "kind", "vendor", "arch", "migraphx", "rocm", "precision"):
        value = getattr(filters, name)
        if value is not None:
            asked = asked.where(getattr(row, name) == (value.partition(":")[0] if name == "arch" else value))
    if filters.input is not None:
        asked = asked.where(
            row.seq.in_(select(ArtifactInputRow.artifact).where(ArtifactInputRow.name == filters.input))
        )
    if filters.after is not None:
        asked = asked.where(row.seq < int(filters.after))
    rows = session.execute(asked.order_by(row.seq.desc()).limit(filters.limit + 1)).all()
    page = rows[: filters.limit]
    following = json.dumps(str(page[-1].seq)) if len(rows) > len(page) else "null"
    return '{"artifacts":[' + ",".join(f"{{{fields_of(each)}}}" for each in page) + f'],"next":{following}}}'


def show(session: Session, namespace: str, id: str) -> str:
    """The JSON of one artifact, with its manifest and description. Raises `NotFound`, `Usage`."""
    row = find(session, namespace, id)
    description = row.description_json or "null"
    return f'{{{fields_of(row)},"description":{description},"manifest":{row.manifest_json}}}'


def fields_of(row: Row) -> str:
    """The fields of an artifact that every reply has, as they stand between braces."""
    promoted_at = "null" if row.promoted_at is None else row.promoted_at
    return (
        f'"id":"{row.id}","digest":"{row.digest}","sha256":"{row.sha256}","size":{row.size},"key":{row.key_json},'
        f'"qualities":{row.qualities_json},"provenance":{row.provenance_json},"published_at":{row.published_at},'
        f'"promoted_at":{promoted_at},"stated":{row.stated_json}'
    )


@lru_cache(maxsize=4_096)
def qualities_of(text: str) -> Qualities:
    """Stored qualities; most artifacts of a fleet have one of a few texts."""
    return decode(Qualities, json.loads(text), lenient=True)


def has(session: Session, namespace: str, id: str) -> bool:
    """Whether there is an artifact of this whole id."""
    asked = select(ArtifactRow.seq).where(ArtifactRow.namespace == namespace, ArtifactRow.id == id)
    return session.execute(asked).first() is not None


def find(session: Session, namespace: str, id: str) -> Row:
    """The row of the one artifact whose id begins so (8 digits or more).

    Raises `NotFound`, and `Usage` where several begin so or it is no id.
    """
    if not ID.fullmatch(id):
        raise Usage(f"{id[:80]!r} is not the id of an artifact.", hint="Give 8 to 64 of its lower-case hex digits.")
    row = ArtifactRow
    asked = select(*COLUMNS, row.manifest_json, row.description_json).where(row.namespace == namespace)
    found = session.execute(asked.where(row.id >= id, row.id < id + "g").limit(2)).all()
    if not found:
        raise NotFound(f"There is no artifact {id}.")
    if len(found) > 1:
        raise Usage(
            f"More than one artifact begins with {id}.",
            hint="Give more digits of the id; `mxr ls` shows them.",
            detail={"ids": [each.id for each in found]},
        )
    return found[0]


def file_of(row: Row, name: str) -> File:
    """One file of the artifact in a row. Raises `NotFound`."""
    files = Manifest.from_json(json.loads(row.manifest_json)).files
    for file in files:
        if file.name == name:
            return file
    known = ", ".join(file.name for file in files[:5])
    raise NotFound(f"Artifact {row.id[:12]} has no file {name!r}.", hint=f"It has: {known}.")


def promote(session: Session, namespace: str, id: str) -> str:
    """Make an artifact the first choice of all that serve the same request; its JSON. The latest promotion wins."""
    row = find(session, namespace, id)
    take_turns(session, f"promote {namespace} {row.digest}")
    latest = select(func.coalesce(func.max(ArtifactRow.promoted), 0)).where(
        ArtifactRow.namespace == namespace, ArtifactRow.digest == row.digest
    )
    place = session.execute(latest).scalar_one() + 1
    session.execute(
        update(ArtifactRow).where(ArtifactRow.seq == row.seq).values(promoted=place, promoted_at=now(session))
    )
    return show(session, namespace, row.id)


def free() -> Any:
    """The condition that no registered lock pins an artifact."""
    return ~exists().where(LockArtifactRow.artifact == ArtifactRow.seq)


def forget(session: Session, some: Sequence[int]) -> int:
    """Remove these rows, with all that belongs to them; how many there were.

    Their blobs count as touched: whoever downloads one has the grace period to finish.
    """
    mine = select(ArtifactBlobRow.sha256).where(ArtifactBlobRow.artifact.in_(some))
    touched = update(BlobRow).where(BlobRow.sha256.in_(mine)).values(touched_at=now(session))
    session.execute(touched.execution_options(synchronize_session=False))
    return session.execute(delete(ArtifactRow).where(ArtifactRow.seq.in_(some))).rowcount


def remove(session: Session, namespace: str, id: str) -> str:
    """Remove an artifact; its JSON as it was. Its blobs stay until a sweep finds that nothing is made of them.

    Raises `NotAllowed` where a registered lock pins it.
    """
    row = find(session, namespace, id)
    locks.refuse_pinned(session, row.seq, row.id)
    gone = show(session, namespace, row.id)
    try:
        forget(session, [row.seq])
    except IntegrityError:
        raise NotAllowed(
            f"Artifact {row.id[:12]} was pinned by a lock meanwhile.", hint="`mxr lock --registered` lists them."
        ) from None
    return gone
