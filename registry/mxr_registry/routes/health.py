"""Routes for operators: liveness and readiness probes, and Prometheus metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Response
from fastapi.concurrency import run_in_threadpool

from mxr.errors import TemporaryError
from mxr.util.doc import Doc
from mxr_registry import metrics
from mxr_registry.openapi import text_reply

from .deps import ServicesDep, scoped_router

router = scoped_router(tags=["health"])

PARTS = ("database", "store")
"""What a registry needs."""


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
    database, store = await asyncio.gather(*(services.probes[part].failure() for part in PARTS))
    if database is not None:
        raise TemporaryError(database.message, hint=database.hint)
    return Readiness("ok", "ok" if store is None else store.message)


@router.get("/metrics", responses=text_reply("Metrics in the text format of Prometheus."))
async def get_metrics(services: ServicesDep) -> Response:
    """Metrics for Prometheus.

    What this process counted since it started; whether it reaches database and store; and what the database has, under
    names that begin with `mxr_fleet_`, the same at each registry that shares it. Served while the database is away.
    """
    probes = services.probes
    failures = dict(zip(probes, await asyncio.gather(*(each.failure() for each in probes.values())), strict=True))
    reached = {name: metrics.ReachedPart(failures[name] is None, probes[name].seconds) for name in PARTS}
    inspections = {"running": services.checking.running, "waiting": services.checking.waiting}
    fleet = services.fleet.families if failures["fleet"] is None else []
    found = await run_in_threadpool(metrics.text, services.settings, services.store, reached, inspections, fleet)
    return Response(found, media_type="text/plain; version=0.0.4")
