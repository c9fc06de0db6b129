"""The fields of a matrix: one table, by which a file is read and from which the JSON schema for editors is drawn."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from mxr import consumers
from mxr.artifact import qualities
from mxr.util.frozen import dataclass

from . import kinds
from .document import DocumentNode, refusal
from .kinds import FieldKind, SourcedValue, listing


@dataclass(frozen=True, slots=True)
class Field:
    """A field: the kind of its value, and what it means."""

    kind: FieldKind
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with fields of its own: `name` for messages, `needed` the fields that must be there."""

    name: str
    about: str
    fields: Mapping[str, Field]
    needed: tuple[str, ...] = ()

    def read(self, node: DocumentNode) -> SectionValues:
        """What is said in this mapping. Raises `Usage` for a field that there is not, and for one that is missing."""
        if node.fields is None:
            known = ", ".join(self.fields)
            raise node.refuse(f"Expected {self.name}, found {node.shown()}.", f"Write fields: {known}.")
        said = {}
        for name, (line, value) in node.fields.items():
            if name not in self.fields:
                near = difflib.get_close_matches(name, self.fields, 1)
                did = f"Did you mean {near[0]}? " if near else ""
                hint = f"{did}Known: {', '.join(self.fields)}."
                raise refusal(node.file, line, f"{self.name} has no field {name[:40]!r}.", hint)
            said[name] = SourcedValue(self.fields[name].kind.read(value), DocumentNode(value.file, line))
        for name in self.needed:
            if name not in said:
                raise node.refuse(f"{self.name} needs a field {name!r}.", self.fields[name].about)
        return SectionValues(node, said)

    @property
    def kind(self) -> FieldKind:
        """This section as the kind of a field."""
        properties = {name: {"description": row.about, **row.kind.schema} for name, row in self.fields.items()}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return FieldKind(self.read, schema | ({"required": list(self.needed)} if self.needed else {}))


@dataclass(frozen=True, slots=True)
class SectionValues:
    """What a section of the file says, by the names of its fields."""

    node: DocumentNode
    said: Mapping[str, SourcedValue]

    def get(self, name: str) -> SourcedValue | None:
        """What is said of this field."""
        return self.said.get(name)


def several(section: Section) -> FieldKind:
    """A list of such sections, as a tuple of entries."""

    def read(node: DocumentNode) -> tuple[SectionValues, ...]:
        if node.items is None:
            raise node.refuse(
                f"Expected a list, found {node.shown()}.", f"Write one line `- ...` for each {section.name}."
            )
        return tuple(section.read(each) for each in node.items)

    return FieldKind(read, {"type": "array", "items": section.kind.schema})


def nullable(kind: FieldKind) -> FieldKind:
    """The same, or null."""

    def read(node: DocumentNode) -> Any:
        nothing = node.text is None and node.items is None and node.fields is None
        return None if nothing else kind.read(node)

    return FieldKind(read, {"anyOf": [*kind.schema.get("anyOf", [kind.schema]), {"type": "null"}]})


AXES = {
    "batch": Field(listing(kinds.BATCH), "Batch sizes: the open first dim of every input, and symbols such as N."),
    "precision": Field(
        listing(kinds.PRECISION), "fp32, or fp16 bf16 int8 fp8 int4w joined by +, in the order applied."
    ),
    "for": Field(listing(kinds.CONSUMER), f"Who loads the programs: {', '.join(consumers.CONSUMERS)}."),
}
OPTIONS = {
    "tuning": Field(kinds.TUNING, "default, exhaustive, or cross (with allow: cross)."),
    "calibration": Field(kinds.TEXT, "Calibration data for int8 and fp8, relative to this file."),
    "offload_copy": Field(kinds.FLAG, "The program copies its buffers itself; else as the consumer needs it."),
    "fast_math": Field(kinds.FLAG, "The program uses fast math; else as the consumer needs it."),
    "env": Field(kinds.ENV, "MIGRAPHX_* variables that the compile sees."),
    "exact": Field(kinds.FLAG, "Every quality that is given must be equal."),
    "allow": Field(listing(kinds.ALLOW), f"Let pass: {', '.join(qualities.ALLOWANCES)}."),
}
HARDWARE = {
    "kind": Field(kinds.KIND, "gpu (default), or ref: MIGraphX's CPU reference target."),
    "vendor": Field(kinds.VENDOR, "amd (default) or hygon."),
    "arch": Field(kinds.ARCH, "The GPU: gfx908, or gfx90a:sramecc+:xnack-."),
    "num_cu": Field(kinds.COUNT, "Compute units as MIGraphX counts them."),
    "chiplets": Field(kinds.COUNT, "Chiplets (XCCs) of the GPU."),
    "rocm": Field(kinds.ROCM, "ROCm (or DTK) version: 7.2, or 7.2.1."),
    "migraphx": Field(kinds.MIGRAPHX, "MIGraphX version: 2.15, or 2.15.0."),
}
RUNNER = {"runner": Field(listing(kinds.TEXT), "Labels of the CI runner for this target, for `mxr plan --format`.")}
PATH = {"path": Field(kinds.TEXT, "An ONNX file or a glob, relative to this file; or xxh3:... of a known model.")}
INPUTS = {
    "inputs": Field(
        FieldKind(
            lambda node: tuple(SourcedValue(kinds.SHAPES.read(each), each) for each in node.items or (node,)),
            {"anyOf": [kinds.SHAPES.schema, {"type": "array", "minItems": 1, "items": kinds.SHAPES.schema}]},
        ),
        "Shapes of the inputs, NAME: [N, 3, 224, 224] with N filled by batch; or a list of such mappings.",
    )
}
OWN_BATCH = {"batch": Field(nullable(AXES["batch"].kind), AXES["batch"].about + " null: none, all dims are fixed.")}

DEFAULTS = Section("defaults", "What holds where nothing nearer says otherwise.", AXES | OPTIONS | HARDWARE)
TARGET = Section("a target", "Where programs run, and with which toolchain.", HARDWARE | OPTIONS | RUNNER)
MODEL = Section(
    "a model",
    "Which model, and what is special about it.",
    PATH
    | INPUTS
    | AXES
    | OWN_BATCH
    | OPTIONS
    | {"targets": Field(several(TARGET), "Targets for this model instead of the common ones.")},
    ("path",),
)
INCLUDE = Section(
    "an included cell",
    "Cells beside the product: one model on one target, with its own lists.",
    PATH | INPUTS | AXES | OWN_BATCH | OPTIONS | HARDWARE | RUNNER,
    ("path",),
)
EXCLUDE = Section(
    "an exclusion",
    "Cells that match all of these are left out.",
    PATH
    | {name: Field(listing(row.kind), row.about) for name, row in (HARDWARE | {"tuning": OPTIONS["tuning"]}).items()}
    | AXES,
)
MATRIX = Section(
    "the matrix",
    "Which programs a fleet needs: models x targets x batches or shapes x precisions x consumers.",
    {
        "version": Field(kinds.ONE, "Version of this form: 1."),
        "defaults": Field(DEFAULTS.kind, DEFAULTS.about),
        "models": Field(several(MODEL), "The models, with what is special about each."),
        **AXES,
        "targets": Field(several(TARGET), "The targets that all models are compiled for."),
        "include": Field(several(INCLUDE), INCLUDE.about),
        "exclude": Field(several(EXCLUDE), EXCLUDE.about),
        "limit": Field(kinds.LIMIT, "The largest number of combinations that is not a mistake."),
    },
    ("version",),
)
