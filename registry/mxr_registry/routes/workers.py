"""Workers over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.protocol import jobs as job_protocol
from mxr_registry.jobs import workers

from .deps import Body, By, InServices, read, reply
from .jobs import UnderRules
from .schemas import body

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.post("", summary="A worker says what it can do", openapi_extra=body(job_protocol.RegisterWorker))
def register(stated: Body, rooms: InServices, by: By, rules: UnderRules) -> Response:
    """The same name keeps its id; claims and heartbeats keep the worker alive."""
    wanted = read(job_protocol.RegisterWorker, stated)
    with rooms.db.writing() as session:
        return reply(workers.register(session, rules, by.namespace, wanted))


@router.delete("/{id}", summary="A worker signs off")
def leave(id: str, rooms: InServices, by: By, rules: UnderRules) -> Response:
    """It no longer counts as live, and is given nothing, until it registers again. A lease that it holds goes on."""
    with rooms.db.writing() as session:
        return reply(workers.leave(session, rules, by.namespace, id))


@router.get("", summary="Workers and declared pools")
def list_workers(rooms: InServices, by: By, rules: UnderRules) -> Response:
    """Each worker idle, busy or lost; each pool with the jobs that it could do, or that run for it."""
    with rooms.db.reading() as session:
        return reply(workers.listed(session, rules, by.namespace))
