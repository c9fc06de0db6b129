"""Routes for liveness and readiness probes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.errors import TemporaryError, UsageError
from mxr_registry.openapi.operations import Success, operation

from .deps import Services, ServicesDep, reply

router = APIRouter(tags=["health"])


OK = {
    "type": "object",
    "properties": {"ok": {"type": "boolean", "description": "True."}},
    "required": ["ok"],
    "additionalProperties": False,
}


@router.get(
    "/healthz", summary="Liveness probe", **operation("get_health", {200: Success("The process handles requests.", OK)})
)
async def healthz() -> Response:
    """Succeed while the process handles requests. Does not check the database or the store."""
    return reply('{"ok":true}')


@router.get(
    "/readyz",
    summary="Readiness probe: checks the database and the store",
    **operation("get_readiness", {200: Success("Database and store respond.", OK)}),
)
async def readyz(services: ServicesDep) -> Response:
    """Succeed if the database and the store respond. Otherwise returns their error."""
    await services.probe_threads.run(_check, services)
    return reply('{"ok":true}')


def _check(services: Services) -> None:
    services.db.ping()
    try:
        services.store.ready()
    except UsageError as problem:
        raise TemporaryError(problem.message, hint=problem.hint) from problem
