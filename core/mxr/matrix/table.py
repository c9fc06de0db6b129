"""The table of the fields of a matrix, for the reader and for the JSON schema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from mxr import consumers
from mxr.artifact import attributes
from mxr.util.frozen import dataclass

from . import kinds
from .document import DocumentNode, error_at
from .kinds import FieldKind, SourcedValue, listing


@dataclass(frozen=True, slots=True)
class Field:
    """A field: the kind of its value, and its description."""

    kind: FieldKind
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with fixed fields. `name` is for messages; `needed` are the required fields."""

    name: str
    about: str
    fields: Mapping[str, Field]
    needed: tuple[str, ...] = ()

    def read(self, node: DocumentNode) -> SectionValues:
        """Return the values of a mapping. Raises `UsageError` for an unknown field and for a missing required one."""
        if node.fields is None:
            known = ", ".join(self.fields)
            raise node.error(f"Expected {self.name}, found {node.shown()}.", f"Write fields: {known}.")
        values = {}
        for name, (line, value) in node.fields.items():
            if name not in self.fields:
                near = difflib.get_close_matches(name, self.fields, 1)
                suggestion = f"Did you mean {near[0]}? " if near else ""
                hint = f"{suggestion}Known fields: {', '.join(self.fields)}."
                raise error_at(node.file, line, f"{self.name} has no field {name[:40]!r}.", hint)
            values[name] = SourcedValue(self.fields[name].kind.read(value), DocumentNode(value.file, line))
        for name in self.needed:
            if name not in values:
                raise node.error(f"{self.name} needs a field {name!r}.", self.fields[name].about)
        return SectionValues(node, values)

    @property
    def kind(self) -> FieldKind:
        """The kind of a field that contains this section."""
        properties = {name: {"description": row.about, **row.kind.schema} for name, row in self.fields.items()}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return FieldKind(self.read, schema | ({"required": list(self.needed)} if self.needed else {}))


@dataclass(frozen=True, slots=True)
class SectionValues:
    """The values of a section of the file, by field name."""

    node: DocumentNode
    values: Mapping[str, SourcedValue]

    def get(self, name: str) -> SourcedValue | None:
        """Return the value of a field, None if the section does not have it."""
        return self.values.get(name)


def several(section: Section) -> FieldKind:
    """A kind for a list of sections, as a tuple of `SectionValues`."""

    def read(node: DocumentNode) -> tuple[SectionValues, ...]:
        if node.items is None:
            raise node.error(
                f"Expected a list, found {node.shown()}.",
                f"Write one item `- ...` for each entry ({section.name}).",
            )
        return tuple(section.read(each) for each in node.items)

    return FieldKind(read, {"type": "array", "items": section.kind.schema})


def nullable(kind: FieldKind) -> FieldKind:
    """A kind for the same value or null."""

    def read(node: DocumentNode) -> Any:
        nothing = node.text is None and node.items is None and node.fields is None
        return None if nothing else kind.read(node)

    return FieldKind(read, {"anyOf": [*kind.schema.get("anyOf", [kind.schema]), {"type": "null"}]})


