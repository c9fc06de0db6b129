"""Sign in with a token or by a link that works once, and sign out.

The forms are the only routes that take a form; `server.request_guard` lets none through that another page sent.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.errors import MxrError, TooLargeError, UnauthenticatedError, UsageError
from mxr_registry.access import sessions
from mxr_registry.access.authentication import not_valid
from mxr_registry.routes.deps import ServicesDep
from mxr_registry.server.scoped import address_of

from .site import LOCAL_PATH, cookie_name, page_router, render, secret_in, see_other

router = page_router()

MAX_FORM = 4 << 10
"""Bytes of the form with a token."""

Next = Annotated[str, Query(max_length=600)]


@router.get("/sign-in")
async def show_sign_in(request: Request, next: Next = "") -> Response:
    """The form."""
    return _form(request, next)


@router.post("/sign-in")
async def sign_in(request: Request, services: ServicesDep) -> Response:
    """Begin a session with the token of the form."""
    form = await read_form(request, MAX_FORM)
    token, wanted, authenticator = form.get("token", "").strip(), form.get("next", ""), services.authenticator
    try:
        known = await services.resolve_threads.run(authenticator.read, token)
        caller = authenticator.check(token, known, request.scope["headers"])
    except UnauthenticatedError as problem:
        authenticator.log_refusal(await address_of(request), problem)
        return _form(request, wanted, problem)

    def begin() -> str:
        with services.db.writing() as session:
            sessions.end(session, secret_in(request))
            return sessions.begin(session, caller.token)

    return _signed_in(request, await run_in_threadpool(begin), wanted)


@router.get("/sign-in/{secret}")
async def sign_in_by_link(secret: str, request: Request, services: ServicesDep) -> Response:
    """Begin a session by a link of `mxr open`."""

    def begin() -> str | None:
        with services.db.writing() as session:
            return sessions.begin_by_link(session, secret)

    found = await run_in_threadpool(begin) if sessions.SECRET.fullmatch(secret) else None
    if found is None:
        problem = UnauthenticatedError("This link was used, or is older than a minute.", hint="Run `mxr open` again.")
        services.authenticator.log_refusal(await address_of(request), not_valid())
        return _form(request, "", problem)
    return _signed_in(request, found, "")


@router.post("/sign-out")
async def sign_out(request: Request, services: ServicesDep) -> Response:
    """End the session."""
    await read_form(request, MAX_FORM)

    def end() -> None:
        with services.db.writing() as session:
            sessions.end(session, secret_in(request))

    await run_in_threadpool(end)
    response = see_other("/sign-in")
    response.delete_cookie(cookie_name(request), **_cookie(request))
    return response


async def read_form(request: Request, most: int) -> dict[str, str]:
    """Return the fields of a form of at most so many bytes. Raises `UsageError`, `TooLargeError`."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLargeError(f"The form has more than {most} bytes.", hint="Send less text.")
        parts.append(part)
    body = b"".join(parts)
    try:
        return dict(await run_in_threadpool(lambda: parse_qsl(body.decode("ascii"), max_num_fields=20)))
    except ValueError:
        raise UsageError("The form cannot be read.", hint="Use the page that the registry serves.") from None


def _form(request: Request, wanted: str, problem: MxrError | None = None) -> Response:
    found: dict[str, Any] = {"next": wanted if LOCAL_PATH.fullmatch(wanted) else "", "problem": problem}
    return render(request, "sign_in.html", found, status=401 if problem else 200)


def _signed_in(request: Request, secret: str, wanted: str) -> Response:
    response = see_other(wanted if LOCAL_PATH.fullmatch(wanted) else "/")
    response.set_cookie(cookie_name(request), secret, max_age=int(sessions.SESSION_SECONDS), **_cookie(request))
    return response


def _cookie(request: Request) -> dict[str, Any]:
    secure = request.url.scheme == "https"
    return {"path": "/", "httponly": True, "samesite": "lax", "secure": secure}
