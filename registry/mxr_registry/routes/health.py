"""Routes for operators: liveness and readiness probes, and Prometheus metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Response

from mxr.errors import TemporaryError, UsageError
from mxr.util.doc import Doc
from mxr_registry import metrics
from mxr_registry.openapi import text_reply

from .deps import Services, ServicesDep, scoped_router

router = scoped_router(tags=["health"])


@dataclass(frozen=True, slots=True)
class Health:
    """What was probed works."""

    ok: Annotated[bool, Doc("True.")] = True


@router.get("/healthz")
async def get_health() -> Health:
    """Liveness probe.

    Succeed while the process handles requests. Does not check the database or the store.
    """
    return Health()


@router.get("/readyz")
async def get_readiness(services: ServicesDep) -> Health:
    """Readiness probe: checks the database and the store.

    Succeed if the database and the store respond. Otherwise returns their error.
    """
    if services.stopping.is_set():
        raise TemporaryError("This registry is stopping; it still serves those who ask it.")
    await services.probe_threads.run(_check, services)
    return Health()


def _check(services: Services) -> None:
    services.db.ping()
    try:
        services.store.ready()
    except UsageError as problem:
        raise TemporaryError(problem.message, hint=problem.hint) from problem


@router.get("/metrics", responses=text_reply("Metrics in the text format of Prometheus."))
def get_metrics(services: ServicesDep) -> Response:
    """Metrics for Prometheus.

    Jobs, queue, workers, compile seconds by arch, and resolve hits and misses.
    """
    with services.db.reading() as session:
        text = metrics.text(session, services.rules, services.counters)
    return Response(text, media_type="text/plain; version=0.0.4")
