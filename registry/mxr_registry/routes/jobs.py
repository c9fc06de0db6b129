"""Jobs over HTTP: asking and following for those who wait, claiming and reporting for those who work.

What waits is `async` and holds no thread and no session meanwhile; its short looks at the database run in a thread.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from mxr.errors import Usage
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical
from mxr_registry.config.job_rules import JobRules
from mxr_registry.jobs import completion, lease_endings, leases, logs, submission, tracking, transitions
from mxr_registry.jobs.notifications import JobNotifier, Subscription

from .deps import Body, By, InServices, Services, read, reply
from .schemas import body

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

LONGEST_WAIT = 60.0
AGAIN = 20.0
"""Seconds after which a waiting claim looks again unasked: another worker may have become busy, or lost."""

ALIVE = 15.0
"""Seconds of silence after which a stream sends a comment."""

WAITS = [
    {"name": "wait", "in": "query", "schema": {"type": "number", "maximum": LONGEST_WAIT}},
    {"name": "version", "in": "query", "schema": {"type": "integer"}},
]
FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer" if name == "limit" else "string"}}
    for name in tracking.JobFilters.__dataclass_fields__
]


async def bus_of(request: Request) -> JobNotifier:
    """The news of this process."""
    found = request.app.state.bus
    assert isinstance(found, JobNotifier)
    return found


async def rules_of(request: Request) -> JobRules:
    """The rules of compiling."""
    found = request.app.state.rules
    assert isinstance(found, JobRules)
    return found


InBus = Annotated[JobNotifier, Depends(bus_of)]
UnderRules = Annotated[JobRules, Depends(rules_of)]


@router.post("", summary="Ask for a compile", openapi_extra=body(job_protocol.CompileRequest))
def ask(wanted: Body, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """The job to wait for, an open one or a new one; or done, where the program is here already."""
    text = submission.ask(rooms.db, rooms.store, rules, by.namespace, read(job_protocol.CompileRequest, wanted))
    bus.kick()
    return reply(text)


@router.get("", summary="Jobs, the latest first", openapi_extra={"parameters": FILTERS})
def list_jobs(request: Request, rooms: InServices, by: By) -> Response:
    """A page of jobs; `state=open` are those that are queued or running."""
    filters = tracking.JobFilters.read(request.query_params)
    with rooms.db.reading() as session:
        return reply(tracking.listed(session, by.namespace, filters))


@router.post("/claim", summary="A worker asks for a job", openapi_extra=body(job_protocol.Claim))
async def claim(wanted: Body, request: Request, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """A lease; or none after the wait."""
    asked = read(job_protocol.Claim, wanted)
    claims = await run_in_threadpool(leases.begin, rooms.db, by.namespace, asked)
    deadline = asyncio.get_running_loop().time() + asked.wait
    async with bus.listen(claims.topics(), request.receive) as ear:
        ear.worker = (claims.namespace, claims.worker)
        look = partial(leases.claim, rooms.db, rules, claims, waiting=asked.wait > 0)
        lease = await run_in_threadpool(look)
        while not ear.gone and not lease:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or await run_in_threadpool(leases.over, rooms.db, claims):
                break
            await ear.news(min(AGAIN * random.uniform(0.8, 1.2), left))
            if not ear.gone:
                lease = await run_in_threadpool(look)
    bus.kick()
    return reply(f'{{"lease":{lease or "null"}}}')


@router.get("/{id}", summary="One job; with `wait`, once it changed", openapi_extra={"parameters": WAITS})
async def show(id: str, request: Request, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """`id` may be cut short to 8 digits or more; so everywhere below.

    `wait` (seconds, at most 60) waits until the job's version is larger than `version` (default: the one it has), or
    the job is closed.
    """
    seconds, version = _number(request, "wait", LONGEST_WAIT), _number(request, "version", 2**53)
    mark = bus.mark()
    found = await run_in_threadpool(_show, rooms, rules, by.namespace, id)
    known = found.version if version is None else version
    if not seconds or found.closed or found.version > known:
        return reply(found.text)
    async with bus.listen([found.id], request.receive) as ear:
        if mark is None or bus.mark() != mark:
            found = await run_in_threadpool(_show, rooms, rules, by.namespace, found.id)
        deadline = asyncio.get_running_loop().time() + seconds
        while found.version <= known and not found.closed:
            if not await ear.news(deadline - asyncio.get_running_loop().time()):
                break
            found = ear.shown or found
    if found.state == job_protocol.QUEUED and found.version <= known and not ear.gone:
        # Its place, and whether anybody could do it, change without a change of the job.
        found = await run_in_threadpool(_show, rooms, rules, by.namespace, found.id)
    return reply(found.text)


def _show(rooms: Services, rules: JobRules, namespace: str, id: str) -> tracking.JobDocument:
    with rooms.db.reading() as session:
        return tracking.show(session, rules, namespace, id)


def _number(request: Request, name: str, most: float) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,16}(\.[0-9]{1,9})?", text, re.ASCII) or float(text) > most:
        raise Usage(f"{name}: expected a number up to {most:g}, found {text[:20]!r}.", hint="Correct it.")
    return float(text)


@router.get("/{id}/log", summary="The log of a job as plain text")
def show_log(id: str, request: Request, rooms: InServices, by: By) -> Response:
    """From `offset` in bytes on (default 0). The header `mxr-log-next` is the offset to go on from."""
    offset = int(_number(request, "offset", 2**53) or 0)
    with rooms.db.reading() as session:
        found = tracking.find(session, by.namespace, id)
        pieces = logs.read(session, found.seq, offset)
    following = pieces[-1].next if pieces else max(offset, found.log_size)
    headers = {"mxr-log-next": str(following), "mxr-job-state": found.state}
    return Response(logs.text_of(pieces), headers=headers, media_type="text/plain; charset=utf-8")


@router.get("/{id}/events", summary="A job as server-sent events, until it is closed")
async def events(id: str, request: Request, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """`job`: its document at each change; `event`: each change of state; `log`: what came to the log.

    A stream that was cut goes on with `Last-Event-ID`; `offset` is where in the log to begin (-1: what comes from now).
    """
    found = await run_in_threadpool(_show, rooms, rules, by.namespace, id)
    stream = _stream(request, rooms, rules, bus, found, _resumed(request, found))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})


def _resumed(request: Request, found: tracking.JobDocument) -> tuple[int, int]:
    """The last event that the client has, and how far in the log it is."""
    last = re.fullmatch(r"([0-9]{1,16})-([0-9]{1,16})", request.headers.get("last-event-id", ""), re.ASCII)
    if last:
        return int(last[1]), int(last[2])
    if request.query_params.get("offset") == "-1":
        return 0, found.log_size
    return 0, int(_number(request, "offset", 2**53) or 0)


async def _stream(
    request: Request,
    rooms: Services,
    rules: JobRules,
    bus: JobNotifier,
    found: tracking.JobDocument,
    cursor: tuple[int, int],
) -> AsyncIterator[str]:
    version = 0
    async with bus.listen([found.id], request.receive) as ear:
        while not ear.gone:
            text, cursor, shown, more = await run_in_threadpool(_batch, rooms, rules, found.seq, cursor)
            if shown.version > version:
                version = shown.version
                text += _event("job", shown.text, cursor)
            if text:
                yield text
            if more:
                continue
            if shown.closed:
                return
            if not await _patient(ear):
                yield ": still here\n\n"


async def _patient(ear: Subscription) -> bool:
    return await ear.news(ALIVE) or ear.gone


def _batch(
    rooms: Services, rules: JobRules, seq: int, cursor: tuple[int, int]
) -> tuple[str, tuple[int, int], tracking.JobDocument, bool]:
    """The events and a page of the log after the cursor, the cursor then, the job, and whether there is more log."""
    event, offset = cursor
    parts = []
    with rooms.db.reading() as session:
        shown = tracking.at(session, rules, seq)
        for row in transitions.events(session, seq, event):
            event = row.seq
            document = {"at": row.at, "state": row.state, "worker": row.worker, "note": row.note}
            document["detail"] = json.loads(row.detail_json) if row.detail_json else None
            parts.append(_event("event", canonical(document), (event, offset)))
        pieces = logs.read(session, seq, offset, logs.PAGE)
    if pieces:
        offset = pieces[-1].next
        written = {"offset": pieces[0].start, "next": offset, "text": logs.text_of(pieces).decode("utf-8", "replace")}
        parts.append(_event("log", canonical(written), (event, offset)))
    return "".join(parts), (event, offset), shown, offset < shown.log_size


def _event(kind: str, document: str, cursor: tuple[int, int]) -> str:
    return f"event: {kind}\nid: {cursor[0]}-{cursor[1]}\ndata: {document}\n\n"


@router.post("/{id}/cancel", summary="Cancel a job")
def cancel(id: str, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """At once where it is queued; where it runs, its worker is told with the next heartbeat."""
    with transitions.turn(rooms.db) as session:
        found = tracking.cancel(session, rules, by.namespace, id)
    bus.kick()
    return reply(found.text)


@router.post("/{id}/heartbeat", summary="A worker keeps its lease", openapi_extra=body(job_protocol.Heartbeat))
def heartbeat(id: str, beat: Body, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """How long the lease goes on, and whether somebody cancelled the job."""
    text = leases.heartbeat(rooms.db, rules, by.namespace, id, read(job_protocol.Heartbeat, beat))
    bus.kick()
    return reply(text)


@router.post("/{id}/finish", summary="A worker is done", openapi_extra=body(job_protocol.FinishJob))
def finish(id: str, done: Body, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """Publishes the artifact and closes the job, both or neither."""
    finished = read(job_protocol.FinishJob, done)
    try:
        return reply(completion.finish(rooms.db, rooms.store, rooms.inspect, rules, by.namespace, id, finished))
    finally:
        bus.kick()


@router.post("/{id}/fail", summary="A worker failed", openapi_extra=body(job_protocol.FailJob))
def fail(id: str, failed: Body, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """The job is closed, or queued again for later."""
    text = lease_endings.fail(rooms.db, rules, by.namespace, id, read(job_protocol.FailJob, failed))
    bus.kick()
    return reply(text)


@router.post("/{id}/handback", summary="A worker gives its job back", openapi_extra=body(job_protocol.HandBackJob))
def hand_back(id: str, given: Body, rooms: InServices, by: By, rules: UnderRules, bus: InBus) -> Response:
    """The job is queued again, and this counts as no attempt."""
    text = lease_endings.hand_back(rooms.db, rules, by.namespace, id, read(job_protocol.HandBackJob, given).fence)
    bus.kick()
    return reply(text)
