"""Routes for the output of a job: its log, and its events while it goes on.

A page of a log is read at a time, and counts until its client has taken it (`Services.log_places`).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from mxr.errors import NotAllowedError
from mxr.util.codec import HUGE, canonical, time_text
from mxr_registry.jobs import logs, tracking, transitions
from mxr_registry.json_text import to_json
from mxr_registry.openapi import errors, text_reply
from mxr_registry.server.fair_places import Requester
from mxr_registry.server.scoped import admit_again

from .deps import CallerDep, JobId, RequesterDep, Services, ServicesDep, scoped_router
from .jobs import show

router = scoped_router(prefix="/v1/jobs", tags=["jobs"])

KEEPALIVE_INTERVAL = 15.0
"""Seconds without an event after which a stream sends a comment."""


@router.get(
    "/{id}/log",
    responses=text_reply(
        "The log from `offset`.",
        MXR_Log_Next="The offset to continue from.",
        MXR_Job_State="The state of the job.",
    )
    | errors(404),
)
def get_job_log(
    id: JobId,
    services: ServicesDep,
    caller: CallerDep,
    client: RequesterDep,
    offset: Annotated[int, Query(description="The byte of the log to begin with.", ge=0, le=HUGE)] = 0,
) -> StreamingResponse:
    """Show the log of a job as plain text.

    The log from `offset` (bytes, default 0). The response header `mxr-log-next` is the offset to continue from.
    """
    with services.db.reading() as session:
        job = tracking.find_job(session, caller.namespace, id, caller.owner)
    headers = {"mxr-log-next": str(max(offset, job.log_size)), "mxr-job-state": job.state}
    pages = _log_pages(services, client, job.seq, offset, job.log_size)
    return StreamingResponse(pages, headers=headers, media_type="text/plain; charset=utf-8")


async def _log_pages(services: Services, client: Requester, seq: int, offset: int, end: int) -> AsyncIterator[bytes]:
    """The log up to `end`, one page at a time."""
    while offset < end:
        async with services.log_places.place(client):
            chunks = await run_in_threadpool(_read_page, services, seq, offset, end)
            if not chunks:
                return
            yield logs.text_of(chunks)
            offset = chunks[-1].next
            # Waits until the client has taken the page: the connection holds it until then.
            yield b""


def _read_page(services: Services, seq: int, offset: int, end: int) -> list[logs.LogChunk]:
    with services.db.reading() as session:
        return logs.read_log(session, seq, offset, end)


@router.get("/{id}/events", responses=text_reply("The events.", "text/event-stream") | errors(404))
async def follow_job(
    id: JobId,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    client: RequesterDep,
    offset: Annotated[int, Query(description="As of the log; -1: new text only.", ge=-1, le=HUGE)] = 0,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="The id of the last event that came: continue after it.")
    ] = None,
) -> StreamingResponse:
    """Follow a job by server-sent events until it is closed.

    Event types: `job` (the job at each change), `event` (each change of state), `log` (new log text). Send
    `Last-Event-ID` to resume an interrupted stream. `offset` is the log offset to start from; -1 sends only new log
    text.
    """
    job = await run_in_threadpool(show, services, caller.namespace, id, caller.owner)
    # The number of the last event that the client has, and its offset in the log.
    cursor = (0, job.log_size if offset == -1 else offset)
    last = re.fullmatch(r"([0-9]{1,16})-([0-9]{1,16})", last_event_id or "", re.ASCII)
    if last:
        cursor = (int(last[1]), int(last[2]))
    stream = _stream(request, services, client, job, cursor)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _stream(
    request: Request,
    services: Services,
    client: Requester,
    job: tracking.JobDocument,
    cursor: tuple[int, int],
) -> AsyncIterator[str]:
    version = 0
    async with services.notifier.subscribe([job.id], request.receive) as subscription:
        while not subscription.disconnected:
            async with services.log_places.place(client):
                try:
                    await admit_again(request)
                except NotAllowedError:
                    # The status of the reply is sent: the stream ends, and the next request hears why.
                    return
                text, cursor, job, more = await run_in_threadpool(_batch, services, job.seq, cursor)
                if job.version > version:
                    version = job.version
                    text += _event("job", to_json(job.job).decode(), cursor)
                if text:
                    yield text
                    # Waits until the client has taken it: the connection holds it until then.
                    yield ""
            if more:
                continue
            if job.closed:
                return
            if not await subscription.wait(KEEPALIVE_INTERVAL) and not subscription.disconnected:
                yield ": keepalive\n\n"


def _batch(
    services: Services, seq: int, cursor: tuple[int, int]
) -> tuple[str, tuple[int, int], tracking.JobDocument, bool]:
    """Return events and one page of log after the cursor, the new cursor, the job, and whether more log follows."""
    event, offset = cursor
    parts = []
    with services.db.reading() as session:
        job = tracking.at(session, services.rules, seq)
        for row in transitions.events(session, seq, event):
            event = row.seq
            document = {"at": time_text(row.at), "state": row.state, "worker": row.worker, "note": row.note}
            document["detail"] = json.loads(row.detail_json) if row.detail_json else None
            parts.append(_event("event", canonical(document), (event, offset)))
        chunks = logs.read_log(session, seq, offset, job.log_size)
    if chunks:
        offset = chunks[-1].next
        page = {"offset": chunks[0].start, "next": offset, "text": logs.text_of(chunks).decode("utf-8", "replace")}
        parts.append(_event("log", canonical(page), (event, offset)))
    return "".join(parts), (event, offset), job, offset < job.log_size


def _event(kind: str, document: str, cursor: tuple[int, int]) -> str:
    return f"event: {kind}\nid: {cursor[0]}-{cursor[1]}\ndata: {document}\n\n"
