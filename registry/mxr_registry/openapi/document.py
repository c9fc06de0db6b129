"""Builds the OpenAPI document of the application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mxr.errors import BY_CODE, MAX_REQUEST_ID, TYPE
from mxr.protocol.access import SCOPES

from .fields import Enumeration
from .operations import NAMED, TOKEN_SCHEME

DESCRIPTION = """
A request says what a program must satisfy: `{"key": {...}, "constraints": {...}}`. `POST /v1/resolve` finds the
program, and `POST /v1/jobs` has it compiled. Errors are problem details (RFC 9457); decide by their `code`. Lists are
`{"items": [...], "next": ...}`: pass `next` as `after`. Times are RFC 3339; durations are seconds. Clients should
ignore fields that they do not know. A token needs one of the scopes that an operation names.
""".strip()

SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "mxr_<id>_<secret>",
    "description": "A token. Its scopes: " + "; ".join(f"`{scope}` may {text}" for scope, text in SCOPES.items()) + ".",
}

TAGS = {
    "resolve": "Find the program for a request.",
    "artifacts": "Publish, list and download programs.",
    "locks": "Pin artifacts, so that they stay.",
    "blobs": "The bytes of models and programs, named by their sha256.",
    "models": "The models that can be compiled.",
    "jobs": "Have programs compiled, and follow it. Workers claim jobs and report on them.",
    "pipelines": "Many programs at once.",
    "workers": "What can compile.",
    "tokens": "Who may do what.",
    "health": "Probes and metrics.",
}


ERROR_CODE = Enumeration("ErrorCode", "Which error it is.", tuple(sorted(BY_CODE)))


def problem_schema() -> dict[str, Any]:
    """Return the schema of an error."""
    text = {"type": "string"}
    return {
        "title": "Problem",
        "description": "An error (RFC 9457).",
        "type": "object",
        "properties": {
            "type": text | {"description": "The code as a URI.", "pattern": f"^{TYPE}[a-z_]+$"},
            "title": text | {"description": "The code as a text."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."},
            "detail": text | {"description": "What is wrong, for people."},
            "code": NAMED.of(ERROR_CODE) | {"description": "Which error it is. A program should decide by it."},
            "hint": text | {"description": "What to do, for people."},
            "retry": {"type": "boolean", "description": "The same request can succeed later."},
            "context": {
                "type": "object",
                "additionalProperties": True,
                "description": "Facts for programs, which depend on the code.",
            },
            "request_id": text | {"maxLength": MAX_REQUEST_ID, "description": "As in `X-Request-ID`."},
        },
        "required": ["type", "title", "status", "detail", "code", "hint", "retry", "context", "request_id"],
        "examples": [
            {
                "type": f"{TYPE}not_found",
                "title": "Not found",
                "status": 404,
                "detail": "There is no artifact 0123456789ab.",
                "code": "not_found",
                "hint": "`GET /v1/artifacts` lists the artifacts.",
                "retry": False,
                "context": {},
                "request_id": "cbcac2b26fbb951f",
            }
        ],
    }


def openapi_document(app: FastAPI, root_path: str = "") -> dict[str, Any]:
    """Return the document of an application, which has all its routes by now.

    `root_path`: the path of a proxy below which clients reach it.
    """
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        summary=app.description,
        description=DESCRIPTION,
        routes=app.routes,
        servers=[{"url": root_path}] if root_path else None,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    bodies = [
        each["requestBody"] for path in document["paths"].values() for each in path.values() if "requestBody" in each
    ]
    NAMED.require_what_replies_have(bodies)
    problem = problem_schema()
    named = NAMED.named | {"Problem": problem}
    schemes = {TOKEN_SCHEME: SCHEME}
    return document | {"components": {"schemas": dict(sorted(named.items())), "securitySchemes": schemes}}
