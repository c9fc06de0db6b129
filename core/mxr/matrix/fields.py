"""The fields of a matrix: how each is read, and its JSON schema for editors. `mxr.facts` has the facts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mxr import consumers, facts
from mxr.artifact import compile_settings, target
from mxr.errors import UsageError
from mxr.facts import FACTS, Fact
from mxr.util.frozen import dataclass

from .document import DocumentNode, error_at

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
class SectionValues:
    """The values of a section of the file, by field name."""

    node: DocumentNode
    values: Mapping[str, SourcedValue]

    def get(self, name: str) -> SourcedValue | None:
        """Return the value of a field, None if the section does not have it."""
        return self.values.get(name)


class Field(NamedTuple):
    """A field. `read` returns the value of a node or raises `UsageError` with its line; `schema` is for editors."""

    read: Callable[[DocumentNode], Any]
    schema: Mapping[str, Any]
    about: str = ""


def scalar(expected: str, parse: Callable[[str], Any], schema: Mapping[str, Any]) -> Field:
    """A field for one value from a text. `parse` raises `UsageError` or `ValueError` if the text is invalid."""

    def read(node: DocumentNode) -> Any:
        try:
            if node.text is None:
                raise ValueError
            return parse(node.text)
        except UsageError as problem:
            raise node.error(problem.message, problem.hint) from None
        except ValueError:
            raise node.error(f"Expected {expected}, found {node.shown()}.", f"Write {expected}.") from None

    needs_variable = schema.get("type") != "string" or "enum" in schema or "pattern" in schema
    return Field(read, {"anyOf": [dict(schema), HOLDS_VARIABLE]} if needs_variable else schema)


def choice(expected: str, known: tuple[str, ...]) -> Field:
    """A field for one of several texts."""

    def parse(text: str) -> str:
        if text not in known:
            near = difflib.get_close_matches(text, known, 1)
            suggestion = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"{text[:40]!r} is not {expected}.", hint=f"{suggestion}Write {' or '.join(known)}.")
        return text

    return scalar(expected, parse, {"type": "string", "enum": list(known)})


def listing(of: Field, *, empty: bool = False) -> Field:
    """A field for one value, several values separated by commas, or a list: always a tuple of `SourcedValue`."""

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

    some = {"type": "array", "items": of.schema} | ({} if empty else {"minItems": 1})
    return Field(read, {"anyOf": [of.schema, {"type": "string", "pattern": ","}, some]})


def mapping(expected: str, check_name: Callable[[str], object], of: Field, names: str) -> Field:
    """A field for names with values, as a dict of `SourcedValue`. `names`: a pattern of the names, for editors."""

    def read(node: DocumentNode) -> dict[str, SourcedValue]:
        if node.fields is None:
            raise node.error(f"Expected {expected}, found {node.shown()}.", f"Write {expected}.")
        found = {}
        for each, (_, value) in node.fields.items():
            try:
                check_name(each)
            except UsageError as problem:
                raise value.error(problem.message, problem.hint) from None
            found[each] = SourcedValue(of.read(value), value)
        return found

    return Field(read, {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": of.schema})


def number(most: int) -> Field:
    """A field for a whole number from 1."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not 1 <= int(text) <= most:
            raise ValueError
        return int(text)

    return scalar(f"a whole number from 1 to {most}", parse, {"type": "integer", "minimum": 1, "maximum": most})


