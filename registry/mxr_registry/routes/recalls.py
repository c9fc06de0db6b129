"""Routes for recalls: yank or quarantine an artifact, end it, and list what is recalled."""

from __future__ import annotations

from mxr.artifact.recall import Recalled
from mxr.protocol.access import ADMIN, RECALL
from mxr.protocol.recalls import RecallArtifact, RecallList
from mxr_registry.artifacts import recalls
from mxr_registry.openapi import errors

from .deps import ArtifactId, CallerDep, ServicesDep, scoped_router

router = scoped_router(tags=["artifacts"])


@router.put("/v1/artifacts/{id}/recall", responses=errors(404, 409, 429))
def recall_artifact(id: ArtifactId, message: RecallArtifact, services: ServicesDep, caller: CallerDep) -> Recalled:
    """Yank or quarantine an artifact.

    `yanked`: no request gets it any more; who names it gets it with a warning. `quarantined`: nobody gets it, and
    caches refuse it when they next ask. Also for an artifact that was removed, and by its whole id for any other. A
    publisher yanks what it pushed; everything else needs the scope `recall`.
    """
    known = (caller.namespace, id, message.word, message.reason, caller.principal)
    owner = None if caller.may((RECALL, ADMIN)) else caller.principal
    with services.db.writing() as session:
        found = recalls.recall_artifact(session, *known, owner)
    recalls.keep(services.db, services.store, caller.namespace)
    return found


@router.delete("/v1/artifacts/{id}/recall", responses=errors(404))
def end_recall(id: ArtifactId, services: ServicesDep, caller: CallerDep) -> Recalled:
    """End the recall of an artifact.

    Return what was said of it.
    """
    with services.db.writing() as session:
        found = recalls.end_recall(session, caller.namespace, id)
    recalls.keep(services.db, services.store, caller.namespace)
    return found


@router.get("/v1/recalls")
def list_recalls(services: ServicesDep, caller: CallerDep) -> RecallList:
    """List what is recalled.

    The whole list of the namespace, also signed, with the number of its last change, which resolves (`recalls`) and
    the header `MXR-Recalls` of artifacts tell.
    """
    with services.db.reading() as session:
        return recalls.list_recalls(session, caller.namespace)
