"""Routes for jobs: clients submit and follow jobs, workers claim jobs and report on them.

Routes that wait are `async` and hold neither a thread nor a database session while they wait. Their short database
queries run in a thread.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.errors import UsageError
from mxr.protocol import jobs as job_protocol
from mxr.protocol.access import WORK
from mxr.util.codec import HUGE
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.jobs import finishing, lease_endings, leases, submission, tracking, transitions
from mxr_registry.jobs.notifications import JobNotifier
from mxr_registry.openapi.operations import (
    AFTER,
    LOCATION,
    Success,
    limit_query,
    operation,
    query,
)

from .bodies import BodyDep, LargeBodyDep, decode_body
from .deps import CallerDep, JobId, JobRulesDep, RequesterDep, Services, ServicesDep, reply, scoped_router
from .scoped import admit_again, fixed_path

router = scoped_router(prefix="/v1/jobs", tags=["jobs"])
fixed_path(router, "/claim", "GET")

MAX_WAIT = 60.0
RECHECK_INTERVAL = 20.0
"""Seconds after which a waiting claim checks the queue without an event: another worker may be busy or lost by then."""

WAITS = (
    query("wait", "Seconds to wait for a change.", type="number", minimum=0, maximum=MAX_WAIT, default=0),
    query("version", "The known version; default: the current one.", type="integer", minimum=0, maximum=HUGE),
)
FILTERS = (
    query("state", "The state; `open` for queued and running jobs.", enum=[*job_protocol.STATES, "open"]),
    query("model", "The identity of the model."),
    query("name", "How the name of the model begins."),
    query("digest", "The digest of the key."),
    query("arch", "The GPU architecture."),
    AFTER,
    limit_query(MAX_ROWS, 100),
)
JOB = {200: Success("The job.", job_protocol.Job)}


async def _notifier(request: Request) -> JobNotifier:
    notifier = request.app.state.notifier
    assert isinstance(notifier, JobNotifier)
    return notifier


NotifierDep = Annotated[JobNotifier, Depends(_notifier)]


@router.post(
    "",
    summary="Request a compile",
    **operation(
        "request_compile",
        {
            200: Success("A job that is closed: the program exists, or its failure is remembered.", job_protocol.Job),
            202: Success("The job to follow.", job_protocol.Job, LOCATION),
        },
        takes=job_protocol.CompileRequest,
        errors=(404, 409),
    ),
)
def request_compile(
    body: BodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """Return 202 and the job to wait for, open or new; 200 and a job that is `done` if a matching artifact exists."""
    message = decode_body(job_protocol.CompileRequest, body)
    text = submission.submit(services.db, services.store, rules, caller, message)
    notifier.notify()
    job = json.loads(text)
    if job["state"] not in job_protocol.OPEN:
        return reply(text)
    response = reply(text, HTTPStatus.ACCEPTED)
    response.headers["location"] = f"/v1/jobs/{job['id']}"
    return response


@router.get(
    "",
    summary="List jobs, newest first",
    **operation("list_jobs", {200: Success("One page.", job_protocol.Jobs)}, parameters=FILTERS),
)
def list_jobs(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """One page of the jobs that the caller asked for; administrators see all. `state=open`: queued and running ones."""
    filters = tracking.JobFilters.read(request.query_params)
    with services.db.reading() as session:
        return reply(tracking.list_jobs(session, caller.namespace, filters, caller.owner))


@router.post(
    "/claim",
    summary="Claim a job for a worker",
    **operation(
        "claim_job",
        {200: Success("A lease, or null.", job_protocol.ClaimReply)},
        takes=job_protocol.Claim,
        errors=(404, 409),
    ),
)
async def claim(
    body: BodyDep, request: Request, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """A lease, or null if no suitable job arrives within `wait` seconds."""
    message = decode_body(job_protocol.Claim, body)
    run = services.lease_threads.run
    claims = await run(leases.claim_filter, services.db, caller.namespace, message)
    deadline = asyncio.get_running_loop().time() + message.wait
    async with notifier.subscribe(claims.topics(), request.receive) as subscription:
        subscription.worker = (claims.namespace, claims.worker)
        try_claim = partial(leases.claim, services.db, rules, claims, waiting=message.wait > 0)
        lease = await run(try_claim)
        while not subscription.disconnected and not lease:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or await run(leases.wanted_job_closed, services.db, claims):
                break
            await subscription.wait(min(RECHECK_INTERVAL * random.uniform(0.8, 1.2), left))
            await admit_again(request)
            if not subscription.disconnected:
                lease = await run(try_claim)
    notifier.notify()
    return reply(f'{{"lease":{lease or "null"}}}')


@router.get(
    "/{id}",
    summary="Show one job, optionally after its next change",
    **operation("get_job", JOB, errors=(404,), parameters=WAITS),
)
async def show_job(
    id: JobId, request: Request, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """`id` may be a unique prefix of 8 or more digits. This holds for every route with a job id.

    With `wait` (seconds, at most 60) the reply waits until the job's version exceeds `version` (default: the current
    one) or the job is closed.
    """
    seconds, version = read_number(request, "wait", MAX_WAIT), read_number(request, "version", 2**53)
    sequence = notifier.sequence()
    # A worker may look at any job whose id it has; whoever asks sees its own.
    viewer = None if caller.may((WORK,)) else caller.owner
    job = await run_in_threadpool(show, services, rules, caller.namespace, id, viewer)
    known = job.version if version is None else version
    if not seconds or job.closed or job.version > known:
        return reply(job.text)
    async with notifier.subscribe([job.id], request.receive) as subscription:
        if sequence is None or notifier.sequence() != sequence:
            # A change between the read above and the subscription sent no event to it.
            job = await run_in_threadpool(show, services, rules, caller.namespace, job.id, viewer)
        deadline = asyncio.get_running_loop().time() + seconds
        while job.version <= known and not job.closed:
            if not await subscription.wait(deadline - asyncio.get_running_loop().time()):
                break
            await admit_again(request)
            job = subscription.document or job
    if job.state == job_protocol.QUEUED and job.version <= known and not subscription.disconnected:
        # The queue position and the available workers change without a new version of the job.
        job = await run_in_threadpool(show, services, rules, caller.namespace, job.id, viewer)
    return reply(job.text)


def show(services: Services, rules: JobRules, namespace: str, id: str, viewer: str | None) -> tracking.JobDocument:
    """Return the document of one job, as the viewer sees it. Raises `NotFoundError`, `UsageError`."""
    with services.db.reading() as session:
        return tracking.show_job(session, rules, namespace, id, viewer)


def read_number(request: Request, name: str, limit: float) -> float | None:
    """Return a parameter of the query as a number, or None without it. Raises `UsageError`."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,16}(\.[0-9]{1,9})?", text, re.ASCII) or float(text) > limit:
        raise UsageError(
            f"{name}: expected a number up to {limit:g}, found {text[:20]!r}.", hint=f"Correct the parameter {name}."
        )
    return float(text)


