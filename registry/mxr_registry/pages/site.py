"""What all pages share: templates, headers, who looks, and what is shown where a page cannot be.

A page is rendered from JSON values, which are served as they are at the same address with `.json`. Nothing comes from
another host, no script is inline, and every page works without one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from mxr.errors import MxrError, TemporaryError, UnauthenticatedError, UsageError
from mxr.version import __version__
from mxr_registry import wait_budget
from mxr_registry.access import sessions
from mxr_registry.access.authentication import own_caller, require
from mxr_registry.access.scopes import PAGES, Caller, scopes_of
from mxr_registry.database.trail import ACTOR, Actor
from mxr_registry.json_text import to_json
from mxr_registry.routes.deps import Services
from mxr_registry.server.reply_memory import BEGIN_BUILDING
from mxr_registry.server.request_record import RECORD
from mxr_registry.server.scoped import Handler, address_of, admit

from . import filters

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Without any, browsers send the Origin of a form as `null`.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
PRIVATE = {**SAFE, "cache-control": "no-store", "vary": "Cookie, Authorization"}

VIEWS = (
    ("", "Misses", "show_home"),
    ("matrix", "Matrix", "show_matrix"),
    ("jobs", "Jobs", "show_jobs"),
    ("fleet", "Fleet", "show_fleet"),
    ("explain", "Explain", "show_explain"),
)
"""The views in the navigation: address, name, operation."""

PATIENCE = 3.0
"""Seconds that a page waits for a database that does not answer: somebody looks at it. Programs wait longer."""

LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,500}")
"""A path of this registry, to which a browser may be sent on."""


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. Over TLS, browsers take it from this host alone (`__Host-`: RFC 6265bis)."""
    return "__Host-mxr" if request.url.scheme == "https" else "mxr"


def secret_in(request: Request) -> str:
    """Return the secret of the session; empty without one, and where there are two: one is from another host."""
    name, found = cookie_name(request), []
    for header, value in request.scope["headers"]:
        if header == b"cookie":
            pairs = (each.strip().partition("=") for each in value.decode("latin-1").split(";"))
            found += [secret for key, _, secret in pairs if key == name]
    return found[0] if len(found) == 1 else ""


async def viewer_of(request: Request, scopes: tuple[str, ...]) -> Caller:
    """Return who looks at a page: by its session, or as for the API. Raises as `admit` does."""
    headers = request.scope["headers"]
    if own_caller(request.scope) is not None or any(name == b"authorization" for name, _ in headers):
        return await admit(request, scopes)
    services: Services = request.app.state.services
    secret = secret_in(request)
    caller = await services.resolve_threads.run(sessions.caller_of, services.db, secret) if secret else None
    if caller is None:
        raise UnauthenticatedError("This page needs a session or a token.", hint="Open `/sign-in`.")
    require(caller, scopes)
    ACTOR.set(Actor(caller.principal, await address_of(request)))
    return caller


class PageRoute(APIRoute):
    """A route of a page: its function is in `scopes.PAGES`. Who is not signed in is sent to the form.

    An address that ends in `.json` answers as the API does, errors included.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.scopes = scopes_of(endpoint.__name__)
        super().__init__(path, endpoint, **options | {"include_in_schema": False, "response_model": None})

    def get_route_handler(self) -> Handler:
        """Return the handler, which looks who asks first."""
        handle = super().get_route_handler()
        name, is_json = f"{' '.join(sorted(self.methods or ()))} {self.path}", self.path.endswith(".json")

        async def shown(request: Request) -> Response:
            request.scope[RECORD].route = name
            services: Services = request.app.state.services
            wait_budget.begin(min(services.settings.connections.answer, PATIENCE))
            # A form sends what is not filled in, too.
            filled = parse_qsl(request.scope["query_string"].decode("latin-1"))
            request.scope["query_string"] = urlencode(filled).encode()
            try:
                if self.scopes:
                    caller = request.scope["mxr.caller"] = await viewer_of(request, self.scopes)
                    request.scope[RECORD].principal = caller.principal
                    await request.scope[BEGIN_BUILDING]()
                return await handle(request)
            except UnauthenticatedError:
                if is_json or any(header == b"authorization" for header, _ in request.scope["headers"]):
                    raise
                return to_sign_in(request)
            except (MxrError, RequestValidationError) as problem:
                if is_json:
                    raise
                return await show_problem(request, problem)

        return shown


def page_router() -> APIRouter:
    """Return a router of pages."""
    return APIRouter(route_class=PageRoute)


def to_sign_in(request: Request) -> Response:
    """Send a browser to the form, and remember where it wanted to go."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = f"?{urlencode({'next': wanted})}" if wanted != "/" and LOCAL_PATH.fullmatch(wanted) else ""
    return see_other(f"/sign-in{query}")


