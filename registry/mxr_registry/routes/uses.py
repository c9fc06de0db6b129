"""Routes for artifact usage: hosts report uses of cached artifacts, clients list the most used artifacts."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from mxr.errors import Json
from mxr.protocol.artifacts import UsageReply, Uses, UsesAccepted
from mxr_registry.artifacts import usage
from mxr_registry.server.bodies import Large

from .deps import CallerDep, ServicesDep, scoped_router

router = scoped_router(prefix="/v1/uses", tags=["artifacts"])


@router.post("")
def report_uses(message: Large[Uses], services: ServicesDep, caller: CallerDep) -> UsesAccepted:
    """Report uses of cached artifacts.

    Return how many artifacts were recorded. Artifacts that no longer exist are ignored.
    """
    return UsesAccepted(usage.record_uses(services.db, caller.namespace, message.uses))


@router.get("", response_model=UsageReply)
def list_uses(services: ServicesDep, caller: CallerDep, filters: Annotated[usage.UsageFilters, Query()]) -> Json:
    """List used artifacts, most used first.

    Artifacts with their uses in the last `days` (default 30) and the time of the last use.
    """
    with services.db.reading() as session:
        return usage.list_usage(session, caller.namespace, filters)
