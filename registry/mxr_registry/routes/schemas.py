"""OpenAPI schemas of request bodies, derived from the dataclasses that decode them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from mxr.artifact.key import Key, KeyDocument
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.partial import PartialDocument, PartialRequest
from mxr.util.codec import shape_of

SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


@dataclasses.dataclass(frozen=True)
class ManifestDocument:
    """The fields of a manifest in JSON."""

    files: tuple[File, ...]
    v: int = 1


WRITTEN_AS: dict[Any, Any] = {Key: KeyDocument, Manifest: ManifestDocument, PartialRequest: PartialDocument}


def request_body(kind: Any) -> dict[str, Any]:
    """Return `openapi_extra` for a route that takes the JSON of `kind` as its body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema(kind)}}}}


def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a dataclass, or of any type hint that `codec.decode` accepts."""
    kind = WRITTEN_AS.get(kind, kind)
    if kind in SCALARS:
        return SCALARS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(each) for each in inner]}
    if origin is tuple:
        return {"type": "array", "items": schema(inner[0])}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema(inner[1])}
    return _object(kind)


def _object(kind: Any) -> dict[str, Any]:
    hints, needed = shape_of(kind)
    return {
        "title": kind.__name__.removesuffix("Document"),
        "description": (kind.__doc__ or "").strip(),
        "type": "object",
        "properties": {name: schema(hint) for name, hint in hints.items()},
        "required": list(needed),
        "additionalProperties": False,
    }
