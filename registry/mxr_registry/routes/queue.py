"""The queue in numbers over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxr_registry.jobs import queue

from .deps import By, InServices, reply
from .jobs import UnderRules

router = APIRouter(tags=["jobs"])

FILTERS = [
    {"name": "arch", "in": "query", "required": False, "schema": {"type": "string"}},
    {"name": "num_cu", "in": "query", "required": False, "schema": {"type": "integer"}},
]


@router.get("/v1/queue", summary="Open jobs in numbers", openapi_extra={"parameters": FILTERS})
def show(request: Request, rooms: InServices, by: By, rules: UnderRules) -> Response:
    """`queued`, `running`, `oldest_seconds`; the same for each declared pool and each kind of job."""
    with rooms.db.reading() as session:
        return reply(queue.show(session, rules, by.namespace, request.query_params))
