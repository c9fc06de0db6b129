"""What routes ask for: the rooms of the service, the caller, a bounded body; and the one form of a JSON reply.

Dependencies are `async` though nothing in them waits, because FastAPI would send each plain one to a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from mxr.errors import Usage
from mxr.util import codec
from mxr_registry.artifacts.models import Look
from mxr_registry.artifacts.publication import Inspect
from mxr_registry.artifacts.usage import UsageCounter
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.session import Database
from mxr_registry.storage.store import Store

from .caller import Caller, caller_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes work with, made once by `create_app`."""

    settings: RegistrySettings
    db: Database
    store: Store
    inspect: Inspect
    look: Look
    tally: UsageCounter


async def _rooms(request: Request) -> Services:
    found = request.app.state.rooms
    assert isinstance(found, Services)
    return found


async def _caller(request: Request) -> Caller:
    return caller_of(request.headers.get("authorization"))


async def _body(request: Request) -> bytes:
    found = await _rooms(request)
    most = found.settings.limits.body
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Usage(f"The body is larger than {most} bytes.", hint="Send less at once.")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


InServices = Annotated[Services, Depends(_rooms)]
By = Annotated[Caller, Depends(_caller)]
Body = Annotated[bytes, Depends(_body)]


def read(kind: type[T], body: bytes) -> T:
    """The value of a request's JSON body. Raises `Usage` that names the field."""
    return codec.decode(kind, codec.parse(body, "The body"))


def reply(text: str, status: int = 200) -> Response:
    """A reply whose JSON is ready."""
    return Response(text.encode(), status, media_type="application/json")


class DirectRoute(APIRoute):
    """A route whose endpoint takes (body, rooms, caller) and is called with them, past FastAPI's solver.

    For the one path that a whole fleet takes at once: solving the dependencies costs more than all of the resolve.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that reads the body and works in a thread."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            body, rooms, caller = await _body(request), await _rooms(request), await _caller(request)
            found = await run_in_threadpool(endpoint, body, rooms, caller)
            assert isinstance(found, Response)
            return found

        return handle
