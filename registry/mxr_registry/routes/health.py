"""Routes for liveness and readiness probes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.errors import Temporary, Usage

from .deps import ServicesDep, reply

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness probe")
async def healthz() -> Response:
    """Succeeds while the process handles requests. Does not check the database or the store."""
    return reply('{"ok":true}')


@router.get("/readyz", summary="Readiness probe: checks the database and the store")
def readyz(services: ServicesDep) -> Response:
    """Succeeds if the database and the store respond. Otherwise returns their error."""
    services.db.ping()
    try:
        services.store.ready()
    except Usage as problem:
        raise Temporary(problem.message, hint=problem.hint) from problem
    return reply('{"ok":true}')
