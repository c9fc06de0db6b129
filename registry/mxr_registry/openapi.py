"""The OpenAPI document of the registry: FastAPI makes it, and this module adds what all operations have in common.

Types of messages become schemas, and their sentences stand on their fields (`mxr.util.doc`). Routes say what else they
answer by the constants and functions of this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from mxr.artifact import field_docs, matching, recall, records, target
from mxr.artifact.attributes import ALLOWANCES, LIBRARIES
from mxr.artifact.key import Key
from mxr.consumers.ort.recording_form import BY_WORKERS
from mxr.errors import BY_CODE, MAX_REQUEST_ID, MEDIA_TYPE, NotFoundError
from mxr.protocol import access, jobs
from mxr.protocol.access import SCOPES
from mxr.protocol.problems import Problem
from mxr.trust import rules
from mxr.util.codec import HUGE

Json = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

DESCRIPTION = """
A request says what a program must satisfy: `{"key": {...}, "constraints": {...}}`. `POST /v1/resolve` finds the
program, and `POST /v1/jobs` has it compiled. Errors are problem details (RFC 9457); decide by their `code`. Lists are
`{"items": [...], "next": ...}`: pass `next` as `after`. Times are RFC 3339; durations are seconds. Clients should
ignore fields that they do not know. A token needs one of the scopes that an operation names.
""".strip()

TAGS = {
    "resolve": "Find the program for a request.",
    "artifacts": "Publish, list and download programs.",
    "statements": "What was signed of artifacts, and with which keys.",
    "locks": "Pin artifacts, so that they stay.",
    "tags": "Names for locks, which hosts follow.",
    "blobs": "The bytes of models and programs, named by their sha256.",
    "models": "The models that can be compiled.",
    "jobs": "Have programs compiled, and follow it. Workers claim jobs and report on them.",
    "pipelines": "Many programs at once.",
    "workers": "What can compile.",
    "tokens": "Who may do what.",
    "health": "Probes and metrics.",
}

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
    410: "The artifact was recalled.",
    416: "The range is beyond the end of the file.",
    422: "The request, or a document in it, breaks a rule.",
    429: "This client has too much checked at the same time.",
    431: "The header is too large, or has too many fields.",
    500: "A bug in the registry, or damaged bytes in its store.",
    503: "A temporary failure.",
    507: "The disk is full.",
}
ALWAYS = (400, 403, 408, 413, 414, 415, 422, 431, 500, 503)
"""Errors of every operation. With a token, also 401; with a body, also 507."""

ENUMERATIONS: Mapping[tuple[str, ...], tuple[str, str]] = {
    target.VENDORS: ("Vendor", "The vendor of a GPU."),
    target.KINDS: ("TargetKind", "`gpu`, or `ref` for the reference target, which runs on any CPU."),
    target.TUNINGS: ("Tuning", "How thoroughly MIGraphX tunes a program."),
    field_docs.FEATURE_STATES: ("Feature", "A setting of a GPU: on or off."),
    field_docs.NEEDED_STATES: ("NeededFeature", "A setting of a GPU that a program needs: on, off or any."),
    LIBRARIES: ("Library", "A library that programs call."),
    tuple(ALLOWANCES): ("Allowance", "A difference that a request can accept."),
    jobs.STATES: ("JobState", "The state of a job."),
    jobs.FAILURE_KINDS: ("FailureKind", "What another attempt can be expected to do."),
    jobs.WORKER_STATES: ("WorkerState", "The state of a worker."),
    matching.ORIGINS: ("Origin", "Who made an artifact."),
    matching.SERVE_RULES: ("ServeRule", "Which artifacts answer requests."),
    rules.KEY_STATES: ("KeyState", "Whether a key signs, and whether what it signed counts."),
    recall.WORDS: ("RecallWord", "What is said of an artifact that must no longer be used."),
    records.EVIDENCE: ("ModelEvidence", "How the model of an artifact is known."),
    tuple(SCOPES): ("Scope", "What a token allows."),
    access.STATES: ("TokenState", "The state of a token."),
    BY_WORKERS: ("OrtGeneration", "A generation of the file names of ONNX Runtime's MIGraphX provider."),
    tuple(sorted(BY_CODE)): ("ErrorCode", "Which error it is."),
}
"""The texts of which a field has one, with the name of their type: generators of clients make one type of each."""

VALUE_NAMES = {"+": "ON", "-": "OFF", "any": "ANY"}
"""Names of values that are no words, for generators of clients."""

_MODEL, _INPUTS = f"sha256:{field_docs.SHA}", (("x", (1, 3, 224, 224)),)
_KEY = Key(_MODEL, "gpu", "2.15", _INPUTS, "amd", "gfx942", "7.2", precision=("fp16",)).to_json()
_REQUEST: Json = {"key": _KEY, "constraints": {"num_cu": 304}}
EXAMPLES: Mapping[str, Json] = {
    "Key": _KEY,
    "Request": _REQUEST,
    "CompileRequest": _REQUEST | {"priority": 10},
    "Problem": NotFoundError("There is no artifact 0123456789ab.").to_json(404) | {"request_id": "cbcac2b26fbb951f"},
}


def _headers(texts: Mapping[str, str]) -> Json:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


_ETAG = {"ETag": "The entity tag."}
_RETRY_AFTER = {"Retry-After": "Seconds after which the same request can succeed."}
_ERROR_HEADERS = {
    401: {"WWW-Authenticate": "`Bearer`."},
    416: {**_ETAG, "Accept-Ranges": "`bytes`.", "Content-Range": "The size of the file."},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_EVERY_HEADER = {"X-Request-ID": "The id of the request.", "MXR-Registry": "The UUID of the registry's database."}
_REQUEST_ID = {
    "name": "X-Request-ID",
    "in": "header",
    "description": "Stands in the reply, in an error, and in each line that the registry logs for the request. Up to "
    f"{MAX_REQUEST_ID} letters, digits and `._:/+=@-`; the registry makes another one in place of anything else.",
    "schema": {"type": "string"},
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FILE = _headers({**_ETAG, "Accept-Ranges": "`bytes`.", "Content-Length": "The size in bytes."})

LOCATION = _headers({"Location": "The path of the object."})
CREATED: Responses = {201: {"description": "It is new.", "headers": LOCATION}}
STORED: Responses = {200: {"description": "It was there already; the reply shows it as it is now."}, **CREATED}
TAGGED: Responses = {
    200: {"headers": _headers(_ETAG)},
    304: {"description": "It still has this entity tag.", "headers": _headers(_ETAG)},
}
DOWNLOAD: Responses = {
    200: {"description": "All bytes.", "headers": _FILE, "content": _BYTES},
    206: {"description": "The range.", "headers": _FILE | _headers({"Content-Range": "The range."}), "content": _BYTES},
    304: TAGGED[304],
}
BODY_OF_BYTES: Json = {"requestBody": {"required": True, "content": _BYTES}}


def errors(*statuses: int) -> Responses:
    """Return the replies for errors that an operation can have, in addition to those that each can have."""
    replies: Responses = {}
    for status in statuses:
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        headers = _headers(_ERROR_HEADERS.get(status, {}))
        replies[status] = {"description": ERRORS[status], "headers": headers, "content": content}
    return replies


def text_reply(description: str, media_type: str = "text/plain", **headers: str) -> Responses:
    """Return the reply of an operation that answers with text. `headers`: by name, where `_` is `-`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    content = {media_type: {"schema": {"type": "string"}}}
    return {200: {"description": description, "headers": _headers(named), "content": content}}