def section(name: str, about: str, fields: Mapping[str, Field], *needed: str) -> Field:
    """A field for a mapping with fixed fields, as `SectionValues`. `needed`: those that it must have."""

    def read(node: DocumentNode) -> SectionValues:
        if node.fields is None:
            known = ", ".join(fields)
            raise node.error(f"Expected {name}, found {node.shown()}.", f"Write fields: {known}.")
        values = {}
        for each, (line, value) in node.fields.items():
            if each not in fields:
                near = difflib.get_close_matches(each, fields, 1)
                suggestion = f"Did you mean {near[0]}? " if near else ""
                hint = f"{suggestion}Known fields: {', '.join(fields)}."
                raise error_at(node.file, line, f"{name} has no field {each[:40]!r}.", hint)
            values[each] = SourcedValue(fields[each].read(value), DocumentNode(value.file, line))
        for each in needed:
            if each not in values:
                raise node.error(f"{name} needs a field {each!r}.", fields[each].about)
        return SectionValues(node, values)

    properties = {each: {"description": row.about, **row.schema} for each, row in fields.items()}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Field(read, schema | ({"required": list(needed)} if needed else {}), about)


def sections(of: Field, name: str, about: str = "") -> Field:
    """A field for a list of sections, as a tuple of `SectionValues`."""

    def read(node: DocumentNode) -> tuple[SectionValues, ...]:
        if node.items is None:
            raise node.error(
                f"Expected a list, found {node.shown()}.", f"Write one item `- ...` for each entry ({name})."
            )
        return tuple(of.read(item) for item in node.items)

    return Field(read, {"type": "array", "items": of.schema}, about or of.about)


def check_known(arch: str, node: DocumentNode) -> None:
    """Raise `UsageError` for an unknown AMD arch, with similar ones as a suggestion."""
    base = arch.partition(":")[0]
    if base not in ARCHS:
        near = difflib.get_close_matches(base, sorted(ARCHS), 3, 0.7)
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        raise node.error(f"{base} is not a known arch.", f"{suggestion}`mxr host` shows the arch of a host.")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text.strip() or len(text) > 4096:
        raise ValueError
    return text


def _version(name: str) -> Field:
    def parse(text: str) -> str:
        try:
            target.split_version(text, name, zeros=True)
        except UsageError:
            raise ValueError from None
        return text.strip()

    return scalar(f"a version of {name} such as 7.2 or 7.2.1", parse, {"type": ["string", "number"]})


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
ANY_TEXT = scalar("a text", str, {"type": "string"})
DIMS = listing(scalar("a dim such as 4 or N", _dim, {"type": ["integer", "string"]}), empty=True)
SHAPES = mapping("the inputs as NAME: [N, 3, 224, 224]", _input_name, DIMS, ".")
PRECISION = rf"(fp32|({'|'.join(target.PRECISIONS)})(\+({'|'.join(target.PRECISIONS)}))*)"
OWN = {
    "arch": scalar(
        "an arch such as gfx908",
        lambda text: str(target.GfxArch.parse(text)),
        {"type": "string", "pattern": "^gfx[1-9]"},
    ),
    "precision": scalar(
        "fp32, or fp16 bf16 int8 fp8 int4w joined by +",
        lambda text: target.show_precision(target.parse_precision(text)),
        {"type": "string", "pattern": f"^{PRECISION}$"},
    ),
    "consumer": choice("a consumer", tuple(consumers.CONSUMERS)),
    "env": mapping("variables as MIGRAPHX_NAME: VALUE", compile_settings.check_name, ANY_TEXT, "^MIGRAPHX_"),
    "options": mapping(
        "options as NAME: VALUE", lambda name: compile_settings.check_name(name, "options"), ANY_TEXT, "^[a-z]"
    ),
}
"""The fields of facts whose kind does not tell how they are read."""

KINDS = {
    facts.TEXT: TEXT,
    facts.PATH: TEXT,
    facts.COUNT: number(65536),
    facts.SIZES: number(2**31 - 1),
    facts.FLAG: FLAG,
    facts.SWITCH: FLAG,
    facts.SHAPES: Field(
        lambda node: tuple(SourcedValue(SHAPES.read(each), each) for each in node.items or (node,)),
        {"anyOf": [SHAPES.schema, {"type": "array", "minItems": 1, "items": SHAPES.schema}]},
    ),
}
ABOUT = {
    "batch": "Batch sizes: the open first dim of every input, and symbols such as N.",
    "inputs": "Shapes of the inputs as NAME: [N, 3, 224, 224], where batch replaces N; or a list of such mappings.",
    "calibration": "Calibration data for int8 and fp8, relative to this file.",
}
"""What a matrix says in other words."""


