"""Jobs: how long the queue waits and who could end that, every job, and where the time of one went."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from mxr.artifact.key import TARGET
from mxr.artifact.partial import PartialRequest
from mxr.display.text import shell_quoted
from mxr.protocol.access import ADMIN
from mxr.protocol.jobs import OPEN
from mxr.util.codec import HUGE, time_text
from mxr_registry.access.scopes import OPERATIONS, Caller
from mxr_registry.config import lanes
from mxr_registry.database.session import Session, now
from mxr_registry.jobs import attempts, logs, queue, tracking, transitions
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep
from mxr_registry.routes.jobs import show

from .filters import moment
from .site import PRIVATE, as_json, page_router, plain, render
from .wording import fetch_command, host_words, request_of, request_words

router = page_router()

AT_ONCE = 25
"""Jobs on one page."""

LANES = 20
"""Lanes on one page."""

LOG = 12 << 10
"""Bytes at the end of a log that a page shows."""


class JobsFilters(tracking.JobFilters, frozen=True):
    """Filters of the page: those of the list, fewer at once."""

    limit: int = Field(default=AT_ONCE, ge=1, le=AT_ONCE)


Filters = Annotated[JobsFilters, Query()]


@router.get("/jobs")
def show_jobs(request: Request, services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """The page of all jobs."""
    shown = {"filters": filters.model_dump(), "command": _command(filters)}
    return render(request, "jobs.html", {**shown, **view(services, caller, filters)})


@router.get("/jobs.json")
def show_jobs_json(services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """What the page shows."""
    return as_json(view(services, caller, filters))


@router.get("/jobs/{id}.json")
def show_job_json(id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """What the page of one job shows."""
    return as_json(job_view(services, caller, id))


@router.get("/jobs/{id}")
def show_job(id: str, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The page of one job."""
    data = job_view(services, caller, id)
    asked = PartialRequest.read(data["job"]["request"])
    commands = {"wait": fetch_command(asked, "--on-miss", "wait"), "words": request_words(asked)}
    return render(request, "job.html", {**data, **commands, "phases": phases(data)})


@router.get("/jobs/{id}/log")
def show_job_log(
    id: str, services: ServicesDep, caller: CallerDep, offset: Annotated[int, Query(ge=0, le=HUGE)] = 0
) -> Response:
    """A part of the log of a job: what the page's script adds while the job runs."""
    with services.db.reading() as session:
        job = tracking.find_job(session, caller.namespace, id, caller.owner)
        chunks = logs.read_log(session, job.seq, offset, job.log_size)
    following = chunks[-1].next if chunks else max(offset, job.log_size)
    headers = {**PRIVATE, "mxr-log-next": str(following), "mxr-job-state": job.state}
    return PlainTextResponse(logs.text_of(chunks), headers=headers)


def view(services: Services, caller: Caller, filters: JobsFilters) -> dict[str, Any]:
    """Return what the page of all jobs shows."""
    with services.db.reading() as session:
        found = plain(tracking.list_jobs(session, caller.namespace, filters, caller.owner))
        for job in found["items"]:
            asked = request_of(job)
            job["words"] = request_words(asked) if asked else ["a request of a newer mxr"]
        sees_queue = caller.may((*OPERATIONS["get_queue"], ADMIN))
        return {
            "jobs": found["items"],
            "next": found["next"],
            "lanes": queue_view(session, services, caller.namespace) if sees_queue else None,
            "ended": attempts.ended_lately(session, caller.namespace, caller.owner),
        }


def queue_view(session: Session, services: Services, namespace: str) -> list[dict[str, Any]]:
    """Return the lanes with open jobs, the one whose oldest job waits longest first, and whether somebody can.

    `[{"lane","target","toolchain","queued","running","oldest_seconds","served","ages"}]`
    """
    kinds = queue.show_queue(session, services.rules, namespace, queue.QueueFilters()).kinds
    live, rows = LiveCapabilities(session, services.rules, namespace), list[dict[str, Any]]()
    for lane, count in sorted(kinds.items(), key=lambda pair: -pair[1].oldest_seconds):
        key = lanes.key_of(lane)
        ages = queue.waiting_ages(session, namespace, lane) if len(rows) < LANES else []
        row = {"lane": lane, "target": key.arch or key.kind, "served": live.knows(lane), "ages": ages}
        row["toolchain"] = " · ".join(each for each in (key.rocm, key.migraphx) if each)
        row["words"] = ", ".join(
            host_words(PartialRequest(key.model, (), **{name: getattr(key, name) for name in TARGET}))
        )
        rows.append({**row, **plain(count)})
    return rows


def job_view(services: Services, caller: Caller, id: str) -> dict[str, Any]:
    """Return what the page of one job shows. Raises `NotFoundError`, `UsageError`."""
    found = show(services, caller.namespace, id, caller.owner)
    with services.db.reading() as session:
        begin = max(0, found.log_size - LOG)
        log = logs.text_of(logs.read_log(session, found.seq, begin, found.log_size)).decode("utf-8", "replace")
        events = [
            {"at": time_text(row.at), "state": row.state, "worker": row.worker, "note": row.note}
            for row in transitions.events(session, found.seq, 0)
        ]
        return {
            "job": plain(found.job),
            "open": found.state in OPEN,
            "attempts": attempts.of_job(session, found.seq),
            "events": events[::-1],
            "log": {"size": found.log_size, "begin": begin, "text": log},
            "now": time_text(now(session)),
        }


def phases(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the time line of a job: each wait and each phase with its share, in per cent of the whole."""
    job, rows = data["job"], []
    end = data["now"] if data["open"] else job["updated_at"]
    begun = job["created_at"]
    for number, attempt in enumerate(data["attempts"], 1):
        rows.append(("queued", f"attempt {number}", begun, attempt["started_at"], "f3"))
        steps = [("claimed", attempt["started_at"]), *((each["phase"], each["at"]) for each in attempt["phases"])]
        begun = attempt["ended_at"] or end
        for place, (name, at) in enumerate(steps):
            last = place == len(steps) - 1
            failed = last and attempt["state"] not in (None, "done")
            until = begun if last else steps[place + 1][1]
            told = attempt["note"] if failed else attempt["worker"] if not place else ""
            rows.append((name, told, at, until, "fb" if failed else "f1"))
    if job["state"] == "queued":
        rows.append(("queued", f"attempt {len(data['attempts']) + 1}", begun, end, "f3"))
    first = moment(job["created_at"])
    whole = max(0.001, (moment(end) - first).total_seconds())
    return [
        {
            **{"name": name, "told": told, "at": at, "seconds": (moment(until) - moment(at)).total_seconds()},
            "bar": [(mark, 100 * (moment(at) - first).total_seconds() / whole, 100 * length / whole)],
        }
        for name, told, at, until, mark in rows
        for length in [(moment(until) - moment(at)).total_seconds()]
    ]


def _command(filters: JobsFilters) -> str:
    options = {"--state": filters.state, "--arch": filters.arch}
    words = ["mxr", "jobs", *(word for row in options.items() if row[1] for word in row)]
    return " ".join(map(shell_quoted, words))
