"""Build the FastAPI application from database, store and routes."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import cache, partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from mxr.errors import MxrError, TemporaryError
from mxr_registry.access.authentication import Authenticator
from mxr_registry.artifacts.inspection import RefusalMemory
from mxr_registry.artifacts.usage import UsageCounter
from mxr_registry.config.retention import DAY
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.identity import RegistryIdentity
from mxr_registry.database.session import Database
from mxr_registry.jobs.notifications import JobNotifier
from mxr_registry.signer import Signer

from .artifacts import inspection
from .metrics import FleetMetrics
from .openapi import openapi_document
from .pages import artifact, assets, explain, fleet, home, matrix, sign_in
from .pages import jobs as jobs_pages
from .routes import (
    api_page,
    artifacts,
    blobs,
    events,
    health,
    job_logs,
    jobs,
    locks,
    models,
    pipelines,
    queue,
    recalls,
    resolve,
    statements,
    tags,
    tokens,
    uses,
    workers,
)
from .routes.deps import Services
from .server import error_replies
from .server.download_buffers import DownloadBuffers
from .server.fair_places import CheckingPool, UploadSlots
from .server.middleware import CLOSE, BodyMemory, IdentifiedApp, RequestIds, SubPath, send_error
from .server.probes import Probe
from .server.reply_memory import ReplyMemory
from .server.request_guard import RequestGuard
from .storage import open_store

log = logging.getLogger("mxr_registry")

# What fleets call most comes first, and fixed paths come before those with an id in their place.
MODULES = (
    *(
        resolve,
        health,
        artifacts,
        recalls,
        statements,
        locks,
        tags,
        uses,
        blobs,
        models,
        pipelines,
        jobs,
        job_logs,
        workers,
        queue,
    ),
    *(events, tokens, api_page),
    *(home, explain, matrix, artifact, jobs_pages, fleet, sign_in, assets),
)


def create_app(settings: RegistrySettings) -> FastAPI:
    """Return the application for these settings. It opens no connection before the first request.

    Raises `UsageError`.
    """
    signer = Signer(settings.signing_key, settings.signing.recall_days * DAY)
    db = Database(settings.database_url, settings.connections, settings.serve, signer)
    store = open_store(settings.store_url, settings.s3)
    identity, limits, stopping = RegistryIdentity(db), settings.limits, threading.Event()
    store.owner.wanted = lambda: identity.known
    fleet = FleetMetrics(db, settings.rules)
    app = FastAPI(
        title="mxr registry",
        description="Artifact registry and compile queue for MIGraphX programs, matched to GPU and software versions.",
        version="1",
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # A request meets them in this order. Then its route checks the token, and reads the body (`server.scoped`).
        middleware=[
            Middleware(RequestIds, stopping=stopping, answer=settings.connections.answer, logs=settings.verbose),
            *([Middleware(SubPath, root=settings.root_path)] if settings.root_path else []),
            Middleware(RequestGuard, allowed=(*settings.allowed_hosts, settings.host)),
            Middleware(IdentifiedApp, identity=identity),
            Middleware(BodyMemory, total=limits.body_memory, largest=limits.body),
            Middleware(ReplyMemory, total=limits.reply_memory),
        ],
    )
    app.state.services = Services(
        settings=settings,
        authenticator=Authenticator(db),
        identity=identity,
        notifier=JobNotifier(db, settings.rules),
        db=db,
        store=store,
        inspect=partial(inspection.inspect, store, limits=limits, refusals=RefusalMemory()),
        describe_model=partial(inspection.describe_model, store, limits=limits, refusals=RefusalMemory()),
        usage=UsageCounter(db),
        checking=CheckingPool(limits.inspections, limits.inspections_waiting),
        downloads=DownloadBuffers(limits.download_memory),
        uploads=UploadSlots(limits.upload_seconds),
        stopping=stopping,
        fleet=fleet,
        probes={
            "database": Probe("registry's database", db.ping),
            "store": Probe("registry's store", store.ready),
            "fleet": Probe("registry's database", fleet.read),
        },
    )
    for router in (resolve.direct_router, *(module.router for module in MODULES)):
        # Not include_router, which builds every route again when the first request comes: 50 ms for that one, and a
        # fifth of a millisecond for each one after it.
        app.router.routes.extend(router.routes)
    app.openapi = cache(partial(openapi_document, app, settings.root_path))  # type: ignore[method-assign]
    app.add_exception_handler(MxrError, error_replies.reply_to_mxr_error)
    app.add_exception_handler(RequestValidationError, error_replies.reply_to_invalid_parameter)
    app.add_exception_handler(HTTPException, error_replies.reply_to_http_error)
    app.add_exception_handler(Exception, error_replies.reply_to_bug)
    return app


class Served:
    """ASGI wrapper that logs errors raised after the response has started, instead of passing them to the server.

    The application has already sent or logged such an error. The server would only log it a second time. What is cut
    because the registry stops gets a line, not a traceback, and a 503 where its response has not started.
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
        except asyncio.CancelledError:
            # The server cancels only what is left when it stops.
            log.warning("%s was cut: the registry stops", scope.get("path"))
            if not started:
                problem = TemporaryError("The registry stopped before this request was done.", hint="Send it again.")
                await send_error(send, problem, problem.status, (b"retry-after", b"1"), CLOSE)
        except Exception as problem:
            if not started:
                raise
            log.warning("the response to %s was cut short: %s", scope.get("path"), problem.__cause__ or problem)
