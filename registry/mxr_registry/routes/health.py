"""Routes for operators: liveness and readiness probes, and Prometheus metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Response

from mxr.errors import TemporaryError
from mxr.util.doc import Doc
from mxr_registry import metrics
from mxr_registry.openapi import text_reply

from .deps import ServicesDep, scoped_router

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


@dataclass(frozen=True, slots=True)
class Readiness:
    """What this process needs, and how it is."""

    database: Annotated[str, Doc("`ok`.")]
    store: Annotated[str, Doc("`ok`, or why uploads and downloads fail; resolves and hits are served.")]
    ok: Annotated[bool, Doc("True.")] = True


@router.get("/readyz")
async def get_readiness(services: ServicesDep) -> Readiness:
    """Readiness probe: whether to send this process requests.

    Answers within three seconds. 503 while the process stops, or where the database does not answer. A store that is
    away is told and no reason: resolves and hits are served, and every process would be out at once.
    """
    if services.stopping.is_set():
        raise TemporaryError("This registry is stopping; it still serves those who ask it.")
    database, store = await asyncio.gather(*(services.probes[part].failure() for part in ("database", "store")))
    if database is not None:
        raise TemporaryError(database.message, hint=database.hint)
    return Readiness("ok", "ok" if store is None else store.message)


@router.get("/metrics", responses=text_reply("Metrics in the text format of Prometheus."))
def get_metrics(services: ServicesDep) -> Response:
    """Metrics for Prometheus.

    Jobs, queue, workers, compile seconds by arch, and resolve hits and misses.
    """
    with services.db.reading() as session:
        text = metrics.text(session, services.rules, services.counters)
    return Response(text, media_type="text/plain; version=0.0.4")
