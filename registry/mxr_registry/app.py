"""Build the FastAPI application from database, store and routes, and turn errors into replies."""

from __future__ import annotations

import logging
from functools import cache, partial
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from mxr.errors import InterruptionError, MxrError, NotFoundError, UsageError
from mxr.protocol.artifacts import REGISTRY_HEADER
from mxr_registry.access.authentication import Authenticator
from mxr_registry.artifacts.inspection import RefusalMemory
from mxr_registry.artifacts.usage import UsageCounter
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.identity import RegistryIdentity
from mxr_registry.database.session import Database
from mxr_registry.jobs.notifications import JobNotifier
from mxr_registry.routes.fair_places import CheckingPool, UploadSlots
from mxr_registry.routes.scoped import allowed_methods
from mxr_registry.server.middleware import BodyMemory, CountedApp, IdentifiedApp, RequestIds, SubPath

from . import metrics, request_id
from .artifacts import inspection
from .openapi import openapi_document
from .routes import (
    api_page,
    artifacts,
    blobs,
    health,
    job_logs,
    jobs,
    locks,
    models,
    pipelines,
    queue,
    resolve,
    tokens,
    uses,
    workers,
)
from .routes.deps import Services, error_reply
from .routes.download_buffers import DownloadBuffers
from .server.reply_memory import ReplyMemory
from .server.request_guard import RequestGuard
from .storage import open_store

log = logging.getLogger("mxr_registry")

# What fleets call most comes first, and fixed paths come before those with an id in their place.
MODULES = (
    *(resolve, health, artifacts, locks, uses, blobs, models, pipelines, jobs, job_logs, workers, queue),
    *(tokens, api_page),
)
ROUTERS = tuple(module.router for module in MODULES)


def create_app(settings: RegistrySettings) -> FastAPI:
    """Return the application for these settings. It opens no connection before the first request.

    Raises `UsageError`.
    """
    app = FastAPI(
        title="mxr registry",
        description="Artifact registry and compile queue for MIGraphX programs, matched to GPU and software versions.",
        version="1",
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    db = Database(settings.database_url, settings.connections, settings.serve)
    store = open_store(settings.store_url, settings.s3)
    inspect = partial(inspection.inspect, store, limits=settings.limits, refusals=RefusalMemory())
    describe_model = partial(inspection.describe_model, store, limits=settings.limits, refusals=RefusalMemory())
    app.state.services = Services(
        settings=settings,
        db=db,
        store=store,
        inspect=inspect,
        describe_model=describe_model,
        usage=UsageCounter(db),
        checking=CheckingPool(settings.limits.inspections, settings.limits.inspections_waiting),
        downloads=DownloadBuffers(settings.limits.download_memory),
        uploads=UploadSlots(settings.limits.upload_seconds),
    )
    app.state.authenticator = Authenticator(db)
    app.state.rules = settings.rules
    app.state.notifier = JobNotifier(db, app.state.rules)
    app.state.counters = metrics.Counters()
    app.add_middleware(CountedApp, counters=app.state.counters)
    app.add_middleware(ReplyMemory, total=settings.limits.reply_memory)
    app.add_middleware(BodyMemory, total=settings.limits.body_memory, largest=settings.limits.body)
    app.state.identity = RegistryIdentity(db)
    app.add_middleware(IdentifiedApp, identity=app.state.identity)
    app.add_middleware(RequestGuard, allowed=(*settings.allowed_hosts, settings.host))
    if settings.root_path:
        app.add_middleware(SubPath, root=settings.root_path)
    # The one added last sees a request first.
    app.add_middleware(RequestIds)
    for router in ROUTERS:
        # Not include_router, which builds every route again when the first request comes: 50 ms for that one, and a
        # fifth of a millisecond for each one after it.
        app.router.routes.extend(router.routes)
    app.openapi = cache(partial(openapi_document, app, settings.root_path))  # type: ignore[method-assign]
    app.add_exception_handler(MxrError, _mxr_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    return app


class Served:
    """ASGI wrapper that logs errors raised after the response has started, instead of passing them to the server.

    The application has already sent or logged such an error. The server would only log it a second time.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        started = False

        async def send_and_note(message: object) -> None:
            nonlocal started
            started = True
            await send(message)  # type: ignore[arg-type]

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as problem:
            if not started:
                raise
            log.warning("the response to %s was cut short: %s", scope.get("path"), problem.__cause__ or problem)


def _mxr_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, MxrError)
    # Not where a client left: any number of clients may do so.
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(problem, InterruptionError):
        log.warning("%s %s: %s", request.method, request.url.path, problem.message)
    request.app.state.counters.count_error(request.url.path, problem)
    return error_reply(problem, problem.status)


def _validation_error(_request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()[0]
    where = ".".join(map(str, found["loc"][1:]))
    return error_reply(UsageError(f"{where}: {found['msg']}."[:500]), 422)


def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = f"{request.method} {request.url.path[:200]}"
    hint = "`/openapi.json` lists the routes; check the URL of the registry."
    error: MxrError = UsageError(f"{path}: {problem.detail}.", hint=hint)
    headers = dict(problem.headers or {})
    if problem.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(allowed_methods(ROUTERS, request.url.path))
    if problem.status_code == HTTPStatus.NOT_FOUND:
        error = NotFoundError(f"No such route: {path}.", hint=hint)
    return error_reply(error, problem.status_code, headers)


def _internal_error(request: Request, problem: Exception) -> Response:
    id = request_id.current()
    log.error("internal error in %s %s", request.method, request.url.path, exc_info=problem)
    error = MxrError(
        f"Internal error in the registry in request {id}.",
        hint=f"Report it with the lines of the registry's log that name request {id}.",
    )
    # The server makes this reply outside of the middleware.
    uuid = request.app.state.identity.known
    headers = {request_id.HEADER.decode(): id} | ({REGISTRY_HEADER: uuid} if uuid else {})
    return error_reply(error, error.status, headers)
