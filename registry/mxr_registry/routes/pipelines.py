"""What pipelines ask about many programs at once: how requests stand, and which of their jobs changed."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.protocol import surveys
from mxr_registry.jobs import survey, watching

from .deps import Body, By, InServices, Services, read, reply
from .jobs import InBus, UnderRules
from .schemas import body

router = APIRouter(prefix="/v1", tags=["pipelines"])


@router.post("/survey", summary="How many requests stand", openapi_extra=body(surveys.Survey))
def look(asked: Body, rooms: InServices, by: By, rules: UnderRules) -> Response:
    """For each request what an asker would meet: an artifact, an open job, who could, how long it took before.

    Nothing is made, queued or counted as a miss.
    """
    wanted = read(surveys.Survey, asked)
    with rooms.db.reading() as session:
        return reply(survey.survey(session, rules, by.namespace, wanted))


@router.post("/jobs/watch", summary="Which of these jobs changed", openapi_extra=body(surveys.WatchJobs))
async def watch(asked: Body, request: Request, rooms: InServices, by: By, bus: InBus) -> Response:
    """Those whose version is larger than the one given; with `wait` (seconds, at most 60) once there are any."""
    wanted = read(surveys.WatchJobs, asked)
    seen = await run_in_threadpool(_changed, rooms, by.namespace, wanted)
    if seen.news or not wanted.wait:
        return reply(seen.text)
    deadline = asyncio.get_running_loop().time() + wanted.wait
    async with bus.listen(wanted.jobs, request.receive) as ear:
        while True:
            seen = await run_in_threadpool(_changed, rooms, by.namespace, wanted)
            if seen.news or not await ear.news(deadline - asyncio.get_running_loop().time()):
                return reply(seen.text)


def _changed(rooms: Services, namespace: str, wanted: surveys.WatchJobs) -> watching.WatchResult:
    with rooms.db.reading() as session:
        return watching.changed(session, namespace, wanted.jobs)
