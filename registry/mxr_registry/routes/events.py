"""The route of the trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from mxr.errors import Json
from mxr.protocol.events import Events
from mxr_registry.database import trail

from .deps import CallerDep, ServicesDep, scoped_router

router = scoped_router(prefix="/v1/events", tags=["events"])


@router.get("", response_model=Events)
def list_events(services: ServicesDep, caller: CallerDep, filters: Annotated[trail.EventFilters, Query()]) -> Json:
    """List who did what, newest first.

    Publications, promotions, removals and locks; for administrators also tokens, namespaces and maintenance, and the
    addresses of all. Rows are kept for `retention.event_days`.
    """
    with services.db.reading() as session:
        return trail.list_events(session, caller.namespace, filters, everything=caller.is_admin)