def _field(fact: Fact) -> Field:
    found = OWN.get(fact.name) or KINDS.get(fact.kind) or TEXT
    if fact.kind == facts.VERSION:
        found = _version(fact.name)
    if fact.choices:
        found = choice(f"a {fact.name}" if fact.kind != facts.LIST else "an allowance", fact.choices)
    found = listing(found) if fact.has(facts.AXIS) or fact.kind == facts.LIST else found
    return found._replace(about=ABOUT.get(fact.name, fact.about))


def matrix_name(fact: Fact) -> str:
    """The name of the field of a fact."""
    return "for" if fact.name == "consumer" else fact.name


def _of(trait: str) -> dict[str, Field]:
    return {matrix_name(fact): _field(fact) for fact in FACTS if fact.has(trait)}


def _or_null(of: Field) -> Field:
    def read(node: DocumentNode) -> Any:
        nothing = node.text is None and node.items is None and node.fields is None
        return None if nothing else of.read(node)

    about = f"{of.about} null: none, because all dims are fixed."
    return Field(read, {"anyOf": [*of.schema["anyOf"], {"type": "null"}]}, about)


def _listed(fields: Mapping[str, Field]) -> dict[str, Field]:
    return {name: listing(row)._replace(about=row.about) for name, row in fields.items()}


AXES, OPTIONS, HARDWARE, INPUTS = map(_of, (facts.AXIS, facts.OPTION, facts.HARDWARE, facts.SHAPE))
OWN_AXES = INPUTS | AXES | {"batch": _or_null(AXES["batch"])}
RUNNER = {"runner": listing(TEXT)._replace(about="CI runner labels for this target, for `mxr plan --format`.")}
PATH = {
    "path": TEXT._replace(
        about="An ONNX file or a glob, relative to this file; or the identity sha256:... (64 digits) of a model."
    )
}
TARGET = section("a target", "The hardware and toolchain that programs run on.", HARDWARE | OPTIONS | RUNNER)
OWN_TARGETS = sections(TARGET, "a target", "Targets for this model, instead of the common targets.")
MODEL = section("a model", "A model and its own values.", PATH | OWN_AXES | OPTIONS | {"targets": OWN_TARGETS}, "path")
INCLUDE = section(
    "an included cell",
    "Cells in addition to the product: one model on one target, with its own lists.",
    PATH | OWN_AXES | OPTIONS | HARDWARE | RUNNER,
    "path",
)
EXCLUDE = section(
    "an exclusion",
    "Excludes the cells that match all of these fields.",
    PATH | _listed(HARDWARE | {"tuning": OPTIONS["tuning"]}) | AXES,
)
MATRIX = section(
    "the matrix",
    "The programs that a fleet needs: models x targets x batches or shapes x precisions x consumers.",
    {
        "version": choice("a matrix version that this mxr supports", ("1",))._replace(
            schema={"enum": [1, "1"]}, about="Version of the matrix format: 1."
        ),
        "defaults": section("defaults", "Default values for all models and targets.", AXES | OPTIONS | HARDWARE),
        "models": sections(MODEL, "a model", "The models, each with its own values."),
        **AXES,
        "targets": sections(TARGET, "a target", "The targets that all models are compiled for."),
        "include": sections(INCLUDE, "an included cell"),
        "exclude": sections(EXCLUDE, "an exclusion"),
        "env_from": listing(TEXT)._replace(about="The environment variables that ${NAME} may stand for in this file."),
        "limit": number(100_000)._replace(about="Maximum number of combinations, as a protection against mistakes."),
    },
    "version",
)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a matrix, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The matrix of mxr precompile, plan and lock",
        "description": MATRIX.about,
        **MATRIX.schema,
    }
