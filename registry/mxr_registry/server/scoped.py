"""Routes that check the token of a request before anything else of it is read.

A reply with status 405 names the methods of a path (`allowed_methods`): Starlette names those of the first route that
has the path, and takes the last word of a fixed path such as `/v1/jobs/claim` for an id where the method is another
one. Source of the rules: RFC 9110, section 15.5.6.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import is_dataclass
from http import HTTPStatus
from typing import Any, get_args, get_type_hints

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from mxr.errors import TemporaryError, UnauthenticatedError
from mxr.protocol.access import METRICS, WORK
from mxr_registry.access.authentication import Authenticator, KnownToken, own_caller, require, token_of
from mxr_registry.access.scopes import Caller, scopes_of
from mxr_registry.database.trail import ACTOR, Actor
from mxr_registry.json_text import to_json
from mxr_registry.openapi import describe

from .bodies import Body
from .reply_memory import BEGIN_BUILDING, LISTS
from .request_record import RECORD


def fixed_path(router: APIRouter, path: str, *others: str) -> None:
    """Answer 405 to the methods `others`, with which a route that has an id in its path would take this one."""

    async def refuse() -> None:
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)

    router.add_api_route(path, refuse, methods=list(others), include_in_schema=False, name=REFUSAL)


REFUSAL = "refuse_method"


def allowed_methods(routes: Iterable[BaseRoute], path: str) -> list[str]:
    """Return the methods of a path in order. A fixed path has those of its own routes only."""
    known = [route for route in routes if isinstance(route, APIRoute)]
    found = [route for route in known if route.path == path] or [
        route for route in known if route.path_regex.match(path)
    ]
    return sorted({method for route in found if route.name != REFUSAL for method in route.methods or ()})


SOON = 2.0
"""Seconds in which the database says whether a token is still valid, before metrics are served to it."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ScopedRoute(APIRoute):
    """A route whose operation is in the table of scopes: without an entry there, the application cannot be built.

    The name of its function is the operation, the message among its parameters the body, and the message that it
    returns the reply. Body and reply are read and written by `codec`, in a thread where they can be large.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.scopes: tuple[str, ...] = ()
        self.body: Body | None = None
        if options.get("name") != REFUSAL:
            hints = get_type_hints(endpoint, include_extras=True)
            self.scopes = scopes_of(endpoint.__name__)
            returned = hints.pop("return")
            self.body = next((found for hint in hints.values() if (found := Body.of(hint))), None)
            kinds = (options.get("response_model"), returned, *get_args(returned))
            kind = next((each for each in kinds if is_dataclass(each)), None)
            options = describe(endpoint, options, kind, self.scopes, has_body=self.body is not None)
            options |= {"response_model": kind, "response_class": Response if kind is None else JSONResponse}
            options["strict_content_type"] = False
            endpoint = replying(endpoint)
        super().__init__(path, endpoint, **options)
        # FastAPI itself would read a body without bounds, and pass over fields that it does not know.
        if (self.body is None) != (self.body_field is None):
            raise TypeError(f"{path}: the body must be a message, as `server.bodies` reads it.")

    def get_route_handler(self) -> Handler:
        """Return the handler, which checks the token first, and then reads the body."""
        handle = self.get_injecting_handler()
        scopes, body = self.scopes, self.body
        builds = "GET" in (self.methods or ()) and LISTS.fullmatch(self.path) is not None
        name = f"{' '.join(sorted(self.methods or ()))} {self.path}"

        async def checked(request: Request) -> Response:
            request.scope[RECORD].route = name
            request.scope["mxr.scopes"] = scopes
            if scopes:
                request.scope["mxr.caller"] = caller = await admit(request, scopes)
                request.scope[RECORD].principal = caller.principal
            if builds:
                await request.scope[BEGIN_BUILDING]()
            if body is not None:
                request = DecodedRequest(request, await body.read(request, lease=scopes == (WORK,)))
            return await handle(request)

        return checked

    def get_injecting_handler(self) -> Handler:
        """Return the handler of a request that is admitted, which calls the function with its parameters."""
        return super().get_route_handler()


class DecodedRequest(Request):
    """A request whose body is a message: FastAPI takes it as it is."""

    def __init__(self, request: Request, message: Any) -> None:
        super().__init__(request.scope, request.receive)
        self.message = message

    async def body(self) -> Any:
        """Return the message."""
        return self.message

    async def json(self) -> Any:
        """Return the message."""
        return self.message


def replying(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint whose message becomes the reply, with status and headers of its parameter `response`.

    FastAPI would do so by pydantic, whose JSON of a message is not that of the client.
    """

    @functools.wraps(endpoint)
    def answer(**values: Any) -> Response:
        return to_reply(endpoint(**values), values.get("response"))

    @functools.wraps(endpoint)
    async def answer_later(**values: Any) -> Response:
        return to_reply(await endpoint(**values), values.get("response"))

    return answer_later if inspect.iscoroutinefunction(endpoint) else answer


def to_reply(message: Any, known: Response | None = None) -> Response:
    """Return the reply with a message or its JSON value, and with status and headers of a known response.

    A response is returned as it is.
    """
    if isinstance(message, Response):
        return message
    reply = Response(to_json(message), media_type="application/json")
    if known is not None:
        reply.status_code = known.status_code or reply.status_code
        reply.headers.update(known.headers)
    return reply


async def admit(request: Request, scopes: tuple[str, ...]) -> Caller:
    """Return the caller of a request, who has one of these scopes. Raises `UnauthenticatedError`, `NotAllowedError`."""
    own = own_caller(request.scope)
    if own is not None:
        require(own, scopes)
        ACTOR.set(Actor(own.principal, "this host", request.scope["headers"]))
        return own
    services = request.app.state.services
    authenticator: Authenticator = services.authenticator
    try:
        token = token_of(request.scope["headers"])
        known = authenticator.at_once(token)
        if known is None:
            reading = services.resolve_threads.run(authenticator.read, token)
            known = await (reading if scopes[:1] != (METRICS,) else _soon(reading, authenticator.remembered(token)))
        caller = authenticator.check(token, known, request.scope["headers"])
    except UnauthenticatedError as problem:
        authenticator.log_refusal(await address_of(request), problem)
        raise
    require(caller, scopes)
    client = request.scope.get("client")
    ACTOR.set(Actor(caller.principal, client[0] if client else "", request.scope["headers"]))
    return caller


async def _soon(reading: Coroutine[Any, Any, KnownToken], remembered: KnownToken | None) -> KnownToken:
    """Return what the database says of a token; what it said last, where it does not answer soon.

    Metrics tell of a database that is away, so they are served meanwhile.
    """
    task = asyncio.ensure_future(reading)
    if remembered is None:
        return await task
    await asyncio.wait({task}, timeout=SOON)
    if not task.done():
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return remembered
    with suppress(TemporaryError):
        return task.result()
    return remembered


async def admit_again(request: Request) -> None:
    """Check the token of a request that has waited: it may be revoked by now. Raises as `admit` does."""
    await admit(request, request.scope["mxr.scopes"])


async def address_of(request: Request) -> str:
    """Return the address of the client; that of a trusted proxy's client, which uvicorn has put there."""
    return request.client.host if request.client else ""


async def caller_of(request: Request) -> Caller:
    """Return the caller of a request that a `ScopedRoute` has admitted."""
    found = request.scope["mxr.caller"]
    assert isinstance(found, Caller)
    return found
