"""Routes for workers and pools."""

from __future__ import annotations

from fastapi import Response

from mxr.protocol import jobs as job_protocol
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.jobs import workers
from mxr_registry.openapi.operations import LOCATION, Success, operation

from .bodies import BodyDep, decode_body
from .deps import (
    AfterQuery,
    CallerDep,
    JobRulesDep,
    LimitQuery,
    ServicesDep,
    WorkerId,
    reply,
    scoped_router,
    stored_reply,
)

router = scoped_router(prefix="/v1", tags=["workers"])


@router.post(
    "/workers",
    summary="Register a worker",
    **operation(
        "register_worker",
        {
            200: Success("The worker, which has its id already.", job_protocol.WorkerInfo),
            201: Success("The new worker.", job_protocol.WorkerInfo, LOCATION),
        },
        takes=job_protocol.RegisterWorker,
    ),
)
def register(body: BodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """A worker that registers again under the same name keeps its id. Claims and heartbeats keep a worker alive."""
    message = decode_body(job_protocol.RegisterWorker, body)
    with services.db.writing() as session:
        known = (session, rules, caller.namespace, caller.principal)
        return stored_reply(workers.register_worker(*known, message), "/v1/workers")


@router.get(
    "/workers/{id}",
    summary="Show one worker",
    **operation("get_worker", {200: Success("The worker.", job_protocol.WorkerInfo)}, errors=(404,)),
)
def show_worker(id: WorkerId, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """The worker with its state, and what it can compile. One that signed off is shown for 7 days."""
    with services.db.reading() as session:
        return reply(workers.show_worker(session, rules, caller.namespace, id))


@router.delete(
    "/workers/{id}",
    summary="Sign off a worker",
    **operation("sign_off_worker", {200: Success("The worker.", job_protocol.WorkerInfo)}, errors=(404,)),
)
def leave(id: WorkerId, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """The worker is no longer live and gets no jobs until it registers again. A lease that it holds stays valid."""
    with services.db.writing() as session:
        return reply(workers.leave(session, rules, caller.namespace, id))


@router.get(
    "/workers",
    summary="List workers by name",
    **operation("list_workers", {200: Success("One page.", job_protocol.Workers)}),
)
def list_workers(
    services: ServicesDep, caller: CallerDep, rules: JobRulesDep, after: AfterQuery = None, limit: LimitQuery = MAX_ROWS
) -> Response:
    """Each worker with its state (idle, busy or lost), and what it can compile."""
    with services.db.reading() as session:
        return reply(workers.list_workers(session, rules, caller.namespace, after, limit))


@router.get(
    "/pools",
    summary="List the declared pools of workers",
    **operation("list_pools", {200: Success("All pools.", job_protocol.Pools)}),
)
def list_pools(services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """Each pool with what it can compile, and its number of queued and running jobs. They are all on one page."""
    with services.db.reading() as session:
        return reply(workers.list_pools(session, rules, caller.namespace))
