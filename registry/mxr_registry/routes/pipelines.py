"""Routes for pipelines, which handle many programs at once: survey requests and watch jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from fastapi import Request

from mxr.errors import Json
from mxr.protocol.artifacts import message_document
from mxr.protocol.surveys import ChangedJobs, Survey, SurveyReply, WatchJobs
from mxr_registry.access.scopes import Caller
from mxr_registry.jobs import survey as surveys
from mxr_registry.openapi import errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.memory_budget import RESERVATION
from mxr_registry.server.scoped import admit_again, fixed_path

from .deps import CallerDep, RequesterDep, Services, ServicesDep, scoped_router

router = scoped_router(prefix="/v1", tags=["pipelines"])
fixed_path(router, "/jobs/watch", "GET")


FREE_TOPICS = 50
"""Jobs up to which a watch reserves nothing for them."""

TOPIC = 512
"""Bytes of memory that a watch holds for each of its jobs while it waits."""


@router.post("/survey", response_model=SurveyReply, responses=errors(429))
async def survey(message: Large[Survey], services: ServicesDep, caller: CallerDep, client: RequesterDep) -> Json:
    """Survey the status of many requests.

    For each request: the artifact, the open job, whether a worker can compile it, and an estimated duration. Read-only:
    it creates no job and counts no miss.
    """

    def read() -> Json:
        with services.db.reading() as session:
            found = surveys.survey(session, services.rules, caller, message)
        # In the thread: there can be a thousand.
        return message_document(found)

    return await services.surveys.run(client, read)


@router.post("/jobs/watch", response_model=ChangedJobs)
async def watch_jobs(message: Large[WatchJobs], request: Request, services: ServicesDep, caller: CallerDep) -> Json:
    """Watch many jobs.

    The jobs whose version exceeds the given one. `wait` (seconds, at most 60) waits until there is such a job. Without
    an open job, there is nothing to wait for, and the reply comes at once.
    """
    if len(message.jobs) > FREE_TOPICS:
        request.scope[RESERVATION].grow(len(message.jobs) * TOPIC)
    read_jobs = partial(_changed, services, caller)
    result = await services.notifier.read_for_watch(partial(read_jobs, message.jobs))
    if result.has_changes or not message.wait or not result.open:
        return result.reply
    deadline = asyncio.get_running_loop().time() + message.wait
    async with services.notifier.subscribe(message.jobs, request.receive) as subscription:
        result = await services.notifier.read_for_watch(partial(read_jobs, message.jobs))
        still_open = set(result.open)
        while not result.has_changes and still_open:
            if not await subscription.wait(deadline - asyncio.get_running_loop().time()):
                break
            await admit_again(request)
            # Only what changed is read: many clients watch hundreds of jobs, one of which changes.
            some = {id: message.jobs[id] for id in subscription.take_topics()}
            result = await services.notifier.read_for_watch(partial(read_jobs, some))
            still_open = still_open.difference(some) | result.open
    return result.reply


def _changed(services: Services, caller: Caller, known: Mapping[str, int]) -> surveys.WatchResult:
    with services.db.reading() as session:
        return surveys.changed(session, caller.namespace, known, caller.owner)
