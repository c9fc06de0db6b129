"""Dependencies of the routes (services, caller), and the replies that they share.

The dependencies are `async` although they do not block: FastAPI runs each plain function in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from mxr.protocol.access import WORK
from mxr_registry.access.authentication import Authenticator
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts.models import DescribeModel
from mxr_registry.artifacts.publication import Inspect
from mxr_registry.artifacts.usage import UsageCounter
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.identity import RegistryIdentity
from mxr_registry.database.paging import PageFilters
from mxr_registry.database.session import Database
from mxr_registry.jobs.notifications import JobNotifier
from mxr_registry.metrics import FleetMetrics
from mxr_registry.server.download_buffers import DownloadBuffers
from mxr_registry.server.fair_places import CheckingPool, FairPlaces, Requester, UploadSlots
from mxr_registry.server.probes import Probe
from mxr_registry.server.scoped import (
    DecodedRequest,
    Handler,
    ScopedRoute,
    address_of,
    caller_of,
)
from mxr_registry.server.threads import BODIES, LEASES, RESOLVES, SURVEYS, UPLOADS, ThreadPool
from mxr_registry.storage.store import Store

SURVEYS_WAITING = 64
"""Surveys that wait; beyond it 503."""

LOG_PAGES = 20
"""Pages of logs that are held at one time, while they are read and until their clients take them."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work with. `create_app` makes it once."""

    settings: RegistrySettings
    authenticator: Authenticator
    identity: RegistryIdentity
    notifier: JobNotifier
    db: Database
    store: Store
    inspect: Inspect
    describe_model: DescribeModel
    usage: UsageCounter
    checking: CheckingPool
    downloads: DownloadBuffers
    uploads: UploadSlots
    fleet: FleetMetrics
    probes: Mapping[str, Probe]
    log_places: FairPlaces = field(default_factory=lambda: FairPlaces(LOG_PAGES))
    surveys: CheckingPool = field(default_factory=lambda: CheckingPool(SURVEYS, SURVEYS_WAITING))
    body_threads: ThreadPool = field(default_factory=lambda: ThreadPool(BODIES))
    lease_threads: ThreadPool = field(default_factory=lambda: ThreadPool(LEASES))
    upload_threads: ThreadPool = field(default_factory=lambda: ThreadPool(UPLOADS))
    resolve_threads: ThreadPool = field(default_factory=lambda: ThreadPool(RESOLVES))
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when this process was told to stop: it still serves, but wants no new clients."""

    @property
    def rules(self) -> JobRules:
        """The settings of jobs."""
        return self.settings.rules


async def _services(request: Request) -> Services:
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


async def requester_of(request: Request) -> Requester:
    """Return who sends a request that a `ScopedRoute` has admitted."""
    caller = await caller_of(request)
    return Requester(await address_of(request), caller.principal, caller.is_admin or caller.may((WORK,)))


ServicesDep = Annotated[Services, Depends(_services)]
CallerDep = Annotated[Caller, Depends(caller_of)]
RequesterDep = Annotated[Requester, Depends(requester_of)]
PageQuery = Annotated[PageFilters, Query()]

HEX_PREFIX = "^[0-9a-f]{8,64}$"

ArtifactId = Annotated[
    str,
    Path(
        description="The id of the artifact, or a unique prefix of 8 or more digits.",
        json_schema_extra={"pattern": HEX_PREFIX},
    ),
]
JobId = Annotated[
    str,
    Path(
        description="The id of the job, or a unique prefix of 8 or more digits.",
        json_schema_extra={"pattern": HEX_PREFIX},
    ),
]
WorkerId = Annotated[str, Path(description="The id of the worker.")]
BlobSha256 = Annotated[
    str, Path(description="The sha256 of the bytes in hex.", json_schema_extra={"pattern": "^[0-9a-f]{64}$"})
]
ModelIdentity = Annotated[
    str,
    Path(
        description="The identity of the model: `sha256:` and 64 hex digits.",
        json_schema_extra={"pattern": "^sha256:[0-9a-f]{64}$"},
    ),
]
FileName = Annotated[str, Path(description="The name of the file in the manifest.")]
LockName = Annotated[str, Path(description="The name of the lock.")]


class DirectRoute(ScopedRoute):
    """A route whose function takes `message`, `services` and `caller` only, and is called without FastAPI's injection.

    Only `POST /v1/resolve` uses it, which a whole fleet calls at the same time: the injection takes as long as the
    resolve itself. `bench/bench_resolve.py` guards the throughput; remove this class if it no longer needs it.
    """

    def get_injecting_handler(self) -> Handler:
        """Return the handler, which awaits the function."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            assert isinstance(request, DecodedRequest)
            services, caller = await _services(request), await caller_of(request)
            found: Response = await endpoint(message=request.message, services=services, caller=caller)
            return found

        return handle


def scoped_router(**options: Any) -> APIRouter:
    """Return a router whose routes check the token of each request."""
    return APIRouter(route_class=ScopedRoute, **options)


def created(response: Response, path: str, *, new: bool = True) -> None:
    """Answer 201 with `Location` for an object that was made, and 200 for one that was there."""
    if new:
        response.status_code = HTTPStatus.CREATED
        response.headers["location"] = quote(path, safe=":/")
