"""Converts JSON documents to frozen values and back. Rejects unknown fields, wrong types and huge numbers.

Requests, replies and recorded files use the same decoder, so all programs report an invalid field in the same form:
`constraints.num_cu: expected an integer, found "304"`.

`Timestamp` is a point in time: seconds since 1970 in the code, RFC 3339 in JSON.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from mxr.errors import MalformedError, UsageError

T = TypeVar("T")

HUGE = 2**53
"""Larger integers are rejected, because other JSON readers round them."""

MAX_DEPTH = 32
"""Maximum depth of lists and objects in a JSON document. What every program can read, it can also write and walk."""

SURROGATES = "[\ud800-\udfff]"
"""Characters that a string must not contain: UTF-8 cannot encode a lone surrogate, databases cannot store a NUL."""

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


class JsonForm(NamedTuple):
    """How JSON has a field whose value is of another type: a dataclass has them by name in `json_forms`.

    `hint`: the type of the JSON value, as for `decode`. `read` returns the value, given the JSON value and its path;
    `write` is its inverse. A dataclass also has `json_needed`: the fields that JSON must have, whatever their default.
    Its unknown fields are never ignored.
    """

    hint: Any
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any]


def canonical(value: object) -> str:
    """Return canonical JSON: keys sorted by code point, no white space, non-ASCII characters unescaped, no NaN."""
    return CANONICAL.encode(value)


def refuse(where: str, expected: str, found: object) -> UsageError:
    """Return the error for a field with an invalid value. The value is shown, shortened to 60 characters."""
    try:
        text = json.dumps(found, default=str, ensure_ascii=True)
    except (RecursionError, TypeError, ValueError):
        text = "a value that is not JSON, or is nested too deeply"
    shown = text if len(text) <= 60 else text[:57] + "..."
    return UsageError(
        f"{where or 'the document'}: expected {expected}, found {shown}.", hint=f"Correct {where or 'the document'}."
    )


def decode(kind: type[T], value: object, where: str = "", *, lenient: bool = False) -> T:
    """Return the value of type `kind` in a parsed JSON document.

    `kind` is a dataclass, or any type hint built from str, int, float, bool, None, unions, `tuple[X, ...]`,
    `Mapping[str, X]` and dataclasses. A class with its own `from_json(document, where)` decodes itself. `lenient`
    ignores unknown fields, for replies of a newer registry. Raises `UsageError` with the path of the invalid field.
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
    """Return `value` if it has no lone surrogate and no NUL. Raises `UsageError`."""
    if "\0" in value or (not value.isascii() and re.search(SURROGATES, value)):
        raise refuse(where, "a string without NUL and lone surrogates", value)
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
    forms: Mapping[str, JsonForm] = getattr(kind, "json_forms", {})
    # A fact that is dropped would make a key that means another program, or a manifest that means other bytes.
    lenient = lenient and not hasattr(kind, "json_forms")
    found = {}
    for name, each in fields(value, where):
        if name not in hints:
            if lenient:
                continue
            known = ", ".join(sorted(hints))
            raise UsageError(f"{join(where, name)}: unknown field.", hint=f"Known fields: {known}.")
        at = join(where, name)
        found[name] = _decode(hints[name], each, at, lenient)
        if name in forms:
            found[name] = forms[name].read(found[name], at)
    for name in needed:
        if name not in found:
            raise UsageError(f"{join(where, name)}: this field is missing.", hint="Add the field.")
    return kind(**found)


