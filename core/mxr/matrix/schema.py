"""Generates the JSON schema of a matrix, for editors, from the table of fields."""

from __future__ import annotations

from typing import Any

from .table import MATRIX


def schema() -> dict[str, Any]:
    """Return the schema as a JSON object."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The matrix of mxr precompile, plan and lock",
        "description": MATRIX.about,
        **_version_as_number(dict(MATRIX.kind.schema)),
    }


def _version_as_number(document: dict[str, Any]) -> dict[str, Any]:
    properties = dict(document["properties"])
    properties["version"] = {"description": properties["version"]["description"], "enum": [1, "1"]}
    return document | {"properties": properties}
