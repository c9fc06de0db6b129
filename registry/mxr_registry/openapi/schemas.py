"""JSON schemas of the messages, from the dataclasses that decode and encode them.

A dataclass becomes a named schema, to which others refer. What the type of a field does not tell is in `fields`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin

from mxr.artifact.matching import Match
from mxr.artifact.records import Artifact
from mxr.util.codec import EXAMPLE, HUGE, Timestamp, shape_of

from .fields import CLASSES, Enumeration, facts_of

Schema = dict[str, Any]

SCHEMAS = "#/components/schemas/"

NULL = {"type": "null"}

SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": -HUGE, "maximum": HUGE},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): NULL,
    Any: {},
    Timestamp: {"type": "string", "format": "date-time", "examples": [EXAMPLE]},
}


@dataclasses.dataclass(frozen=True)
class MatchDocument:
    """How well an artifact matches a request.

    `exact`: it satisfies each constraint. `relaxed`: the constraints that the request allowed to differ. `assumed`: the
    facts that are not known of the artifact, with the values that the request assumes.
    """

    exact: bool
    relaxed: tuple[str, ...]
    assumed: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Listed:
    """The form of an object in a list: without the fields that only the reply about the object itself has."""

    name: str
    kind: type
    left_out: tuple[str, ...]


LISTED_ARTIFACT = Listed("ListedArtifact", Artifact, ("description", "manifest"))
LISTED = {("Artifacts", "items"): LISTED_ARTIFACT, ("ArtifactUsage", "artifact"): LISTED_ARTIFACT}
"""By message and field."""

SOMETIMES = {("Artifact", "description"), ("Choice", "consumer")}
"""The fields of messages that only some replies have."""

WRITTEN_AS: dict[Any, Any] = {
    Match: MatchDocument,
}


class Schemas:
    """The named schemas that a document needs; `of` adds those that it meets."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of a dataclass or of any type hint that `codec.decode` accepts."""
        if isinstance(kind, Enumeration):
            return self._enumeration(kind)
        if isinstance(kind, Listed):
            return self._listed(kind)
        kind = WRITTEN_AS.get(kind, kind)
        if kind in SCALARS:
            return dict(SCALARS[kind])
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return _either([self.of(each) for each in inner])
        if origin is tuple:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1]) or True}
        return self._reference(kind)

    def require_what_replies_have(self, requests: Iterable[Schema]) -> None:
        """Mark each field as required that a reply always has: all but those of `SOMETIMES`.

        `requests`: the schemas of the bodies of requests. In what they refer to, a field with a default can be left
        out.
        """
        sent = self._reached(requests)
        for name, found in self.named.items():
            if name not in sent and "properties" in found:
                found["required"] = [each for each in found["properties"] if (name, each) not in SOMETIMES]

    def _reached(self, schemas: Iterable[Schema]) -> set[str]:
        reached: set[str] = set()
        waiting: list[Any] = [*schemas]
        while waiting:
            found = waiting.pop()
            if isinstance(found, Mapping):
                name = str(found.get("$ref", "")).removeprefix(SCHEMAS)
                if name and name not in reached:
                    reached.add(name)
                    waiting.append(self.named[name])
                waiting += found.values()
            elif isinstance(found, list):
                waiting += found
        return reached

    def _reference(self, kind: Any) -> Schema:
        name = kind.__name__.removesuffix("Document")
        if name not in self.named:
            self.named[name] = {}
            self.named[name] = self._object(kind, name)
        return {"$ref": SCHEMAS + name}

    def _enumeration(self, kind: Enumeration) -> Schema:
        found = {"title": kind.name, "description": kind.description, "type": "string", "enum": list(kind.values)}
        # Read by generators of clients.
        self.named[kind.name] = found | ({"x-enum-varnames": list(kind.names)} if kind.names else {})
        return {"$ref": SCHEMAS + kind.name}

    def _listed(self, kind: Listed) -> Schema:
        whole = self.named[self.of(kind.kind)["$ref"].removeprefix(SCHEMAS)]
        properties = {name: each for name, each in whole["properties"].items() if name not in kind.left_out}
        required = [name for name in whole["required"] if name in properties]
        described = {"title": kind.name, "description": first_paragraph(kind.kind.__doc__)}
        self.named[kind.name] = {**whole, **described, "properties": properties, "required": required}
        return {"$ref": SCHEMAS + kind.name}

    def _object(self, kind: Any, name: str) -> Schema:
        hints, needed = shape_of(kind)
        described: Schema = {
            "title": name,
            "description": first_paragraph(kind.__doc__),
            "type": "object",
            "properties": {field: self._property(name, field, hint) for field, hint in hints.items()},
            "required": list(needed),
            "additionalProperties": False,
        }
        return {**described, **CLASSES.get(name, {})}

    def _property(self, owner: str, field: str, hint: Any) -> Schema:
        facts = dict(facts_of(owner, field))
        found = self.of(hint)
        if listed := LISTED.get((owner, field)):
            found = self.of(listed) if hint is listed.kind else {"type": "array", "items": self.of(listed)}
        if kind := facts.pop("of", None):
            known = self.of(kind)
            # What is no scalar is null in no reply.
            found = _either([known, dict(NULL)]) if "null" in found.get("type", ()) else known
        if items := facts.pop("items", None):
            found["items"] = self.of(items) if isinstance(items, Enumeration) else found["items"] | items
        return {**found, **facts}


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring as one line. The others explain the fields, which have their own."""
    return " ".join(inspect.cleandoc(docstring or "").partition("\n\n")[0].split())


def _either(schemas: list[Schema]) -> Schema:
    """A scalar that can be null is written with a list of types, which generators of clients understand best."""
    rest = [schema for schema in schemas if schema != NULL]
    if len(rest) == 1 and len(schemas) == 2 and "type" in rest[0]:
        return rest[0] | {"type": [rest[0]["type"], "null"]}
    return {"anyOf": schemas}