@cache
def shape_of(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the type hint of each field of a dataclass in JSON, and the names of the fields that JSON must have."""
    hints = typing.get_type_hints(kind)
    forms: Mapping[str, JsonForm] = getattr(kind, "json_forms", {})
    needed = getattr(kind, "json_needed", ())
    rows = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    names = (row.name for row in rows if row.default is missing and row.default_factory is missing)
    found = {row.name: forms[row.name].hint if row.name in forms else hints[row.name] for row in rows}
    return found, tuple(dict.fromkeys((*names, *needed)))


def schema_of_form(kind: Any, _source: Any, handler: Any) -> dict[str, Any]:
    """Tell pydantic what the JSON document of a dataclass with `json_forms` is: its `__get_pydantic_core_schema__`."""
    hints, needed = shape_of(kind)
    described = typing.get_type_hints(kind, include_extras=True)
    rows = {}
    for name, hint in hints.items():
        documented = (hint, *getattr(described[name], "__metadata__", ()))
        hint = Annotated[documented] if documented[1:] else hint
        schema = handler.generate_schema(hint)
        rows[name] = {"type": "typed-dict-field", "schema": schema, "required": name in needed}
    document = {"type": "typed-dict", "fields": rows, "cls": kind, "cls_name": kind.__name__}
    # A message that was decoded is an instance of its class.
    instance = {"type": "is-instance", "cls": kind}
    name = f"{kind.__module__}.{kind.__qualname__}:{id(kind)}"
    return {"type": "json-or-python", "json_schema": document, "python_schema": instance, "ref": name}


def fields(value: object, where: str) -> list[tuple[str, object]]:
    """Return the items of a JSON object. Raises `UsageError` for any other value."""
    if not isinstance(value, dict):
        raise refuse(where, "an object", value)
    for name in value:
        if not isinstance(name, str):
            raise refuse(where, "names that are strings", name)
        text(name, where)
    return list(value.items())


def join(where: str, name: str) -> str:
    """Return the path of a field in `where`."""
    return f"{where}.{name}" if where else name


def encode(value: object) -> Any:
    """Return the JSON form of a value that consists of dataclasses, mappings, sequences and scalars."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return encode_fields(value, (row.name for row in dataclasses.fields(value)))
    if isinstance(value, Mapping):
        return {name: encode(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    return value


def encode_fields(value: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the JSON form of some fields of a dataclass, in this order."""
    forms: Mapping[str, JsonForm] = getattr(value, "json_forms", {})
    found = ((name, getattr(value, name)) for name in names)
    return {name: forms[name].write(each) if name in forms else encode(each) for name, each in found}


def parse(data: bytes | str, what: str) -> Any:
    """Parse JSON.

    Bytes are UTF-8, with or without a byte order mark; `json.loads` alone takes UTF-16 and halves of surrogate pairs.

    Raises `MalformedError` that names `what` for invalid JSON, duplicate names, NaN and more than `MAX_DEPTH`.
    """
    try:
        document = data if isinstance(data, str) else data.decode("utf-8-sig")
        found = json.loads(document, object_pairs_hook=_unique, parse_constant=_no_constant)
        if _openings(data) > MAX_DEPTH and depth_exceeds(found, MAX_DEPTH):
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    except (ValueError, RecursionError) as problem:
        raise MalformedError(f"{what} is not valid JSON: {problem}.") from None
    return found


def count_values(data: bytes) -> int:
    """Return an upper bound of the values in a JSON document, without parsing it."""
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


def _openings(data: bytes | str) -> int:
    """An upper bound of the depth that costs little."""
    return data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")


def depth_exceeds(document: object, deepest: int) -> bool:
    """Return whether lists and objects are nested more than `deepest` deep in a JSON document. Does not recurse."""
    level: list[Any] = [document]
    for _ in range(deepest):
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return False
    return any(isinstance(each, (Mapping, list, tuple)) for each in level)


def _inner(value: object) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object contains a name twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


PATTERN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
EXAMPLE = "2026-11-24T20:33:41.250000Z"


class Timestamp(float):
    """A point in time in seconds since 1970. In JSON: RFC 3339 in UTC with microseconds, so that texts sort by time."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "is-instance", "cls": cls}

    @classmethod
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: Any) -> dict[str, Any]:
        return {"type": "string", "format": "date-time", "examples": [EXAMPLE]}

    def to_json(self) -> str:
        """Return the text, such as `2026-11-24T20:33:41.250000Z`."""
        return datetime.fromtimestamp(self, timezone.utc).isoformat(timespec="microseconds")[:-6] + "Z"

    @classmethod
    def from_json(cls, document: object, where: str) -> Timestamp:
        """Return the point in time of a text with any offset. Raises `UsageError`."""
        found = re.fullmatch(PATTERN, document, re.ASCII) if isinstance(document, str) else None
        if isinstance(document, str) and found:
            offset = "+00:00" if found[2] == "Z" else found[2]
            try:
                whole = datetime.fromisoformat(document[:19] + offset).timestamp()
            except ValueError:
                pass
            else:
                return cls(whole + float(found[1] or 0))
        raise refuse(where, f"a time such as {EXAMPLE}", document)


@lru_cache(maxsize=4096)
def time_text(seconds: float | None) -> str | None:
    """Return the JSON value of a time, or None. The same artifacts answer most requests, with the same times."""
    return None if seconds is None else Timestamp(seconds).to_json()
