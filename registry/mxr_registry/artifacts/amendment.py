"""What happens to the facts of an artifact when the same bytes are published again.

    built over pushed        the facts of the worker replace those of the publisher
    built over built         the facts stay
    pushed, the same facts   nothing changes
    pushed, other facts      refused; with `intent.amend`, the publisher of a pushed artifact replaces its own facts

Facts are the attributes and who states them. An amendment ends the promotion: somebody promoted the facts before it.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from sqlalchemy import update

from mxr.artifact import serving
from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Difference
from mxr.errors import ConflictError, MxrError, NotAllowedError
from mxr.util.codec import canonical, encode
from mxr_registry.database.session import Row, Session, now
from mxr_registry.database.tables import ArtifactRow

from . import catalog, models
from .checked_publication import CheckedPublication

log = logging.getLogger("mxr_registry")

COLUMNS = (
    ArtifactRow.seq,
    ArtifactRow.namespace,
    ArtifactRow.id,
    ArtifactRow.origin,
    ArtifactRow.created_by,
    ArtifactRow.worker,
    ArtifactRow.attributes_json,
    ArtifactRow.provenance_json,
)
"""Columns of an existing artifact that `amend` needs."""


def facts_of(session: Session, namespace: str, checked: CheckedPublication) -> dict[str, Any]:
    """Return the columns of an artifact that depend on who published it."""
    source, wanted = checked.source, checked.wanted
    claimed = wanted.model.name if wanted.model and source.origin == serving.PUSHED else None
    return {
        "origin": source.origin,
        "created_by": source.created_by,
        "job": source.job,
        "worker": source.worker,
        "attributes_json": canonical(wanted.attributes.to_json()),
        "provenance_json": canonical(dict(wanted.provenance)),
        "sources_json": canonical(dict(checked.sources)),
        "description_json": canonical(dict(checked.description)),
        "model_name": claimed or models.name_of(session, namespace, wanted.key.model),
    }


def amend(session: Session, existing: Row, checked: CheckedPublication) -> MxrError | None:
    """Replace the facts of an existing artifact if this publication may. Returns the reason if it may not."""
    if checked.source.origin == serving.BUILT:
        if existing.origin == serving.PUSHED:
            _replace(session, existing, checked)
        return None
    differences = _differences(existing, checked)
    if not differences and not checked.wanted.intent.amend:
        return None
    problem = _refusal(existing, checked, differences)
    if problem is None:
        _replace(session, existing, checked, promoted=0, promoted_at=None)
    return problem


def _replace(session: Session, existing: Row, checked: CheckedPublication, **more: Any) -> None:
    row, source = ArtifactRow, checked.source
    values = facts_of(session, existing.namespace, checked) | {"changed_at": now(session)} | more
    session.execute(update(row).where(row.seq == existing.seq).values(values))
    log.info("the facts of artifact %s were replaced by %s (%s)", existing.id, source.created_by, source.origin)


def _differences(existing: Row, checked: CheckedPublication) -> list[Difference]:
    has, wanted = catalog.attributes_of(existing.attributes_json), checked.wanted.attributes
    names = (each.name for each in fields(Attributes))
    pairs = ((name, encode(getattr(wanted, name)), encode(getattr(has, name))) for name in names)
    return [Difference(name, asked, found) for name, asked, found in pairs if asked != found]


def _refusal(existing: Row, checked: CheckedPublication, differences: list[Difference]) -> MxrError | None:
    id, context = existing.id[:12], {"id": existing.id, "differences": [each.to_json() for each in differences]}
    listed = f": {'; '.join(map(str, differences[:3]))}" if differences else ""
    if existing.origin == serving.BUILT:
        return ConflictError(
            f"These bytes are artifact {id}, whose facts worker {existing.worker} found{listed}.",
            hint="The facts of a built artifact cannot be replaced. Push again without options that contradict them.",
            context=context,
        )
    if not checked.wanted.intent.amend:
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
