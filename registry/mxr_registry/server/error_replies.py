"""Replies with errors, for what routes raise and for what no route answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from mxr.display.logs import RepeatedLines
from mxr.errors import (
    MEDIA_TYPE,
    InterruptionError,
    MxrError,
    NoSuchArtifactError,
    NoSuchBlobError,
    NotFoundError,
    UsageError,
)
from mxr.protocol.artifacts import RECALLS_HEADER, REGISTRY_HEADER
from mxr_registry import counters
from mxr_registry.artifacts import blobs, lost, recalls

from . import request_id
from .request_id import error_body
from .scoped import allowed_methods

log = logging.getLogger("mxr_registry")
repeated = RepeatedLines(log)

REQUESTED = ("/v1/resolve", "/v1/candidates")
"""Where an artifact is asked for."""


def error_reply(error: MxrError, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with an error. `status`: that of its class, or what HTTP has for this case.

    It has `Retry-After` where waiting helps: what the error says, or else a second.
    """
    if status == HTTPStatus.UNAUTHORIZED:
        # Source: RFC 6750, section 3.
        headers = {"www-authenticate": 'Bearer realm="mxr"', **(headers or {})}
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = 1.0 if error.retry_after is None else error.retry_after
        headers = {"retry-after": f"{seconds:.0f}", **(headers or {})}
    return Response(error_body(error, status), status, headers, media_type=MEDIA_TYPE)


def reply_to_mxr_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, MxrError)
    # Not where a client left: any number of clients may do so.
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(problem, InterruptionError):
        repeated.warning(problem.message, f"{request.method} {request.url.path}: {problem.message}")
    headers = {}
    if isinstance(problem, NoSuchArtifactError) and request.url.path in REQUESTED:
        counters.MISSES.labels(problem.context["reason"]).inc()
        # Who gets no program hears of recalls, too: a copy of it may be here.
        headers[RECALLS_HEADER] = str(problem.context.pop(recalls.RECALLS, 0))
    if isinstance(problem, NoSuchBlobError) and problem.context.get(blobs.LOST):
        repeated.warning(problem.message, problem.message)
        # Where this fails, the next reader of these bytes notes it.
        with suppress(MxrError):
            services = request.app.state.services
            lost.note_lost(services.db, services.store, problem.context["missing"][0])
    return error_reply(problem, problem.status, headers)


def reply_to_invalid_parameter(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()[0]
    where = ".".join(map(str, found["loc"][1:]))
    if found["type"] == "extra_forbidden":
        fields = request.scope["route"].dependant.query_params
        known = [
            name for field in fields for name in getattr(field.field_info.annotation, "model_fields", [field.name])
        ]
        hint = f"Use one of these: {', '.join(sorted(known))}."
        return error_reply(UsageError(f"{where[:40]}: unknown parameter.", hint=hint), 422)
    hint = f"Correct {where[:80]}; `/docs` describes the parameters of each operation."
    return error_reply(UsageError(f"{where}: {found['msg']}."[:500], hint=hint), 422)


def reply_to_http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = f"{request.method} {request.url.path[:200]}"
    hint = "`/openapi.json` lists the routes; check the URL of the registry."
    error: MxrError = UsageError(f"{path}: {problem.detail}.", hint=hint)
    headers = dict(problem.headers or {})
    if problem.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(allowed_methods(request.app.routes, request.url.path))
    if problem.status_code == HTTPStatus.NOT_FOUND:
        error = NotFoundError(f"No such route: {path}.", hint=hint)
    return error_reply(error, problem.status_code, headers)


def reply_to_bug(request: Request, problem: Exception) -> Response:
    id = request_id.current()
    log.error("internal error in %s %s", request.method, request.url.path, exc_info=problem)
    error = MxrError(
        f"Internal error in the registry in request {id}.",
        hint=f"Report it with the lines of the registry's log that name request {id}.",
    )
    # The server makes this reply outside of the middleware.
    uuid = request.app.state.services.identity.known
    headers = {request_id.HEADER.decode(): id} | ({REGISTRY_HEADER: uuid} if uuid else {})
    return error_reply(error, error.status, headers)
