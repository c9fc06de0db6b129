"""What the OpenAPI document says of one operation: its name, its body, and each status with its body and headers.

`operation` returns the arguments of a route's decorator, and collects the schemas that the operations need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from mxr.errors import MAX_REQUEST_ID, MEDIA_TYPE
from mxr_registry.access.scopes import scopes_of

from .schemas import SCHEMAS, Schemas

JSON, BYTES, TEXT, EVENTS = "application/json", "application/octet-stream", "text/plain", "text/event-stream"

NAMED = Schemas()
"""The schemas of all operations."""

PROBLEM = {"$ref": SCHEMAS + "Problem"}

Parameter = Mapping[str, Any]


def query(name: str, description: str, **schema: Any) -> Parameter:
    """Return a query parameter that the route reads itself."""
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string", **schema}}


def header(name: str, description: str, **schema: Any) -> Parameter:
    """Return a header of the request."""
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string", **schema}}


CURSOR = "^[0-9A-Za-z_-]+$"


def limit_query(most: int, default: int) -> Parameter:
    """Return the parameter `limit` of a list."""
    return query(
        "limit", "How many items a page has at most.", type="integer", minimum=1, maximum=most, default=default
    )


AFTER = query("after", "`next` of the previous page of this list.", pattern=CURSOR)
ARTIFACT_FILTERS = (
    query("model", "The identity of the model."),
    query("kind", "`gpu` or `ref`."),
    query("vendor", "`amd` or `hygon`."),
    query("arch", "The GPU architecture."),
    query("migraphx", "The version of MIGraphX, MAJOR.MINOR."),
    query("rocm", "The version of ROCm, MAJOR.MINOR."),
)
REQUEST_ID = header(
    "X-Request-ID",
    "Stands in the reply, in an error, and in each line that the registry logs for the request. Up to "
    f"{MAX_REQUEST_ID} letters, digits and `._:/+=@-`; the registry makes another one in place of anything else.",
)
IF_NONE_MATCH = header("If-None-Match", "An entity tag: 304 says that it is still the one of the object.")
RANGES = (
    IF_NONE_MATCH,
    header("Range", "One range of bytes, such as `bytes=0-1048575`."),
    header("If-Range", "An entity tag: the range counts only if it is the one of the file."),
)

ETAG = {"ETag": "The entity tag."}
LOCATION = {"Location": "The path of the object."}
RETRY_AFTER = {"Retry-After": "Seconds after which the same request can succeed."}
ERROR_HEADERS = {
    401: {"WWW-Authenticate": "`Bearer`."},
    416: {**ETAG, "Accept-Ranges": "`bytes`.", "Content-Range": "The size of the file."},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
DOWNLOAD = {**ETAG, "Accept-Ranges": "`bytes`.", "Content-Length": "The size in bytes."}

ERRORS: dict[int, str] = {
    400: "The request is not HTTP as the registry reads it, or its body is not JSON.",
    401: "The request has no valid token.",
    403: "The request comes from a foreign page or names a foreign host, or its token does not allow the operation.",
    404: "There is no such object.",
    408: "The request did not arrive in time.",
    409: "The request contradicts what the registry has.",
    413: "The body is too large.",
    414: "The path or the query is too long.",
    415: "The body is neither JSON nor bytes, as this path takes them.",
    416: "The range is beyond the end of the file.",
    422: "The request, or a document in it, breaks a rule.",
    429: "This client has too much checked at the same time.",
    431: "The header is too large, or has too many fields.",
    500: "A bug in the registry, or damaged bytes in its store.",
    503: "A temporary failure.",
    507: "The disk is full.",
}
ALWAYS = (400, 403, 408, 413, 414, 415, 422, 431, 500, 503)
WITH_TOKEN = (401,)
WITH_BODY = (507,)

TOKEN_SCHEME = "token"
"""The name of the security scheme."""


@dataclass(frozen=True, slots=True)
class Success:
    """A success: what the status means here, the type of its body, and its headers with their meaning.

    `kind`: a dataclass, or the JSON schema of a body that has none; None for a reply without a body.
    """

    description: str
    kind: Any = None
    headers: Mapping[str, str] | None = None
    media_type: str = JSON


def operation(
    name: str,
    answers: Mapping[int, Success],
    *,
    takes: Any = None,
    errors: Iterable[int] = (),
    parameters: Iterable[Parameter] = (),
) -> dict[str, Any]:
    """Return the arguments of a route's decorator that describe it, with the scopes of which its caller needs one.

    `name`: the operationId, from which generators of clients make the name of a function. `takes`: the dataclass of the
    body, or `BYTES`. `errors`: statuses in addition to those that every operation can have.
    """
    scopes = scopes_of(name)
    statuses = {*ALWAYS, *errors, *(WITH_TOKEN if scopes else ()), *(WITH_BODY if takes is not None else ())}
    responses = {status: _answer(answer) for status, answer in answers.items()}
    extra: dict[str, Any] = {"parameters": [*parameters, REQUEST_ID]}
    extra["security"] = [{TOKEN_SCHEME: [scope]} for scope in scopes]
    if takes is not None:
        content = {BYTES: _bytes()} if takes == BYTES else {JSON: {"schema": _schema(takes)}}
        extra["requestBody"] = {"required": True, "content": content}
    return {
        "operation_id": name,
        "status_code": min(answers),
        "response_class": Response,
        "response_description": answers[min(answers)].description,
        "responses": responses | {status: _error(status) for status in sorted(statuses)},
        "openapi_extra": extra,
    }


def _answer(answer: Success) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description, "headers": _headers(answer.headers or {})}
    if answer.media_type == BYTES:
        found["content"] = {BYTES: _bytes()}
    elif answer.kind is not None:
        found["content"] = {answer.media_type: {"schema": _schema(answer.kind)}}
    return found


def _error(status: int) -> dict[str, Any]:
    return {
        "description": ERRORS[status],
        "headers": _headers(ERROR_HEADERS.get(status, {})),
        "content": {MEDIA_TYPE: {"schema": dict(PROBLEM)}},
    }


def _headers(more: Mapping[str, str]) -> dict[str, Any]:
    names = {"X-Request-ID": "The id of the request.", "MXR-Registry": "The UUID of the registry's database."}
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in {**names, **more}.items()}


def _schema(kind: Any) -> dict[str, Any]:
    return dict(kind) if isinstance(kind, Mapping) else NAMED.of(kind)


def _bytes() -> dict[str, Any]:
    return {"schema": {"type": "string", "format": "binary"}}
