"""Artifacts that somebody removed: nothing brings them back by chance, from a cache, a bundle or a copy."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import delete, select

from mxr.artifact import serving
from mxr.artifact.timestamps import time_text
from mxr.errors import ConflictError, NotAllowedError
from mxr_registry.database.session import Session, now
from mxr_registry.database.tables import TombstoneRow

from .checked_publication import CheckedPublication

log = logging.getLogger("mxr_registry")


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
    if source.origin != serving.BUILT:
        removed = f"Artifact {checked.id[:12]} was removed by {found.removed_by} at {time_text(found.removed_at)}."
        context = {"id": checked.id, "removed": True}
        if not checked.wanted.intent.restore:
            raise ConflictError(removed, hint="If it is good after all, set `intent.restore`.", context=context)
        if not source.admin and source.created_by != found.removed_by:
            raise NotAllowedError(
                removed, hint=f"Only {found.removed_by} or an administrator can restore it.", context={"id": checked.id}
            )
    session.execute(delete(row).where(*here))
    by = source.worker or source.created_by
    log.info("artifact %s, removed by %s, was restored by %s", checked.id, found.removed_by, by)
    return {"restored_at": now(session), "restored_by": by}
