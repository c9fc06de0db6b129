"""Uses over HTTP: hosts tell of those from their caches, people and plans ask what is in use."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import usage

from .deps import Body, By, InServices, read, reply
from .schemas import body

router = APIRouter(prefix="/v1/uses", tags=["artifacts"])

FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer" if name in numbers else "string"}}
    for numbers in [("days", "limit")]
    for name in usage.UsageFilters.__dataclass_fields__
]


@router.post("", summary="A host tells what it used from its cache", openapi_extra=body(artifact_protocol.Uses))
def tell(told: Body, rooms: InServices, by: By) -> Response:
    """Of how many artifacts note was taken; those that are gone are passed over."""
    noted = usage.note(rooms.db, by.namespace, read(artifact_protocol.Uses, told).uses)
    return reply(f'{{"noted":{noted}}}')


@router.get("", summary="What is in use, the most used first", openapi_extra={"parameters": FILTERS})
def show(request: Request, rooms: InServices, by: By) -> Response:
    """Artifacts with their uses in the last `days` (30) and the time of the last one."""
    filters = usage.UsageFilters.read(request.query_params)
    with rooms.db.reading() as session:
        return reply(usage.listed(session, by.namespace, filters))