def describe(endpoint: Any, options: Json, kind: Any, scopes: Iterable[str], *, has_body: bool) -> Json:
    """Return the options of a route, completed by what the document says of each operation.

    Its summary is the first paragraph of its docstring. `kind`: the message of its successes; None: it has none.
    """
    summary, _, text = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")
    extra = dict(options.get("openapi_extra") or {})
    has_body = has_body or "requestBody" in extra
    extra["parameters"] = [*extra.get("parameters", ()), _REQUEST_ID]
    extra["security"] = [{"token": [scope]} for scope in scopes]
    always = errors(*ALWAYS, *([401] if scopes else []), *([507] if has_body else []))
    found: Responses = {**always, **(options.get("responses") or {})}
    success = first_paragraph(kind.__doc__) if kind is not None else "It succeeded."
    for status, reply in found.items():
        if int(status) < 300 and kind is not None:
            reply = {"model": kind, "description": success, **reply}
        found[status] = {**reply, "headers": {**_headers(_EVERY_HEADER), **reply.get("headers", {})}}
    usual = min((int(status) for status in found if int(status) < 300), default=200)
    if usual not in found:
        found[usual] = {"headers": _headers(_EVERY_HEADER)}
    return {
        **options,
        "operation_id": endpoint.__name__,
        "summary": summary.removesuffix("."),
        "description": text or summary,
        "status_code": usual,
        "response_description": found[usual].get("description", success),
        "responses": dict(sorted(found.items())),
        "openapi_extra": extra,
    }


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring as one line. The others explain the fields, which have their own."""
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


def openapi_document(app: FastAPI, root_path: str = "") -> Json:
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
        separate_input_output_schemas=False,
    )
    operations = [each for path in document["paths"].values() for each in path.values()]
    schemas = document["components"]["schemas"] | {"Problem": TypeAdapter(Problem).json_schema()}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    named = {name: _message(name, _tidy(schema)) for name, schema in schemas.items()}
    sent = set(_reached([each["requestBody"] for each in operations if "requestBody" in each], named))
    for name in named.keys() - sent:
        # A reply has all of its fields; in a request, those with a default can be left out.
        named[name]["required"] = list(named[name]["properties"])
    for values, (name, text) in ENUMERATIONS.items():
        varnames = [VALUE_NAMES[each] for each in values if each in VALUE_NAMES]
        named[name] = {"title": name, "description": text, "type": "string", "enum": list(values)}
        named[name] |= {"x-enum-varnames": varnames} if len(varnames) == len(values) else {}
    for each in operations:
        for parameter in each.get("parameters", ()):
            parameter["schema"] = _parameter_schema(parameter["schema"])
    about = "; ".join(f"`{scope}` may {text}" for scope, text in SCOPES.items())
    text = f"A token. Its scopes: {about}."
    scheme = {"type": "http", "scheme": "bearer", "bearerFormat": "mxr_<id>_<secret>", "description": text}
    return document | {"components": {"schemas": dict(sorted(named.items())), "securitySchemes": {"token": scheme}}}


def _message(name: str, schema: Json) -> Json:
    described = {"title": name, "description": first_paragraph(schema.get("description"))}
    examples = {"examples": [EXAMPLES[name]]} if name in EXAMPLES else {}
    return {**schema, **described, "additionalProperties": False, "required": schema.get("required", []), **examples}


def _tidy(schema: Any) -> Any:
    """Return a schema of pydantic as generators of clients understand it best.

    Without the titles and defaults of fields; what can be null has a list of types; sets of texts have names.
    """
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {name: _tidy(each) for name, each in schema.get("properties", {}).items()}
    found = {name: _tidy(each) for name, each in schema.items() if name not in ("title", "default", "properties")}
    found |= {name: int(found[name]) for name in ("minimum", "maximum") if isinstance(found.get(name), float)}
    found |= {"properties": fields} if "properties" in schema else {}
    kinds = found.get("anyOf", [])
    null = {"type": "null"} in kinds
    others = [each for each in kinds if each != {"type": "null"}]
    if null and len(others) == 1 and isinstance(others[0].get("type"), str):
        del found["anyOf"]
        found = {**others[0], **found, "type": [others[0]["type"], "null"]}
    if tuple(found.get("enum", ())) in ENUMERATIONS:
        reference = {"$ref": "#/components/schemas/" + ENUMERATIONS[tuple(found.pop("enum"))][0]}
        nullable = "null" in found.pop("type", ())
        found = {**({"anyOf": [reference, {"type": "null"}]} if nullable else reference), **found}
    if "integer" in found.get("type", ()) and not found.get("enum"):
        found = {"minimum": -HUGE, "maximum": HUGE, **found}
    return found


def _parameter_schema(schema: Json) -> Json:
    """Return the schema of a parameter, which is never null and has a default."""
    found: Json = _tidy(schema)
    kinds = found.get("type")
    found |= {"type": kinds[0]} if isinstance(kinds, list) else {}
    return found | ({"default": schema["default"]} if schema.get("default") is not None else {})


def _reached(part: Any, named: Mapping[str, Json], known: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the names of the schemas to which a part of the document leads."""
    if isinstance(part, list):
        for each in part:
            yield from _reached(each, named, known)
    elif isinstance(part, Mapping):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name in named and name not in known:
            yield name
            yield from _reached(named[name], named, known | {name})
        yield from _reached(list(part.values()), named, known)
