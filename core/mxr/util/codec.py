"""Reading a JSON document into a frozen value, strictly: unknown fields, wrong types and huge numbers are refused.

One small decoder serves requests, replies and recorded files, so that all three programs speak of a field in the same
words ("demands.num_cu: expected a whole number, found \"304\"").
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

from mxr.errors import Usage

T = TypeVar("T")

HUGE = 2**53
"""Whole numbers beyond this are refused: other JSON readers would round them."""

UNFIT = re.compile("[\0\ud800-\udfff]")
"""What a text may not hold: no UTF-8 file has half a surrogate pair, no database a NUL."""

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


def canonical(value: object) -> str:
    """Canonical JSON: keys sorted by code point, no white space, UTF-8 written as it is, no NaN."""
    return CANONICAL.encode(value)


def refuse(where: str, expected: str, found: object) -> Usage:
    """The error for a field that is not what it should be; what was found is shown shortened."""
    try:
        text = json.dumps(found, default=str, ensure_ascii=True)
    except (RecursionError, TypeError, ValueError):
        text = "something that is no JSON value, or one too deep"
    shown = text if len(text) <= 60 else text[:57] + "..."
    return Usage(f"{where or 'the document'}: expected {expected}, found {shown}.", hint="Correct this field.")


def decode(kind: type[T], value: object, where: str = "", *, lenient: bool = False) -> T:
    """The value of type `kind` that a parsed JSON document holds.

    `kind` is a dataclass, or any type hint made of str, int, float, bool, None, unions, `tuple[X, ...]`,
    `Mapping[str, X]` and dataclasses. A class with a `from_json(document, where)` of its own is asked.
    `lenient` passes over fields that are not known, for replies of a newer registry; a key never has such fields.
    Raises `Usage`, naming the field by its path.
    """
    return typing.cast(T, _decode(kind, value, where, lenient))


def _decode(kind: Any, value: object, where: str, lenient: bool) -> object:
    if kind is Any:
        return value
    if kind in NAMES:
        return _scalar(kind, value, where)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), value, where, lenient)
    if origin is tuple:
        if not isinstance(value, list):
            raise refuse(where, "a list", value)
        item = get_args(kind)[0]
        return tuple(_decode(item, each, f"{where}[{index}]", lenient) for index, each in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        inner = get_args(kind)[1]
        return {name: _decode(inner, each, join(where, name), lenient) for name, each in fields(value, where)}
    if hasattr(kind, "from_json"):
        return kind.from_json(value, where)
    return _dataclass(kind, value, where, lenient)


def _scalar(kind: type, value: object, where: str) -> object:
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < HUGE else value
    if type(value) is not kind:
        raise refuse(where, NAMES[kind], value)
    if isinstance(value, int) and abs(value) > HUGE:
        raise refuse(where, "a number within 2^53", value)
    if isinstance(value, float) and value - value != 0:
        raise refuse(where, "a finite number", value)
    if isinstance(value, str):
        text(value, where)
    return value


def text(value: str, where: str) -> str:
    """`value`, unless it holds half of a surrogate pair or a NUL, which no UTF-8 file and no database can hold."""
    if UNFIT.search(value):
        raise refuse(where, "a text without NUL and lone surrogates", value)
    return value


def _union(kinds: tuple[Any, ...], value: object, where: str, lenient: bool) -> object:
    if value is None and type(None) in kinds:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    if len(rest) == 1:
        return _decode(rest[0], value, where, lenient)
    for kind in rest:
        if type(value) is kind or (get_origin(kind) is tuple and isinstance(value, list)):
            return _decode(kind, value, where, lenient)
    raise refuse(where, " or ".join(NAMES.get(kind, "a list") for kind in kinds), value)


def _dataclass(kind: Any, value: object, where: str, lenient: bool) -> object:
    hints, needed = shape_of(kind)
    found = {}
    for name, each in fields(value, where):
        if name not in hints:
            if lenient:
                continue
            known = ", ".join(sorted(hints))
            raise Usage(f"{join(where, name)}: there is no such field.", hint=f"Known fields: {known}.")
        found[name] = _decode(hints[name], each, join(where, name), lenient)
    for name in needed:
        if name not in found:
            raise Usage(f"{join(where, name)}: this field is missing.", hint="Add it.")
    return kind(**found)


@cache
def shape_of(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The type hint of each field of a dataclass, and the names of those without a default."""
    hints = typing.get_type_hints(kind)
    rows = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    needed = tuple(row.name for row in rows if row.default is missing and row.default_factory is missing)
    return {row.name: hints[row.name] for row in rows}, needed


def fields(value: object, where: str) -> list[tuple[str, object]]:
    """The items of a JSON object. Raises `Usage` when it is none."""
    if not isinstance(value, dict):
        raise refuse(where, "an object", value)
    for name in value:
        if not isinstance(name, str):
            raise refuse(where, "names that are texts", name)
        text(name, where)
    return list(value.items())


def join(where: str, name: str) -> str:
    """The path of a field inside `where`."""
    return f"{where}.{name}" if where else name


def encode(value: object) -> Any:
    """The JSON form of a value made of dataclasses, mappings, sequences and scalars."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {row.name: encode(getattr(value, row.name)) for row in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: encode(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    return value


def parse(data: bytes | str, what: str) -> Any:
    """The JSON value in `data`, without duplicate names and without NaN. Raises `Usage` naming `what`."""
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise Usage(f"{what} is not valid JSON: {problem}.", hint="Send one JSON document in UTF-8.") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")
