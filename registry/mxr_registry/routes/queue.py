"""The route for queue statistics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxr_registry.jobs import queue

from .deps import CallerDep, JobRulesDep, ServicesDep, reply

router = APIRouter(tags=["jobs"])

FILTERS = [
    {"name": "arch", "in": "query", "required": False, "schema": {"type": "string"}},
    {"name": "num_cu", "in": "query", "required": False, "schema": {"type": "integer"}},
]


@router.get("/v1/queue", summary="Queue statistics", openapi_extra={"parameters": FILTERS})
def show_queue(request: Request, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """`queued`, `running` and `oldest_seconds`: in total, for each declared pool and for each lane (`kinds`)."""
    with services.db.reading() as session:
        return reply(queue.show_queue(session, rules, caller.namespace, request.query_params))
