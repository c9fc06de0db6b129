"""Routes that check the token of a request before anything else of it is read.

A reply with status 405 names the methods of a path (`allowed_methods`): Starlette names those of the first route that
has the path, and takes the last word of a fixed path such as `/v1/jobs/claim` for an id where the method is another
one. Source of the rules: RFC 9110, section 15.5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.routing import APIRoute

from mxr.errors import UnauthenticatedError
from mxr_registry.access.authentication import Authenticator, own_caller, require, token_of
from mxr_registry.access.scopes import Caller, scopes_of

from .threads import ThreadPool


def fixed_path(router: APIRouter, path: str, *others: str) -> None:
    """Answer 405 to the methods `others`, with which a route that has an id in its path would take this one."""

    async def refuse() -> None:
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)

    router.add_api_route(path, refuse, methods=list(others), include_in_schema=False, name=REFUSAL)


REFUSAL = "refuse_method"


def allowed_methods(routers: Iterable[APIRouter], path: str) -> list[str]:
    """Return the methods of a path in order. A fixed path has those of its own routes only."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    found = [route for route in routes if route.path == path] or [
        route for route in routes if route.path_regex.match(path)
    ]
    return sorted({method for route in found if route.name != REFUSAL for method in route.methods or ()})


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ScopedRoute(APIRoute):
    """A route whose operation is in the table of scopes: without an entry there, the application cannot be built."""

    def get_route_handler(self) -> Handler:
        """Return the handler, which checks the token first."""
        handle = self.get_unscoped_handler()
        if self.name == REFUSAL:
            return handle
        scopes = scopes_of(self.operation_id or "")
        if not scopes:
            return handle

        async def checked(request: Request) -> Response:
            request.scope["mxr.scopes"] = scopes
            request.scope["mxr.caller"] = await admit(request, scopes)
            return await handle(request)

        return checked

    def get_unscoped_handler(self) -> Handler:
        """Return the handler of a request that is admitted."""
        return super().get_route_handler()


async def admit(request: Request, scopes: tuple[str, ...]) -> Caller:
    """Return the caller of a request, who has one of these scopes. Raises `UnauthenticatedError`, `NotAllowedError`."""
    own = own_caller(request.scope)
    if own is not None:
        require(own, scopes)
        return own
    authenticator = request.app.state.authenticator
    assert isinstance(authenticator, Authenticator)
    try:
        token = token_of(request.scope["headers"])
        known = authenticator.at_once(token)
        if known is None:
            threads = request.app.state.services.resolve_threads
            assert isinstance(threads, ThreadPool)
            known = await threads.run(authenticator.read, token)
        caller = authenticator.check(token, known)
    except UnauthenticatedError as problem:
        authenticator.log_refusal(await address_of(request), problem)
        raise
    require(caller, scopes)
    return caller


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
