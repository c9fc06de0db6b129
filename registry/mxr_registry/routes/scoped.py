"""Routes that check the token of a request before anything else of it is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from mxr.errors import UnauthenticatedError
from mxr_registry.access.authentication import Authenticator, own_caller, require, token_of
from mxr_registry.access.caller import Caller
from mxr_registry.access.scopes import scopes_of

from .methods import REFUSAL
from .threads import ThreadPool

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
