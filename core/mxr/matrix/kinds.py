"""Kinds of field values: how to read each from a node, and its JSON schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mxr import consumers
from mxr.artifact import attributes, compile_settings, target
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

from .document import DocumentNode

HOLDS_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""Schema of a text that contains a variable, so that its value is unknown to an editor."""

SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
MAX_MODELS = 10_000

ARCHS = frozenset().union(*target.FAMILIES.values(), target.SRAMECC, target.XNACK, target.FAMILIES)
"""All known AMD archs."""


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value and the node that contains it."""

    value: Any
    node: DocumentNode


@dataclass(frozen=True, slots=True)
class FieldKind:
    """A kind of value.

    `read` returns the value of a node or raises `UsageError` with its line; `schema` is for editors.
    """

    read: Callable[[DocumentNode], Any]
    schema: Mapping[str, Any]


def scalar(expected: str, parse: Callable[[str], Any], schema: Mapping[str, Any]) -> FieldKind:
    """A kind for one value from a text. `parse` raises `UsageError` or `ValueError` if the text is invalid."""

    def read(node: DocumentNode) -> Any:
        if node.text is None:
            raise node.error(f"Expected {expected}, found {node.shown()}.", f"Write {expected}.")
        try:
            return parse(node.text)
        except UsageError as problem:
            raise node.error(problem.message, problem.hint) from None
        except ValueError:
            raise node.error(f"Expected {expected}, found {node.shown()}.", f"Write {expected}.") from None

    needs_variable = schema.get("type") != "string" or "enum" in schema or "pattern" in schema
    return FieldKind(read, {"anyOf": [dict(schema), HOLDS_VARIABLE]} if needs_variable else schema)


def choice(expected: str, among: Iterable[str]) -> FieldKind:
    """A kind for one of several texts."""
    known = tuple(among)

    def parse(text: str) -> str:
        if text not in known:
            near = difflib.get_close_matches(text, known, 1)
            suggestion = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"{text[:40]!r} is not {expected}.", hint=f"{suggestion}Write {' or '.join(known)}.")
        return text

    return scalar(expected, parse, {"type": "string", "enum": list(known)})


def listing(of: FieldKind, *, empty: bool = False) -> FieldKind:
    """A kind for one value, several values separated by commas, or a list: always a tuple of `SourcedValue`."""

    def read(node: DocumentNode) -> tuple[SourcedValue, ...]:
        parts: Iterable[DocumentNode] = (node,)
        if node.items is not None:
            parts = node.items
        elif node.text is not None:
            parts = [DocumentNode(node.file, node.line, text=part.strip()) for part in node.text.split(",")]
        found = tuple(SourcedValue(of.read(part), part) for part in parts)
        if not found and not empty:
            raise node.error("This list is empty, so nothing would be compiled.", "Write a value, or remove the field.")
        return found

    one = of.schema
    some: dict[str, Any] = {"type": "array", "items": one} | ({} if empty else {"minItems": 1})
    return FieldKind(read, {"anyOf": [one, {"type": "string", "pattern": ","}, some]})


def mapping(expected: str, name: Callable[[str], object], of: FieldKind, schema_of_name: str) -> FieldKind:
    """A kind for names with values, as a dict of `SourcedValue`. `name` raises `UsageError` for an invalid name."""

    def read(node: DocumentNode) -> dict[str, SourcedValue]:
        if node.fields is None:
            raise node.error(f"Expected {expected}, found {node.shown()}.", f"Write {expected}.")
        found = {}
        for each, (_, value) in node.fields.items():
            try:
                name(each)
            except UsageError as problem:
                raise value.error(problem.message, problem.hint) from None
            found[each] = SourcedValue(of.read(value), value)
        return found

    return FieldKind(
        read, {"type": "object", "propertyNames": {"pattern": schema_of_name}, "additionalProperties": of.schema}
    )


def _number(low: int, high: int) -> FieldKind:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return scalar(f"a whole number from {low} to {high}", parse, schema)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text.strip() or len(text) > 4096:
        raise ValueError
    return text


def _version(name: str) -> FieldKind:
    def parse(text: str) -> str:
        try:
            target.split_version(text, name, zeros=True)
        except UsageError:
            raise ValueError from None
        return text.strip()

    return scalar(f"a version of {name} such as 7.2 or 7.2.1", parse, {"type": ["string", "number"]})


def _precision(text: str) -> str:
    return "+".join(target.parse_precision(text)) or "fp32"


def _arch(text: str) -> str:
    return str(target.GfxArch.parse(text))


def check_known(arch: str, node: DocumentNode) -> None:
    """Raise `UsageError` for an unknown AMD arch, with similar ones as a suggestion."""
    base = arch.partition(":")[0]
    if base not in ARCHS:
        near = difflib.get_close_matches(base, sorted(ARCHS), 3, 0.7)
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        raise node.error(f"{base} is not a known arch.", f"{suggestion}`mxr host` shows the arch of a host.")


def _env_name(text: str) -> None:
    compile_settings.check_name(text)


def _option_name(text: str) -> None:
    compile_settings.check_name(text, "options")


def _input_name(text: str) -> None:
    if not text:
        raise UsageError("The name of an input is empty.", hint="Write NAME: [N, 3, 224, 224].")


def _dim(text: str) -> target.Dim | str:
    if SYMBOL.fullmatch(text):
        return text
    try:
        return target.parse_input(f"x={text}")[1][0]
    except (UsageError, IndexError):
        raise UsageError(
            f"{text[:40]!r} is not a dim.", hint="Write 4, 1..8@1/4/8 for a dynamic dim, or N for the batch."
        ) from None


TEXT = scalar("a text", _text, {"type": "string"})
FLAG = scalar("true or false", _flag, {"type": "boolean"})
COUNT = _number(1, 65536)
BATCH = _number(1, 2**31 - 1)
LIMIT = _number(1, 100_000)
ONE = choice("a matrix version that this mxr supports", ("1",))
ROCM, MIGRAPHX = _version("rocm"), _version("migraphx")
ARCH = scalar("an arch such as gfx908", _arch, {"type": "string", "pattern": "^gfx[1-9]"})
KIND = choice("a kind", target.KINDS)
VENDOR = choice("a vendor", target.VENDORS)
TUNING = choice("a tuning", target.TUNINGS)
ALLOW = choice("an allowance", attributes.ALLOWANCES)
CONSUMER = choice("a consumer", consumers.CONSUMERS)
PRECISION = scalar(
    "fp32, or fp16 bf16 int8 fp8 int4w joined by +",
    _precision,
    {"type": "string", "pattern": rf"^(fp32|({'|'.join(target.PRECISIONS)})(\+({'|'.join(target.PRECISIONS)}))*)$"},
)
DIM = scalar("a dim such as 4 or N", _dim, {"type": ["integer", "string"]})
SHAPES = mapping("the inputs as NAME: [N, 3, 224, 224]", _input_name, listing(DIM, empty=True), ".")
ENV = mapping("variables as MIGRAPHX_NAME: VALUE", _env_name, scalar("a text", str, {"type": "string"}), "^MIGRAPHX_")
BACKEND_OPTIONS = mapping("options as NAME: VALUE", _option_name, scalar("a text", str, {"type": "string"}), "^[a-z]")
