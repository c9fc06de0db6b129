"""Routes for pipelines, which handle many programs at once: survey requests and watch jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.protocol import surveys
from mxr_registry.access.scopes import Caller
from mxr_registry.jobs import survey
from mxr_registry.memory_budget import RESERVATION
from mxr_registry.openapi.operations import Success, operation

from .bodies import LargeBodyDep, decode_body
from .deps import CallerDep, JobRulesDep, RequesterDep, Services, ServicesDep, reply, scoped_router
from .jobs import NotifierDep
from .scoped import admit_again, fixed_path

router = scoped_router(prefix="/v1", tags=["pipelines"])
fixed_path(router, "/jobs/watch", "GET")


FREE_TOPICS = 50
"""Jobs up to which a watch reserves nothing for them."""

TOPIC = 512
"""Bytes of memory that a watch holds for each of its jobs while it waits."""


@router.post(
    "/survey",
    summary="Survey the status of many requests",
    **operation(
        "survey",
        {200: Success("The status of each request.", surveys.SurveyReply)},
        takes=surveys.Survey,
        errors=(429,),
    ),
)
async def survey_requests(
    body: LargeBodyDep, services: ServicesDep, caller: CallerDep, client: RequesterDep, rules: JobRulesDep
) -> Response:
    """For each request: the artifact, the open job, whether a worker can compile it, and an estimated duration.

    Read-only: it creates no job and counts no miss.
    """

    def read() -> str:
        message = decode_body(surveys.Survey, body)
        with services.db.reading() as session:
            return survey.survey(session, rules, caller.namespace, message, caller.owner)

    return reply(await services.surveys.run(client, read))


@router.post(
    "/jobs/watch",
    summary="Watch many jobs",
    **operation("watch_jobs", {200: Success("What changed.", surveys.ChangedJobs)}, takes=surveys.WatchJobs),
)
async def watch(
    body: LargeBodyDep, request: Request, services: ServicesDep, caller: CallerDep, notifier: NotifierDep
) -> Response:
    """The jobs whose version exceeds the given one. `wait` (seconds, at most 60) waits until there is such a job.

    Without an open job, there is nothing to wait for, and the reply comes at once.
    """
    message = await run_in_threadpool(decode_body, surveys.WatchJobs, body)
    if len(message.jobs) > FREE_TOPICS:
        request.scope[RESERVATION].grow(len(message.jobs) * TOPIC)
    read_jobs = partial(_changed, services, caller)
    result = await notifier.read_for_watch(partial(read_jobs, message.jobs))
    if result.has_changes or not message.wait or not result.open:
        return reply(result.text)
    deadline = asyncio.get_running_loop().time() + message.wait
    async with notifier.subscribe(message.jobs, request.receive) as subscription:
        result = await notifier.read_for_watch(partial(read_jobs, message.jobs))
        still_open = set(result.open)
        while not result.has_changes and still_open:
            if not await subscription.wait(deadline - asyncio.get_running_loop().time()):
                break
            await admit_again(request)
            # Only what changed is read: many clients watch hundreds of jobs, one of which changes.
            some = {id: message.jobs[id] for id in subscription.take_topics()}
            result = await notifier.read_for_watch(partial(read_jobs, some))
            still_open = still_open.difference(some) | result.open
    return reply(result.text)


def _changed(services: Services, caller: Caller, known: Mapping[str, int]) -> survey.WatchResult:
    with services.db.reading() as session:
        return survey.changed(session, caller.namespace, known, caller.owner)
