"""The first page: which requests found no program, why, and what would help; beside it, how the registry is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from markupsafe import escape
from pydantic import Field

from mxr.display.text import shell_quoted
from mxr.errors import TooLargeError
from mxr.protocol.access import ADMIN, ASK, METRICS
from mxr.protocol.surveys import RequestStatus, Survey
from mxr.util.codec import canonical, time_text
from mxr_registry.access.scopes import OPERATIONS, Caller
from mxr_registry.artifacts import catalog, misses
from mxr_registry.config.retention import DAY
from mxr_registry.database import tallies, trail
from mxr_registry.database.session import Session, now
from mxr_registry.jobs import attempts, survey, workers
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.routes.deps import CallerDep, Services, ServicesDep

from .jobs import queue_view
from .site import as_json, page_router, plain, reached, render
from .wording import REASONS, request_of, request_words, sentence_text, standing, why

router = page_router()

HOURS = 24
AT_ONCE = 20
"""Misses on one page."""

LARGE = 2_500
"""Letters of a miss in HTML beyond which the page shows less of it: the link to all fields has the rest."""

MOST = 10_000
"""Beyond it, nothing is counted."""


PERIODS = ((24, "24 hours"), (168, "7 days"), (2160, "90 days"))


class HomeFilters(misses.MissFilters, frozen=True):
    """Filters of the page: those of the list, within a day, twenty at once."""

    limit: int = Field(default=AT_ONCE, ge=1, le=AT_ONCE)
    hours: float = Field(default=HOURS, gt=0, le=24 * 36_500)


Filters = Annotated[HomeFilters, Query()]


@router.get("/")
@router.get("/misses")
async def show_home(request: Request, services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """The page."""
    data = {"filters": filters.model_dump(), **await view(services, caller, filters)}
    data |= {"reasons": REASONS, "periods": PERIODS, "command": _command(filters)}
    data["archs"] = sorted({*data["counts"]["archs"], *([filters.arch] if filters.arch else [])} - {None})
    empty = data["empty"] and not request.query_params
    return await run_in_threadpool(render, request, "empty.html" if empty else "home.html", data)


@router.get("/misses.json")
async def show_home_json(services: ServicesDep, caller: CallerDep, filters: Filters) -> Response:
    """What the page shows."""
    return as_json(await view(services, caller, filters))


async def view(services: Services, caller: Caller, filters: HomeFilters) -> dict[str, Any]:
    """Return what the page shows. What a scope of the caller does not tell by the API is null."""
    parts = await reached(services)

    def read() -> dict[str, Any]:
        with services.db.reading() as session:
            return _read(session, services, caller, filters)

    return {**await run_in_threadpool(read), "parts": parts}


def _command(filters: HomeFilters) -> str:
    """The command that lists the same."""
    options = {"--arch": filters.arch, "--why": filters.reason, "--by": filters.by, "--since": f"{filters.hours:g}h"}
    words = ["mxr", "misses", *([filters.name] if filters.name else [])]
    return " ".join(map(shell_quoted, [*words, *(word for row in options.items() if row[1] for word in row)]))


def _read(session: Session, services: Services, caller: Caller, filters: HomeFilters) -> dict[str, Any]:
    namespace, viewer = caller.namespace, caller.owner
    found = plain(misses.list_misses(session, namespace, filters, viewer))
    asks, counts = caller.may((ASK, ADMIN)), misses.count_misses(session, namespace, filters, viewer)
    requests = [request_of(miss) for miss in found["items"]]
    closed = [each for each in requests if each is not None and not each.open_facts] if asks else []
    statuses: Mapping[int, RequestStatus] = {}
    live = LiveCapabilities(session, services.rules, namespace, {caller.principal})
    # Where there are too many workers to compare, the page tells less.
    with suppress(TooLargeError):
        asked = Survey(tuple(each.determined for each in closed))
        known = survey.survey(session, services.rules, caller, asked).standings
        statuses = {id(request): status for request, status in zip(closed, known, strict=True)}
    for miss, request in zip(found["items"], requests, strict=True):
        sentence = why(miss)
        miss["why"], miss["sentence"] = sentence_text(sentence), sentence
        miss["words"] = request_words(request) if request else []
        miss["model"] = request.model if request else ""
        status = statuses.get(id(request))
        if status is None and asks and request is not None:
            with suppress(TooLargeError):
                status = RequestStatus(able=bool(live.toolchains_for(request)))
        miss["now"] = standing(miss, request, status)
        differences = miss["nearest"][0]["differences"][:8] if miss["nearest"] else []
        miss["large"] = len(escape(canonical([differences, miss["words"]]))) > LARGE
    some = catalog.list_artifacts(session, namespace, catalog.ArtifactFilters(limit=1))["items"]
    may = {name: caller.may((*OPERATIONS[name], ADMIN)) for name in ("get_queue", "list_jobs", "list_workers")}
    return {
        "misses": found["items"],
        "next": found["next"],
        "counts": counts | {"requests": sum(counts["reasons"].values())},
        "empty": not found["items"] and not some,
        "answered": {
            name: tallies.by_hour(session, namespace, name, HOURS) for name in (tallies.ANSWERED, tallies.MISSED)
        },
        "queue": queue_view(session, services, namespace) if may["get_queue"] else None,
        "workers": workers.count_states(session, services.rules, namespace) if may["list_workers"] else None,
        "failed": plain(attempts.failed_lately(session, namespace, viewer)) if may["list_jobs"] else None,
        "storage": _storage(session, services, namespace) if caller.may((METRICS, ADMIN)) else None,
    }


def _storage(session: Session, services: Services, namespace: str) -> dict[str, Any]:
    """The bytes of all blobs, the free ones, and the last and the next sweep."""
    rules, free = services.settings.retention, None
    with suppress(OSError):
        free = None if services.store.folder is None else shutil.disk_usage(services.store.folder).free
    last, unused = trail.last_runs(session).get("sweep"), None
    if rules.unused_days is not None:
        unused = catalog.count_unused(session, namespace, now(session) - rules.unused_days * DAY, MOST)
    return {
        "bytes": tallies.total(session, namespace, tallies.STORED_BYTES),
        "free": free,
        "last_sweep": time_text(last),
        "every_hours": rules.every_hours,
        "unused": unused,
        "unused_days": rules.unused_days,
    }
