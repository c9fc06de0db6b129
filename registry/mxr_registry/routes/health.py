"""Routes for operators: liveness and readiness probes, and Prometheus metrics."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from mxr.errors import TemporaryError, UsageError
from mxr_registry import metrics
from mxr_registry.openapi.operations import TEXT, Success, operation

from .deps import JobRulesDep, Services, ServicesDep, reply, scoped_router

router = scoped_router(tags=["health"])


@dataclass(frozen=True, slots=True)
class Health:
    """What was probed works."""

    ok: bool


OK = '{"ok":true}'


@router.get(
    "/healthz",
    summary="Liveness probe",
    **operation("get_health", {200: Success("The process handles requests.", Health)}),
)
async def healthz() -> Response:
    """Succeed while the process handles requests. Does not check the database or the store."""
    return reply(OK)


@router.get(
    "/readyz",
    summary="Readiness probe: checks the database and the store",
    **operation("get_readiness", {200: Success("Database and store respond.", Health)}),
)
async def readyz(services: ServicesDep) -> Response:
    """Succeed if the database and the store respond. Otherwise returns their error."""
    await services.probe_threads.run(_check, services)
    return reply(OK)


def _check(services: Services) -> None:
    services.db.ping()
    try:
        services.store.ready()
    except UsageError as problem:
        raise TemporaryError(problem.message, hint=problem.hint) from problem


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    **operation(
        "get_metrics", {200: Success("Metrics in the text format of Prometheus.", {"type": "string"}, media_type=TEXT)}
    ),
)
def show_metrics(request: Request, services: ServicesDep, rules: JobRulesDep) -> Response:
    """Jobs, queue, workers, compile seconds by arch, and resolve hits and misses."""
    with services.db.reading() as session:
        text = metrics.text(session, rules, request.app.state.counters)
    return Response(text.encode(), media_type="text/plain; version=0.0.4")
