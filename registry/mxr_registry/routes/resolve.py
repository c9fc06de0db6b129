"""Routes that resolve a request to an artifact, list the requests that found none, and tell request defaults."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from mxr.artifact.attributes import Request as ArtifactRequest
from mxr.artifact.candidates import Candidates
from mxr.artifact.partial import PartialRequest
from mxr.errors import TooLargeError
from mxr.protocol import artifacts as artifact_protocol
from mxr.util import codec
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import candidates, misses, namespaces, resolution
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.jobs.live_capabilities import LiveCapabilities
from mxr_registry.openapi.operations import Success, operation

from .bodies import BodyDep
from .deps import (
    AfterQuery,
    CallerDep,
    DirectRoute,
    JobRulesDep,
    LimitQuery,
    Services,
    ServicesDep,
    reply,
    scoped_router,
)

router = scoped_router(tags=["resolve"])
direct_router = APIRouter(tags=["resolve"], route_class=DirectRoute)


@direct_router.post(
    "/v1/resolve",
    summary="Resolve a request to an artifact",
    **operation(
        "resolve",
        {200: Success("The artifact.", artifact_protocol.ResolveReply)},
        takes=ArtifactRequest,
        errors=(404,),
    ),
)
async def resolve(body: BodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """The artifact with manifest and URLs, or 404 with the nearest artifacts and the reasons why they do not match."""
    found = resolution.hit_at_once(services.db, services.usage, caller.namespace, body)
    if found is not None:
        return reply(found)
    request, hit = await services.resolve_threads.run(_find, body, services, caller)
    if hit is None:
        # A miss reads and writes much more than a hit: it does not take the threads of hits.
        await run_in_threadpool(resolution.refuse, services.db, caller.namespace, request)
    return reply(hit)


def _find(body: bytes, services: Services, caller: Caller) -> tuple[resolution.ResolveRequest, str | None]:
    request = resolution.decode_request(body)
    return request, resolution.hit(services.db, services.usage, caller.namespace, request)


@router.post(
    "/v1/candidates",
    summary="List the ways to complete a partial request",
    **operation(
        "find_candidates",
        {200: Success("The ways.", Candidates)},
        takes=PartialRequest,
        errors=(404,),
    ),
)
async def list_candidates(body: BodyDep, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """At most 50 of them, the newest toolchain first; or 404 with the nearest artifacts and what could compile it."""
    return reply(await run_in_threadpool(_candidates, body, services, caller, rules))


def _candidates(body: bytes, services: Services, caller: Caller, rules: JobRules) -> str:
    partial = candidates.decode_partial_request(body)
    found = candidates.find_candidates(services.db, caller.namespace, partial)
    if found is not None:
        return found
    with services.db.reading() as session:
        toolchains: list[Mapping[str, str]] = []
        with suppress(TooLargeError):  # Too many workers to compare: the miss is explained without them.
            toolchains = LiveCapabilities(session, rules, caller.namespace).toolchains_for(partial)
        error = candidates.no_candidates_error(session, caller.namespace, partial, toolchains)
    candidates.record_miss(services.db, caller.namespace, partial, error)
    raise error


@router.get(
    "/v1/misses",
    summary="List requests that found no artifact, latest first",
    **operation("list_misses", {200: Success("One page.", artifact_protocol.Misses)}),
)
def list_misses(
    services: ServicesDep, caller: CallerDep, after: AfterQuery = None, limit: LimitQuery = MAX_ROWS
) -> Response:
    """Each request with its count, its first and last time, and the nearest artifacts at the last time."""
    with services.db.reading() as session:
        return reply(misses.list_misses(session, caller.namespace, after, limit))


@router.get(
    "/v1/defaults",
    summary="Show the request defaults of the namespace",
    **operation("get_defaults", {200: Success("The defaults.", artifact_protocol.NamespaceDefaults)}),
)
def show_defaults(services: ServicesDep, caller: CallerDep) -> Response:
    """What a request of this namespace has where neither its options nor the host tell. Null: there is no default."""
    with services.db.reading() as session:
        return reply(
            codec.canonical(artifact_protocol.message_document(namespaces.defaults_of(session, caller.namespace)))
        )
