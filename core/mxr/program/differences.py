"""Compares the descriptions of two programs field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ABOUT = ("sure", "notes")
"""Fields that describe how a program was read, not the program itself."""


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return `(path, left value, right value)` for each field in which two documents of `mxr inspect` differ."""
    first, second = _flat(left), _flat(right)
    names = [*first, *(name for name in second if name not in first)]
    rows = [(name, first.get(name), second.get(name)) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _flat(document: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{where}.{name}" if where else name
        if path in ABOUT:
            continue
        if isinstance(value, Mapping) and value:
            rows |= _flat(value, path)
        else:
            rows[path] = value
    return rows