@router.post("/{id}/cancel", summary="Cancel a job", **operation("cancel_job", JOB, errors=(404,)))
def cancel(id: JobId, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep) -> Response:
    """A queued job is cancelled at once. The worker of a running job is told in the reply to its next heartbeat.

    A job for which others asked as well goes on for them, unless an administrator cancels it.
    """
    with transitions.job_transaction(services.db) as session:
        job = tracking.cancel(session, rules, caller.namespace, id, caller.owner)
    notifier.notify()
    return reply(job.text)


@router.post(
    "/{id}/heartbeat",
    summary="Renew the lease of a job",
    **operation(
        "renew_lease",
        {200: Success("What is left of the lease.", job_protocol.HeartbeatReply)},
        takes=job_protocol.Heartbeat,
        errors=(404, 409),
    ),
)
async def heartbeat(
    id: JobId, body: LargeBodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """Return the remaining seconds of the lease, and whether the job was cancelled."""

    def renew() -> str:
        return leases.heartbeat(services.db, rules, caller.namespace, id, decode_body(job_protocol.Heartbeat, body))

    return await _changed_lease(services, notifier, renew)


@router.post(
    "/{id}/finish",
    summary="Finish a job",
    **operation("finish_job", JOB, takes=job_protocol.FinishJob, errors=(404, 409, 429)),
)
async def finish(
    id: JobId,
    body: LargeBodyDep,
    services: ServicesDep,
    caller: CallerDep,
    client: RequesterDep,
    rules: JobRulesDep,
    notifier: NotifierDep,
) -> Response:
    """Publish the artifact and close the job in one transaction."""
    message = await services.lease_threads.run(decode_body, job_protocol.FinishJob, body)
    known = (services.db, services.store, services.inspect, rules, caller.namespace, caller.principal)
    try:
        return reply(await services.checking.run(client, finishing.finish, *known, id, message))
    finally:
        notifier.notify()


@router.post(
    "/{id}/fail",
    summary="Report that a job failed",
    **operation("fail_job", JOB, takes=job_protocol.FailJob, errors=(404, 409)),
)
async def fail(
    id: JobId, body: LargeBodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """Close the job, or queues it again for a later retry."""

    def end() -> str:
        return lease_endings.fail(services.db, rules, caller.namespace, id, decode_body(job_protocol.FailJob, body))

    return await _changed_lease(services, notifier, end)


@router.post(
    "/{id}/handback",
    summary="Hand a job back",
    **operation("hand_back_job", JOB, takes=job_protocol.HandBackJob, errors=(404, 409)),
)
async def hand_back(
    id: JobId, body: BodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep, notifier: NotifierDep
) -> Response:
    """Queue the job again. The attempt does not count."""

    def end() -> str:
        fence = decode_body(job_protocol.HandBackJob, body).fence
        return lease_endings.hand_back(services.db, rules, caller.namespace, id, fence)

    return await _changed_lease(services, notifier, end)


async def _changed_lease(services: Services, notifier: JobNotifier, change: Callable[[], str]) -> Response:
    """Change a lease in a thread for workers, and return the reply."""
    text = await services.lease_threads.run(change)
    notifier.notify()
    return reply(text)
