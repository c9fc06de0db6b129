"""The OpenAPI document of the registry, and real requests and replies held against it."""

from __future__ import annotations

import functools
import json
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
from fastapi import FastAPI

from mxr_registry.app import create_app
from mxr_registry.config.settings import RegistrySettings

Json = dict[str, Any]


@functools.cache
def application() -> FastAPI:
    """An application that answers nothing."""
    folder = Path(tempfile.gettempdir()) / "mxr-document"
    return create_app(RegistrySettings(folder, f"sqlite:///{folder}/registry.db", f"file://{folder}/store"))


def routes() -> list[Any]:
    """Its routes."""
    return list(application().routes)


_ONCE = threading.Lock()


def document() -> Json:
    """The document. The threads of a test wait for the one that makes it: FastAPI makes one at a time."""
    with _ONCE:
        return _document()


@functools.cache
def _document() -> Json:
    found: Json = json.loads(json.dumps(application().openapi()))
    return found


@functools.cache
def operations() -> list[tuple[str, re.Pattern[str], Json]]:
    """Method, pattern of the path and operation; a path without parameters comes first."""
    rows = []
    for path, methods in sorted(document()["paths"].items(), key=lambda pair: "{" in pair[0]):
        one = ".+" if "/files/" in path else "[^/]+"
        pattern = re.sub(r"\\\{\w+\\\}", one.replace("\\", ""), re.escape(path))
        rows += [(method.upper(), re.compile(pattern), found) for method, found in methods.items()]
    return rows


def operation_of(method: str, path: str) -> Json | None:
    """The operation that answers a request; None if there is none."""
    plain = path.partition("?")[0]
    if plain in document()["paths"]:
        found: Json | None = document()["paths"][plain].get(method.lower())
        return found
    return next((found for verb, pattern, found in operations() if verb == method and pattern.fullmatch(plain)), None)


@functools.cache
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    whole = json.loads(schema) | {"components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def faults(schema: Json, value: Any) -> list[str]:
    """What is wrong with a value."""
    found = _validator(json.dumps(schema, sort_keys=True)).iter_errors(value)
    return [f"{'/'.join(map(str, each.instance_path))}: {each.message[:300]}" for each in found]


@dataclass
class Conformance:
    """Holds requests and replies against the document, and keeps which operations answered with which status."""

    seen: set[tuple[str, int]] = field(default_factory=set)

    def check(self, method: str, path: str, body: Any, status: int, headers: Mapping[str, str], data: bytes) -> None:
        """Raise `AssertionError` for a reply that the document does not describe, or an accepted body as such."""
        found = operation_of(method, path)
        where = f"{method} {path[:200]} {status}"
        media = headers.get("content-type", "").partition(";")[0]
        if found is None:
            if status in (404, 405) and method != "HEAD":
                assert media == "application/problem+json" and not faults(_PROBLEM, json.loads(data)), where
            return
        assert str(status) in found["responses"], f"{where}: not described"
        response = found["responses"][str(status)]
        contents = response.get("content", {})
        assert media in contents if data else True, f"{where}: {media} is not described"
        if media.endswith("json") and data:
            wrong = faults(contents[media]["schema"], json.loads(data))
            assert not wrong, f"{where}: {wrong}"
        for name in ("location", "etag", "content-range", "retry-after"):
            described = {each.lower() for each in response.get("headers", {})}
            assert name not in headers or name in described, f"{where}: the header {name} is not described"
        if status < 300 and isinstance(body, (dict, list)) and "requestBody" in found:
            wrong = faults(found["requestBody"]["content"]["application/json"]["schema"], json.loads(json.dumps(body)))
            assert not wrong, f"{where}: the body was accepted: {wrong}"
        self.seen.add((found["operationId"], status))


_PROBLEM = {"$ref": "#/components/schemas/Problem"}

CONFORMANCE = Conformance()
"""Of all requests of this test process."""