AXES = {
    "batch": Field(listing(kinds.BATCH), "Batch sizes: the unknown first dim of every input, and symbols such as N."),
    "precision": Field(
        listing(kinds.PRECISION), "fp32, or fp16 bf16 int8 fp8 int4w joined by + in the order of application."
    ),
    "for": Field(listing(kinds.CONSUMER), f"The consumer that loads the programs: {', '.join(consumers.CONSUMERS)}."),
}
OPTIONS = {
    "tuning": Field(kinds.TUNING, "default, exhaustive, eager (with allow: eager) or cross (with allow: cross)."),
    "calibration": Field(kinds.TEXT, "Calibration data for int8 and fp8, relative to this file."),
    "offload_copy": Field(kinds.FLAG, "Whether the program copies its own buffers. Default: as the consumer requires."),
    "fast_math": Field(kinds.FLAG, "Whether the program uses fast math. Default: as the consumer requires."),
    "env": Field(kinds.ENV, "MIGRAPHX_* environment variables for the compile."),
    "options": Field(kinds.BACKEND_OPTIONS, "Options of MIGraphX's GPU backend."),
    "exact": Field(kinds.FLAG, "Require every given attribute to be equal."),
    "allow": Field(listing(kinds.ALLOW), f"Differences to accept: {', '.join(attributes.ALLOWANCES)}."),
}
HARDWARE = {
    "kind": Field(kinds.KIND, "gpu (default), or ref: MIGraphX's CPU reference target."),
    "vendor": Field(kinds.VENDOR, "amd (default) or hygon."),
    "arch": Field(kinds.ARCH, "The GPU: gfx908, or gfx90a:sramecc+:xnack-."),
    "num_cu": Field(kinds.COUNT, "Number of compute units as MIGraphX counts them."),
    "chiplets": Field(kinds.COUNT, "Number of chiplets (XCCs) of the GPU."),
    "rocm": Field(kinds.ROCM, "ROCm (or DTK) version: 7.2, or 7.2.1."),
    "migraphx": Field(kinds.MIGRAPHX, "MIGraphX version: 2.15, or 2.15.0."),
}
RUNNER = {"runner": Field(listing(kinds.TEXT), "CI runner labels for this target, for `mxr plan --format`.")}
PATH = {
    "path": Field(
        kinds.TEXT,
        "An ONNX file or a glob, relative to this file; or the identity sha256:... of a model, with all 64 digits.",
    )
}
INPUTS = {
    "inputs": Field(
        FieldKind(
            lambda node: tuple(SourcedValue(kinds.SHAPES.read(each), each) for each in node.items or (node,)),
            {"anyOf": [kinds.SHAPES.schema, {"type": "array", "minItems": 1, "items": kinds.SHAPES.schema}]},
        ),
        "Shapes of the inputs as NAME: [N, 3, 224, 224], where batch replaces N; or a list of such mappings.",
    )
}
OWN_BATCH = {
    "batch": Field(nullable(AXES["batch"].kind), f"{AXES['batch'].about} null: none, because all dims are fixed.")
}

DEFAULTS = Section("defaults", "Default values for all models and targets.", AXES | OPTIONS | HARDWARE)
TARGET = Section("a target", "The hardware and toolchain that programs run on.", HARDWARE | OPTIONS | RUNNER)
MODEL = Section(
    "a model",
    "A model and its own values.",
    PATH
    | INPUTS
    | AXES
    | OWN_BATCH
    | OPTIONS
    | {"targets": Field(several(TARGET), "Targets for this model, instead of the common targets.")},
    ("path",),
)
INCLUDE = Section(
    "an included cell",
    "Cells in addition to the product: one model on one target, with its own lists.",
    PATH | INPUTS | AXES | OWN_BATCH | OPTIONS | HARDWARE | RUNNER,
    ("path",),
)
EXCLUDE = Section(
    "an exclusion",
    "Excludes the cells that match all of these fields.",
    PATH
    | {name: Field(listing(row.kind), row.about) for name, row in (HARDWARE | {"tuning": OPTIONS["tuning"]}).items()}
    | AXES,
)
MATRIX = Section(
    "the matrix",
    "The programs that a fleet needs: models x targets x batches or shapes x precisions x consumers.",
    {
        "version": Field(kinds.ONE, "Version of the matrix format: 1."),
        "defaults": Field(DEFAULTS.kind, DEFAULTS.about),
        "models": Field(several(MODEL), "The models, each with its own values."),
        **AXES,
        "targets": Field(several(TARGET), "The targets that all models are compiled for."),
        "include": Field(several(INCLUDE), INCLUDE.about),
        "exclude": Field(several(EXCLUDE), EXCLUDE.about),
        "env_from": Field(listing(kinds.TEXT), "The environment variables that ${NAME} may stand for in this file."),
        "limit": Field(kinds.LIMIT, "Maximum number of combinations, as a protection against mistakes."),
    },
    ("version",),
)
