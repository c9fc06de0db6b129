"""The fleet: who compiles what, what each did in a day, and which waiting work nobody can do."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from mxr.protocol.access import ADMIN
from mxr_registry.access.scopes import OPERATIONS, Caller
from mxr_registry.database.paging import PageFilters
from mxr_registry.jobs import attempts, workers
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep

from .jobs import queue_view
from .site import as_json, page_router, plain, render

router = page_router()

AT_ONCE = 25
"""Workers on one page."""


class FleetFilters(PageFilters, frozen=True):
    """The page of workers."""

    limit: int = Field(default=AT_ONCE, ge=1, le=AT_ONCE)


Filters = Annotated[FleetFilters, Query()]


@router.get("/fleet")
def show_fleet(request: Request, services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """The page."""
    return render(request, "fleet.html", {"command": "mxr workers", **view(services, caller, filters)})


@router.get("/fleet.json")
def show_fleet_json(services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """What the page shows."""
    return as_json(view(services, caller, filters))


def view(services: Services, caller: Caller, filters: FleetFilters) -> dict[str, Any]:
    """Return what the page shows."""
    with services.db.reading() as session:
        namespace = caller.namespace
        found = plain(workers.list_workers(session, services.rules, namespace, filters.after, filters.limit))
        did = attempts.by_worker(session, namespace)
        for worker in found["items"]:
            parts = did.get(worker["name"], [])
            worker["day"] = parts
            worker["busy_seconds"] = sum(part["from"] - part["to"] for part in parts)
            worker["done"] = sum(part["state"] == "done" for part in parts)
            worker["failed"] = sum(part["state"] not in ("done", "running") for part in parts)
        sees_queue = caller.may((*OPERATIONS["get_queue"], ADMIN))
        return {
            "workers": found["items"],
            "next": found["next"],
            "counts": workers.count_states(session, services.rules, namespace),
            "pools": plain(workers.list_pools(session, services.rules, namespace))["items"],
            "lanes": queue_view(session, services, namespace) if sees_queue else None,
        }