def see_other(path: str) -> Response:
    """Send a browser to another page."""
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={**PRIVATE, "location": path})


async def show_problem(request: Request, problem: MxrError | RequestValidationError) -> Response:
    """Show why a page cannot be shown. Where the database does not answer, with the state of each part."""
    if isinstance(problem, RequestValidationError):
        error = problem.errors()[0]
        where = ".".join(str(each) for each in error["loc"][1:])
        problem = UsageError(f"{where}: {error['msg']}."[:300], hint="Correct the address, or begin at the first page.")
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    else:
        status = HTTPStatus(problem.status)
    parts = await reached(request.app.state.services) if isinstance(problem, TemporaryError) else {}
    found = {"title": HTTPStatus(status).phrase, "message": problem.message, "hint": problem.hint, "parts": parts}
    headers = {"retry-after": "5"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return render(request, "problem.html", found, status=status, headers=headers)


async def reached(services: Services) -> dict[str, Any]:
    """Return how this process reaches its parts: `{"database": {"ok","milliseconds","message"},"store":...}`."""
    found, names = {}, ("database", "store")
    failures = await asyncio.gather(*(services.probes[name].failure() for name in names))
    for name, failure in zip(names, failures, strict=True):
        milliseconds = round(services.probes[name].seconds * 1000, 1)
        message = None if failure is None else failure.message
        found[name] = {"ok": failure is None, "milliseconds": milliseconds, "message": message}
    return found


@cache
def environment() -> Environment:
    """Return the templates, compiled once."""
    found = Environment(
        loader=PackageLoader("mxr_registry.pages", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=filters.visible,
    )
    found.filters |= filters.FILTERS
    found.globals |= {"version": __version__}
    return found


def own_url(request: Request) -> str:
    """Return the URL of the registry as the browser knows it, without a slash at the end."""
    services: Services = request.app.state.services
    return f"{request.url.scheme}://{request.url.netloc}{services.settings.root_path}"


def render(
    request: Request,
    template: str,
    data: Mapping[str, Any],
    *,
    status: int = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a page. `data`: the JSON value that it shows; the names in it are those of the template.

    Links are relative to `root`, so that a page works below any path of a proxy.
    """
    services: Services = request.app.state.services
    caller: Caller | None = request.scope.get("mxr.caller")
    allowed = [view for view in VIEWS if caller is not None and caller.may((*PAGES[view[2]], "admin"))]
    shared = {
        "root": "../" * (request.url.path.count("/") - 1) or "./",
        "caller": caller,
        "views": allowed,
        "site": request.url.netloc,
        "url": own_url(request),
        "registry": (services.identity.known or "")[:8],
        "query": dict(request.query_params),
        "link": lambda **changes: _link(request, changes),
    }
    text = environment().get_template(template).render(**shared, **data)
    return Response(text, status, {**PRIVATE, **(headers or {})}, media_type="text/html; charset=utf-8")


def _link(request: Request, changes: Mapping[str, str | None]) -> str:
    """The query of this page with other values; without those that are None, and without the place in a list."""
    query = {**dict(request.query_params), "after": None, **changes}
    return "?" + urlencode({name: value for name, value in query.items() if value is not None}, quote_via=quote)


def plain(message: Any) -> Any:
    """Return the JSON value of a message or of a reply with stored documents: what a template can read."""
    return json.loads(to_json(message))


def as_json(data: Any) -> Response:
    """Return what a page shows as JSON."""
    return Response(to_json(data), media_type="application/json", headers=PRIVATE)
