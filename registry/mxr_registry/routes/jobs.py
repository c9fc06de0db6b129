"""Routes for jobs: clients submit and follow jobs, workers claim jobs and report on them.

Routes that wait are `async` and hold neither a thread nor a database session while they wait. Their short database
queries run in a thread.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.errors import Json
from mxr.protocol import jobs as job_protocol
from mxr.protocol.access import WORK
from mxr.protocol.jobs import (
    Claim,
    ClaimReply,
    CompileRequest,
    FailJob,
    FinishJob,
    HandBackJob,
    Heartbeat,
    HeartbeatReply,
    Job,
    Jobs,
)
from mxr.util.codec import HUGE
from mxr_registry.jobs import finishing, lease_endings, leases, submission, tracking, transitions, upgrades
from mxr_registry.openapi import LOCATION, Responses, errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.request_record import note
from mxr_registry.server.scoped import admit_again, fixed_path

from .deps import CallerDep, JobId, RequesterDep, Services, ServicesDep, scoped_router

router = scoped_router(prefix="/v1/jobs", tags=["jobs"])
fixed_path(router, "/claim", "GET")

T = TypeVar("T")

MAX_WAIT = 60.0
RECHECK_INTERVAL = 20.0
"""Seconds after which a waiting claim checks the queue without an event: another worker may be busy or lost by then."""

SUBMITTED: Responses = {
    200: {"description": "A job that is closed: the program exists, or its failure is remembered."},
    202: {"description": "The job to follow.", "headers": LOCATION},
}


@router.post("", response_model=Job, responses=SUBMITTED | errors(404, 409))
def request_compile(
    message: CompileRequest,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
) -> Json:
    """Request a compile.

    Return 202 and the job to wait for, open or new; 200 and a job that is `done` if a matching artifact exists.
    """
    job = submission.submit(services.db, services.store, services.rules, caller, message)
    services.notifier.notify()
    note(digest=job["digest"], job=job["id"])
    if job["state"] in job_protocol.OPEN:
        response.status_code = HTTPStatus.ACCEPTED
        response.headers["location"] = f"/v1/jobs/{job['id']}"
    return job


@router.get("", response_model=Jobs)
def list_jobs(services: ServicesDep, caller: CallerDep, filters: Annotated[tracking.JobFilters, Query()]) -> Json:
    """List jobs, newest first.

    One page of the jobs that the caller asked for; administrators see all. `state=open`: queued and running ones.
    """
    with services.db.reading() as session:
        return tracking.list_jobs(session, caller.namespace, filters, caller.owner)


@router.post("/claim", response_model=ClaimReply, responses=errors(404, 409))
async def claim_job(
    message: Claim,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
) -> Json:
    """Claim a job for a worker.

    A lease, or null if no suitable job arrives within `wait` seconds.
    """
    run = services.lease_threads.run
    claims = await run(leases.claim_filter, services.db, services.rules, caller.namespace, message)
    if claims.returned:
        queued = (services.db, services.store, services.rules, caller.namespace, claims.returned)
        await run(upgrades.queue_upgrades, *queued)
    deadline = asyncio.get_running_loop().time() + message.wait
    async with services.notifier.subscribe(claims.topics(), request.receive) as subscription:
        subscription.worker = (claims.namespace, claims.worker)
        try_claim = partial(leases.claim, services.db, services.rules, claims, waiting=message.wait > 0)
        lease = await run(try_claim)
        while not subscription.disconnected and not lease:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or await run(leases.wanted_job_closed, services.db, claims):
                break
            await subscription.wait(min(RECHECK_INTERVAL * random.uniform(0.8, 1.2), left))
            await admit_again(request)
            if not subscription.disconnected:
                lease = await run(try_claim)
    services.notifier.notify()
    if lease:
        note(job=lease["job"])
    return {"lease": lease}


@router.get("/{id}", response_model=Job, responses=errors(404))
async def get_job(
    id: JobId,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    wait: Annotated[
        float, Query(description="Seconds to wait for a change.", ge=0, le=MAX_WAIT, allow_inf_nan=False)
    ] = 0,
    version: Annotated[
        int | None, Query(description="The known version; default: the current one.", ge=0, le=HUGE)
    ] = None,
) -> Json:
    """Show one job, optionally after its next change.

    `id` may be a unique prefix of 8 or more digits. This holds for every route with a job id. With `wait` (seconds, at
    most 60) the reply waits until the job's version exceeds `version` (default: the current one) or the job is closed.
    """
    sequence = services.notifier.sequence()
    # A worker may look at any job whose id it has; whoever asks sees its own.
    viewer = None if caller.may((WORK,)) else caller.owner
    job = await run_in_threadpool(show, services, caller.namespace, id, viewer)
    known = job.version if version is None else version
    if not wait or job.closed or job.version > known:
        return job.job
    async with services.notifier.subscribe([job.id], request.receive) as subscription:
        if sequence is None or services.notifier.sequence() != sequence:
            # A change between the read above and the subscription sent no event to it.
            job = await run_in_threadpool(show, services, caller.namespace, job.id, viewer)
        deadline = asyncio.get_running_loop().time() + wait
        while job.version <= known and not job.closed:
            if not await subscription.wait(deadline - asyncio.get_running_loop().time()):
                break
            await admit_again(request)
            job = subscription.document or job
    if job.state == job_protocol.QUEUED and job.version <= known and not subscription.disconnected:
        # The queue position and the available workers change without a new version of the job.
        job = await run_in_threadpool(show, services, caller.namespace, job.id, viewer)
    return job.job


def show(services: Services, namespace: str, id: str, viewer: str | None) -> tracking.JobDocument:
    """Return the document of one job, as the viewer sees it. Raises `NotFoundError`, `UsageError`."""
    with services.db.reading() as session:
        return tracking.show_job(session, services.rules, namespace, id, viewer)


@router.post("/{id}/cancel", response_model=Job, responses=errors(404))
def cancel_job(id: JobId, services: ServicesDep, caller: CallerDep) -> Json:
    """Cancel a job.

    A queued job is cancelled at once. The worker of a running job is told in the reply to its next heartbeat. A job for
    which others asked as well goes on for them, unless an administrator cancels it.
    """
    with transitions.job_transaction(services.db) as session:
        job = tracking.cancel(session, services.rules, caller.namespace, id, caller.owner)
    services.notifier.notify()
    return job.job


@router.post("/{id}/heartbeat", responses=errors(404, 409))
async def renew_lease(
    id: JobId,
    message: Large[Heartbeat],
    services: ServicesDep,
    caller: CallerDep,
) -> HeartbeatReply:
    """Renew the lease of a job.

    Return the remaining seconds of the lease, and whether the job was cancelled.
    """
    renew = partial(leases.heartbeat, services.db, services.rules, caller.namespace, id, message)
    return await _changed_lease(services, renew)


@router.post("/{id}/finish", response_model=Job, responses=errors(404, 409, 429))
async def finish_job(
    id: JobId,
    message: Large[FinishJob],
    services: ServicesDep,
    caller: CallerDep,
    client: RequesterDep,
) -> Json:
    """Finish a job.

    Publish the artifact and close the job in one transaction.
    """
    known = (services.db, services.store, services.inspect, services.rules, caller.namespace, caller.principal)
    try:
        return await services.checking.run(client, finishing.finish, *known, id, message)
    finally:
        services.notifier.notify()


@router.post("/{id}/fail", response_model=Job, responses=errors(404, 409))
async def fail_job(
    id: JobId,
    message: Large[FailJob],
    services: ServicesDep,
    caller: CallerDep,
) -> Json:
    """Report that a job failed.

    Close the job, or queues it again for a later retry.
    """
    end = partial(lease_endings.fail, services.db, services.rules, caller.namespace, id, message)
    return await _changed_lease(services, end)


@router.post("/{id}/handback", response_model=Job, responses=errors(404, 409))
async def hand_back_job(
    id: JobId,
    message: HandBackJob,
    services: ServicesDep,
    caller: CallerDep,
) -> Json:
    """Hand a job back.

    Queue the job again. The attempt does not count.
    """
    end = partial(lease_endings.hand_back, services.db, services.rules, caller.namespace, id, message.lease)
    return await _changed_lease(services, end)


async def _changed_lease(services: Services, change: Callable[[], T]) -> T:
    """Change a lease in a thread for workers, and return the result."""
    result = await services.lease_threads.run(change)
    services.notifier.notify()
    return result
