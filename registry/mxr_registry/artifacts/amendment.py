"""What happens to the facts of an artifact when the same bytes are published again.

    built over pushed        the facts of the worker replace those of the publisher
    built over built         the facts stay; those of a worker with the GPU replace those of a cross-compile
    pushed, the same facts   nothing changes
    pushed, other facts      refused; with `intent.amend`, the publisher of a pushed artifact replaces its own facts

Facts are the attributes and who states them. An amendment ends the promotion: somebody promoted the facts before it.

What somebody removed stays removed: nothing brings it back by chance, from a cache, a bundle or a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import delete, select, update

from mxr.artifact import matching
from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Difference
from mxr.errors import ConflictError, MxrError, NotAllowedError
from mxr.protocol.artifacts import Publish
from mxr.trust.envelope import Envelope
from mxr.util.codec import canonical, encode, time_text
from mxr_registry.database import trail
from mxr_registry.database.session import Row, Session, now
from mxr_registry.database.tables import ArtifactRow, TombstoneRow

from . import catalog, models, statements
from .inspection import Description

log = logging.getLogger("mxr_registry")

COLUMNS = (
    ArtifactRow.seq,
    ArtifactRow.namespace,
    ArtifactRow.id,
    ArtifactRow.origin,
    ArtifactRow.created_by,
    ArtifactRow.changed_at,
    ArtifactRow.worker,
    ArtifactRow.attributes_json,
    ArtifactRow.provenance_json,
)
"""Columns of an existing artifact that `amend` needs."""


@dataclass(frozen=True, slots=True)
class PublicationSource:
    """What the registry itself knows of a publication: its origin, the principal, and job and worker of a built one.

    `admin`: the principal may publish again what others removed. `built`: what the worker signed, which was checked.
    """

    origin: str
    created_by: str
    job: str | None = None
    worker: str | None = None
    admin: bool = False
    built: Envelope | None = None

    @property
    def uploader(self) -> str | None:
        """The principal to whose uploads it is restricted; None for an administrator."""
        return None if self.admin else self.created_by


@dataclass(frozen=True, slots=True)
class CheckedPublication:
    """A publication with verified bytes and programs that match its key.

    `sources` tells who states each fact. `repairs`: the artifact already exists, and the store has lost blobs of its
    current manifest.
    """

    message: Publish
    source: PublicationSource
    digest: str
    id: str
    sources: Mapping[str, str]
    description: Description
    repairs: bool = False


def facts_of(session: Session, namespace: str, checked: CheckedPublication) -> dict[str, Any]:
    """Return the columns of an artifact that depend on who published it."""
    source, message = checked.source, checked.message
    claimed = message.model.name if message.model and source.origin == matching.PUSHED else None
    return {
        "origin": source.origin,
        "created_by": source.created_by,
        "job": source.job,
        "worker": source.worker,
        "attributes_json": canonical(message.attributes.to_json()),
        "provenance_json": canonical(dict(message.provenance)),
        "sources_json": canonical(dict(checked.sources)),
        "description_json": canonical(dict(checked.description)),
        "model_name": claimed or models.name_of(session, namespace, message.key.model),
    }


def amend(session: Session, existing: Row, checked: CheckedPublication) -> MxrError | None:
    """Replace the facts of an existing artifact if this publication may. Returns the reason if it may not."""
    if checked.source.origin == matching.BUILT:
        was = catalog.attributes_of(existing.attributes_json).tuning
        ran_first = was == "cross" != checked.message.attributes.tuning
        if existing.origin == matching.PUSHED or ran_first:
            _replace(session, existing, checked)
        return None
    differences = _differences(existing, checked)
    if not differences and not checked.message.intent.amend:
        return None
    problem = _refusal(existing, checked, differences)
    if problem is None:
        _replace(session, existing, checked, promoted=0, promoted_at=None)
    return problem


def _replace(session: Session, existing: Row, checked: CheckedPublication, **more: Any) -> None:
    row, source = ArtifactRow, checked.source
    values = facts_of(session, existing.namespace, checked) | {"changed_at": now(session)} | more
    session.execute(update(row).where(row.seq == existing.seq).values(values))
    statements.accept(session, existing.namespace, existing.id)
    differences = [each.to_json() for each in _differences(existing, checked)]
    detail = {"origin": source.origin, "replaced": existing.origin, "differences": differences[:20]}
    model = checked.message.key.model
    trail.record(session, "artifact.amend", existing.id, detail, namespace=existing.namespace, model=model)


def _differences(existing: Row, checked: CheckedPublication) -> list[Difference]:
    there, stated = catalog.attributes_of(existing.attributes_json), checked.message.attributes
    names = (each.name for each in fields(Attributes))
    pairs = ((name, encode(getattr(stated, name)), encode(getattr(there, name))) for name in names)
    return [Difference(name, asked, found) for name, asked, found in pairs if asked != found]


def _refusal(existing: Row, checked: CheckedPublication, differences: list[Difference]) -> MxrError | None:
    id, rows = existing.id[:12], [difference.to_json() for difference in differences]
    context = {"id": existing.id, "differences": rows}
    listed = f": {'; '.join(map(str, differences[:3]))}" if differences else ""
    if existing.origin == matching.BUILT:
        return ConflictError(
            f"These bytes are artifact {id}, whose facts worker {existing.worker} found{listed}.",
            hint="The facts of a built artifact cannot be replaced. Push again without options that contradict them.",
            context=context,
        )
    if not checked.message.intent.amend:
        return ConflictError(
            f"These bytes were already published, as artifact {id}, with other facts{listed}.",
            hint="To replace the facts of an artifact that you pushed, set `intent.amend`.",
            context=context | {"amendable": True},
        )
    if existing.created_by != checked.source.created_by:
        return NotAllowedError(
            f"Artifact {id} was published by {existing.created_by}, and only its publisher can amend it.",
            hint="Ask its publisher to amend it.",
            context={"id": existing.id},
        )
    return None


def restore(session: Session, namespace: str, checked: CheckedPublication) -> dict[str, Any]:
    """Return the columns of a new artifact that say who brought it back; none if nobody removed it.

    Ends the tombstone. A worker that compiled the same bytes again brings an artifact back, and a publisher who says
    so: an administrator, or the one who removed it. Raises `ConflictError` and `NotAllowedError` for all others.
    """
    row, source = TombstoneRow, checked.source
    here = (row.namespace == namespace, row.id == checked.id)
    found = session.execute(select(row.removed_at, row.removed_by).where(*here).with_for_update()).first()
    if found is None:
        return {"restored_at": None, "restored_by": None}
    if source.origin != matching.BUILT:
        removed = f"Artifact {checked.id[:12]} was removed by {found.removed_by} at {time_text(found.removed_at)}."
        context = {"id": checked.id, "removed": True}
        if not checked.message.intent.restore:
            raise ConflictError(removed, hint="If it is good after all, set `intent.restore`.", context=context)
        if not source.admin and source.created_by != found.removed_by:
            raise NotAllowedError(
                removed, hint=f"Only {found.removed_by} or an administrator can restore it.", context={"id": checked.id}
            )
    session.execute(delete(row).where(*here))
    return {"restored_at": now(session), "restored_by": source.worker or source.created_by}
