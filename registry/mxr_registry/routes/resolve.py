"""Routes that resolve a request to an artifact, list the requests that found none, and tell request defaults."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool

from mxr.artifact.attributes import Request
from mxr.artifact.candidates import Candidates
from mxr.artifact.partial import PartialRequest
from mxr.errors import Json, TooLargeError
from mxr.protocol.artifacts import Misses, NamespaceDefaults, ResolveReply
from mxr_registry import counters
from mxr_registry.artifacts import candidates, misses, namespaces, resolution
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.openapi import errors
from mxr_registry.server.bodies import Repeated
from mxr_registry.server.request_record import note

from .deps import CallerDep, DirectRoute, ServicesDep, scoped_router

router = scoped_router(tags=["resolve"])
direct_router = APIRouter(tags=["resolve"], route_class=DirectRoute)


@direct_router.post("/v1/resolve", response_model=ResolveReply, responses=errors(404))
async def resolve(message: Repeated[Request], services: ServicesDep, caller: CallerDep) -> Json:
    """Resolve a request to an artifact.

    The artifact with manifest and URLs, or 404 with the nearest artifacts and the reasons why they do not match.
    """
    known = (services.db, services.usage, caller.namespace, message)
    try:
        found = resolution.hit_at_once(*known) or await services.resolve_threads.run(resolution.hit, *known)
        if found is None:
            # A miss reads and writes much more than a hit: it does not take the threads of hits.
            await run_in_threadpool(resolution.refuse, services.db, caller.namespace, message)
    finally:
        # Its digests, its own first, once they were computed: that of a large key takes longer than this loop may.
        if related := vars(message).get("related"):
            note(digest=next(iter(related)))
    counters.HITS.inc()
    return found


@router.post("/v1/candidates", response_model=Candidates, responses=errors(404))
def find_candidates(message: Repeated[PartialRequest], services: ServicesDep, caller: CallerDep) -> Json:
    """List the ways to complete a partial request.

    At most 50 of them, the newest toolchain first; or 404 with the nearest artifacts and what could compile it.
    """
    found = candidates.find_candidates(services.db, caller.namespace, message)
    if found is not None:
        return found
    with services.db.reading() as session:
        toolchains: list[Mapping[str, str]] = []
        with suppress(TooLargeError):  # Too many workers to compare: the miss is explained without them.
            live = LiveCapabilities(session, services.rules, caller.namespace, {caller.principal})
            toolchains = live.toolchains_for(message)
        error = candidates.no_candidates_error(session, caller.namespace, message, toolchains)
    candidates.record_miss(services.db, caller.namespace, message, error)
    raise error


@router.get("/v1/misses", response_model=Misses)
def list_misses(services: ServicesDep, caller: CallerDep, filters: Annotated[misses.MissFilters, Query()]) -> Json:
    """List requests that found no artifact, latest first.

    Each request with its count, its first and last time, how many hosts made it, and the nearest artifacts at the last
    time. Hosts and principals are named to administrators, and to the principal itself.
    """
    with services.db.reading() as session:
        return misses.list_misses(session, caller.namespace, filters, caller.owner)


@router.get("/v1/defaults")
def get_defaults(services: ServicesDep, caller: CallerDep) -> NamespaceDefaults:
    """Show the request defaults of the namespace.

    What a request of this namespace has where neither its options nor the host tell. Null: there is no default.
    """
    with services.db.reading() as session:
        return namespaces.defaults_of(session, caller.namespace)
