"""Routes for artifact usage: hosts report uses of cached artifacts, clients list the most used artifacts."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import usage

from .bodies import LargeBodyDep, decode_body
from .deps import CallerDep, ServicesDep, reply
from .schemas import request_body

router = APIRouter(prefix="/v1/uses", tags=["artifacts"])

FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer" if name in numbers else "string"}}
    for numbers in [("days", "limit")]
    for name in usage.UsageFilters.__dataclass_fields__
]


@router.post("", summary="Report uses of cached artifacts", openapi_extra=request_body(artifact_protocol.Uses))
def report(body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """Return how many artifacts were recorded. Artifacts that no longer exist are ignored."""
    noted = usage.record_uses(services.db, caller.namespace, decode_body(artifact_protocol.Uses, body).uses)
    return reply(f'{{"noted":{noted}}}')


@router.get("", summary="List used artifacts, most used first", openapi_extra={"parameters": FILTERS})
def list_uses(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Artifacts with their uses in the last `days` (default 30) and the time of the last use."""
    filters = usage.UsageFilters.read(request.query_params)
    with services.db.reading() as session:
        return reply(usage.list_usage(session, caller.namespace, filters))
