"""The service put together: database, store and routes, and the one place where an error becomes a reply."""

from __future__ import annotations

import logging
import secrets
from functools import partial
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from mxr.errors import MxrError, NotFound, Usage
from mxr_registry.artifacts.usage import UsageCounter
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.session import Database
from mxr_registry.jobs.notifications import JobNotifier

from . import metrics
from .artifacts import inspection
from .routes import artifacts, blobs, health, jobs, locks, models, pipelines, queue, resolve, uses, workers
from .routes import metrics as figures
from .routes.deps import Services
from .storage import open_store

log = logging.getLogger("mxr_registry")


def create_app(settings: RegistrySettings) -> FastAPI:
    """The application for these settings. Connects to nothing before the first request. Raises `Usage`."""
    app = FastAPI(
        title="mxr registry",
        description="Compiled MIGraphX programs: the right one for every GPU, and never a wrong one.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    db = Database(settings.database_url, settings.connections)
    store = open_store(settings.store_url, settings.s3)
    inspect = partial(inspection.inspect, store, limits=settings.limits)
    look = partial(inspection.look, store, limits=settings.limits)
    app.state.rooms = Services(settings, db, store, inspect, look, UsageCounter(db))
    app.state.rules = settings.rules or JobRules()
    app.state.bus = JobNotifier(db, app.state.rules)
    app.state.counters = metrics.Counters()
    app.add_middleware(figures.CountedApp, counters=app.state.counters)
    app.include_router(resolve.straight)
    for room in (health, resolve, artifacts, locks, uses, blobs, models, jobs, pipelines, workers, queue, figures):
        app.include_router(room.router)
    app.add_exception_handler(MxrError, _known)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unknown)
    return app


class Served:
    """An application whose faults, answered and logged by it already, do not reach the server as well."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun = False

        async def watch(message: object) -> None:
            nonlocal begun
            begun = True
            await send(message)  # type: ignore[arg-type]

        try:
            await self.app(scope, receive, watch)
        except Exception as problem:
            if not begun:
                raise
            log.warning("a reply of %s ended early: %s", scope.get("path"), problem.__cause__ or problem)


def _known(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, MxrError)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("%s %s: %s", request.method, request.url.path, problem.message)
    request.app.state.counters.refused(request.url.path, problem)
    return JSONResponse(problem.to_json(), problem.status)


def _unreadable(_request: Request, problem: Exception) -> Response:
    return JSONResponse(Usage(f"The request cannot be read: {problem}"[:500], hint="Correct it.").to_json(), 422)


def _http(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = f"{request.method} {request.url.path[:200]}"
    hint = "`/openapi.json` lists what there is; check that --registry is right."
    known: MxrError = Usage(f"{path}: {problem.detail}.", hint=hint)
    if problem.status_code == HTTPStatus.NOT_FOUND:
        known = NotFound(f"There is nothing at {path}.", hint=hint)
    return JSONResponse(known.to_json(), problem.status_code, headers=problem.headers)


def _unknown(request: Request, problem: Exception) -> Response:
    id = secrets.token_hex(6)
    log.error("fault %s in %s %s", id, request.method, request.url.path, exc_info=problem)
    known = MxrError(
        f"A fault of the registry, logged there as {id}.",
        hint="Report it with what the registry's log says under this number.",
        detail={"log": id},
    )
    return JSONResponse(known.to_json(), known.status)
