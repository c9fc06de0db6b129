"""Routes for artifact usage: hosts report uses of cached artifacts, clients list the most used artifacts."""

from __future__ import annotations

from fastapi import Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import usage
from mxr_registry.openapi.operations import AFTER, ARTIFACT_FILTERS, Success, limit_query, operation, query

from .bodies import LargeBodyDep, decode_body
from .deps import CallerDep, ServicesDep, reply, scoped_router

router = scoped_router(prefix="/v1/uses", tags=["artifacts"])

FILTERS = (
    *ARTIFACT_FILTERS,
    query("days", "Uses in so many days.", type="integer", minimum=1, maximum=usage.OLDEST, default=30),
    AFTER,
    limit_query(usage.MAX_LISTED, 1_000),
)


@router.post(
    "",
    summary="Report uses of cached artifacts",
    **operation(
        "report_uses",
        {200: Success("How many were recorded.", artifact_protocol.UsesAccepted)},
        takes=artifact_protocol.Uses,
    ),
)
def report(body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """Return how many artifacts were recorded. Artifacts that no longer exist are ignored."""
    noted = usage.record_uses(services.db, caller.namespace, decode_body(artifact_protocol.Uses, body).uses)
    return reply(f'{{"noted":{noted}}}')


@router.get(
    "",
    summary="List used artifacts, most used first",
    **operation("list_uses", {200: Success("One page.", artifact_protocol.UsageReply)}, parameters=FILTERS),
)
def list_uses(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Artifacts with their uses in the last `days` (default 30) and the time of the last use."""
    filters = usage.UsageFilters.read(request.query_params)
    with services.db.reading() as session:
        return reply(usage.list_usage(session, caller.namespace, filters))
