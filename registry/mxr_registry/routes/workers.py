"""Routes for workers and pools."""

from __future__ import annotations

from fastapi import Response

from mxr.errors import Json
from mxr.protocol.jobs import Pools, RegisterWorker, SignOff, WorkerInfo, Workers
from mxr_registry.jobs import upgrades, workers
from mxr_registry.openapi import STORED, errors
from mxr_registry.server.scoped import fixed_path

from .deps import CallerDep, PageQuery, ServicesDep, WorkerId, created, scoped_router

router = scoped_router(prefix="/v1", tags=["workers"])
fixed_path(router, "/workers/sign-off", "GET")


@router.post("/workers", response_model=WorkerInfo, responses=STORED | errors(409))
def register_worker(message: RegisterWorker, response: Response, services: ServicesDep, caller: CallerDep) -> Json:
    """Register a worker.

    A worker that registers again with the same credential keeps its id. Claims and heartbeats keep a worker alive. The
    name of a live one is refused with 409; when it counts as lost, the name is free. What was cross-compiled for one of
    its GPUs is queued for it, with the lowest priority (the setting `work.upgrade_cross`).
    """
    with services.db.writing() as session:
        known = (session, services.rules, caller.namespace, caller.principal)
        worker, new = workers.register_worker(*known, message)
    upgrades.queue_upgrades(services.db, services.store, services.rules, caller.namespace, message.can)
    created(response, f"/v1/workers/{worker['id']}", new=new)
    return worker


@router.get("/workers/{id}", response_model=WorkerInfo, responses=errors(404))
def get_worker(id: WorkerId, services: ServicesDep, caller: CallerDep) -> Json:
    """Show one worker.

    The worker with its state, and what it can compile. One that signed off is shown for 7 days.
    """
    with services.db.reading() as session:
        return workers.show_worker(session, services.rules, caller.namespace, id)


@router.post("/workers/sign-off", response_model=WorkerInfo, responses=errors(404))
def sign_off_worker(message: SignOff, services: ServicesDep, caller: CallerDep) -> Json:
    """Sign off a worker.

    The worker is no longer live and gets no jobs until it registers again. A lease that it holds stays valid.
    """
    with services.db.writing() as session:
        return workers.leave(session, services.rules, caller.namespace, message.credential)


@router.get("/workers", response_model=Workers)
def list_workers(services: ServicesDep, caller: CallerDep, page: PageQuery) -> Json:
    """List workers by name.

    Each worker with its state (idle, busy or lost), and what it can compile.
    """
    with services.db.reading() as session:
        return workers.list_workers(session, services.rules, caller.namespace, page.after, page.limit)


@router.get("/pools")
def list_pools(services: ServicesDep, caller: CallerDep) -> Pools:
    """List the declared pools of workers.

    Each pool with what it can compile, and its number of queued and running jobs. They are all on one page.
    """
    with services.db.reading() as session:
        return workers.list_pools(session, services.rules, caller.namespace)
