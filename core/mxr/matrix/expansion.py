"""From a matrix to its cells: the product in the order of the file, with what is excluded left out, each cell once."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from mxr.artifact import precision_support, target
from mxr.artifact.key import MODEL
from mxr.artifact.target import GfxArch, Inputs
from mxr.request.builder import Options
from mxr.util.frozen import dataclass

from .document import DocumentNode
from .excluding import excluded
from .kinds import MOST_MODELS, SourcedValue, check_known
from .reading import Matrix
from .table import SectionValues

HARDWARE = ("vendor", "arch", "num_cu", "chiplets", "rocm")
"""What a reference target does not have."""

FLAGS = ("tuning", "offload_copy", "fast_math")
NOTHING = SourcedValue(None, DocumentNode("", 0))


@dataclass(frozen=True, slots=True)
class Cell:
    """One wanted program: `model` is a path or `xxh3:...`, `line` where it is wanted in the matrix.

    `name` is the model as the matrix writes it, `target_line` where its target stands, `runner` the target's labels.
    """

    model: Path | str
    options: Options
    line: int
    name: str
    target_line: int
    runner: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """Where it runs, in one word: `gfx942/304cu/rocm7.2/migraphx2.15`."""
        said = self.options
        counts = (f"{said.num_cu}cu" if said.num_cu else None, f"{said.chiplets}xcc" if said.chiplets else None)
        vendor = said.vendor if said.vendor != "amd" else None
        userland = f"{'dtk' if vendor else 'rocm'}{said.rocm}" if said.rocm else None
        parts = (vendor, said.arch or said.kind, *counts, userland, f"migraphx{said.migraphx}")
        return "/".join(part for part in parts if part)

    @property
    def variant(self) -> str:
        """What of the model, for whom: `batch 8 fp16 python`."""
        said = self.options
        shapes = " ".join(f"{name}={target.show_dims(shape)}" for name, shape in said.inputs)
        batch = f"batch {said.batch}" if said.batch is not None and not shapes else shapes
        flags = [
            f"{name}={'on' if value else 'off'}"
            for name, value in (("offload_copy", said.offload_copy), ("fast_math", said.fast_math))
            if value is not None
        ]
        env = [f"{name}={value}" for name, value in said.env.items()]
        tuning = said.tuning if said.tuning != "default" else None
        return " ".join(part for part in (batch, said.precision, said.consumer, tuning, *flags, *env) if part)


@dataclass(frozen=True, slots=True)
class _Row:
    """A model or an included cell with its targets; `layers` are the entries that speak for it, nearest first."""

    entry: SectionValues
    models: Sequence[tuple[Path | str, str]]
    targets: Sequence[SectionValues]
    outer: Sequence[SectionValues]

    def axis(self, name: str) -> tuple[SourcedValue, ...]:
        """The values of an axis; one that nobody says has the one value None."""
        for entry in (self.entry, *self.outer):
            said = entry.get(name)
            if said is not None:
                return said.value or (NOTHING,)
        return (NOTHING,)

    def shapes(self) -> list[tuple[SourcedValue, SourcedValue]]:
        """Pairs of inputs and batch: inputs without a symbol go with the model's own batch only."""
        inputs, found = self.axis("inputs"), []
        for shape in inputs:
            fixed = shape.value is not None and not _symbols(shape.value)
            batches = (NOTHING,) if fixed and self.entry.get("batch") is None else self.axis("batch")
            found += [(shape, batch) for batch in batches]
        return found

    def size(self) -> int:
        """How many combinations it stands for."""
        counts = (self.models, self.targets, self.shapes(), self.axis("precision"), self.axis("for"))
        total = 1
        for each in counts:
            total *= len(each)
        return total


def cells(matrix: Matrix) -> tuple[Cell, ...]:
    """Every cell once, in the order of the file.

    Raises `Usage` with the line for a model that is not there, an arch that there is not, a precision that an arch
    cannot run, more combinations than the limit, and where nothing is left.
    """
    rows = [*_of_models(matrix), *_of_includes(matrix)]
    total = sum(row.size() for row in rows)
    node = matrix.entry.node
    if total > matrix.limit:
        hint = f"If that is meant, give --limit {total}, or write `limit: {total}`."
        raise node.refuse(f"This is {total} combinations, more than the limit of {matrix.limit}.", hint)
    found: dict[tuple[object, ...], Cell] = {}
    excludes = matrix.sections("exclude")
    for row in rows:
        for cell, precision in _expanded(matrix, row):
            if not excluded(cell.name, cell.options, excludes):
                _check_precision(cell, precision or DocumentNode(node.file, cell.line))
                found.setdefault((str(cell.model), repr(cell.options)), cell)
    if not found:
        what = f"`exclude` takes all {total} combinations" if total else "no model meets a target"
        raise node.refuse(f"There is nothing to compile: {what}.", "Write models and targets that remain.")
    return tuple(found.values())


def _of_models(matrix: Matrix) -> Iterator[_Row]:
    outer = (matrix.entry, matrix.section("defaults"))
    common = matrix.sections("targets")
    for entry in matrix.sections("models"):
        own = entry.get("targets")
        targets = own.value if own else common
        if not targets:
            raise entry.node.refuse(
                "No target is given for this model.", "Write `targets:`, for example - {kind: ref}."
            )
        yield _Row(entry, _models(matrix, entry), targets, outer)


def _of_includes(matrix: Matrix) -> Iterator[_Row]:
    for entry in matrix.sections("include"):
        yield _Row(entry, _models(matrix, entry), (entry,), (matrix.section("defaults"),))


def _models(matrix: Matrix, entry: SectionValues) -> list[tuple[Path | str, str]]:
    said = entry.said["path"]
    text, node = said.value, said.node
    if text.startswith("xxh3:"):
        if not MODEL.fullmatch(text):
            raise node.refuse(f"{text[:60]!r} is not a model hash.", "Write xxh3: and 32 hex digits.")
        return [(text, text)]
    if (matrix.folder / text).is_file():
        return [(matrix.folder / text, text)]
    if not glob.has_magic(text):
        raise node.refuse(f"There is no model {text}.", f"Paths are relative to {matrix.folder}/.")
    found = sorted(glob.glob(text, root_dir=matrix.folder, recursive=True))  # noqa: PTH207 - Path.glob refuses `..`
    files = [(matrix.folder / each, each) for each in found if (matrix.folder / each).is_file()]
    if not files or len(files) > MOST_MODELS:
        what = f"{len(files)} files match" if files else "No file matches"
        raise node.refuse(f"{what} {text}.", f"Paths are relative to {matrix.folder}/; name what is meant.")
    return list(files)


def _expanded(matrix: Matrix, row: _Row) -> Iterator[tuple[Cell, DocumentNode]]:
    """The cells of a row, each with the place that says its precision."""
    shapes, axes = row.shapes(), (row.axis("precision"), row.axis("for"))
    sides = [(side, _Layers((side, *row.outer), (row.entry, side, *row.outer))) for side in row.targets]
    hardware = [_hardware(side, layers) for side, layers in sides]
    for model, name in row.models:
        for (side, layers), fixed in zip(sides, hardware, strict=True):
            runner = side.get("runner")
            labels = tuple(each.value for each in runner.value) if runner else ()
            for (inputs, batch), precision, consumer in product(shapes, *axes):
                options = Options(
                    **fixed,
                    **_shaped(inputs, batch),
                    **_flags(matrix, layers, precision.value),
                    precision=precision.value or "fp32",
                    consumer=consumer.value or "python",
                )
                line = row.entry.node.line
                yield Cell(model, options, line, name, side.node.line, labels), precision.node


class _Layers:
    """The entries that speak for a cell, nearest first: `hardware` of its target, `all` of everything else."""

    def __init__(self, hardware: Sequence[SectionValues], all: Sequence[SectionValues]) -> None:
        self.hardware, self.all = hardware, all


def _first(layers: Sequence[SectionValues], name: str) -> SourcedValue | None:
    return next((said for entry in layers if (said := entry.get(name)) is not None), None)


def _hardware(side: SectionValues, layers: _Layers) -> dict[str, Any]:
    """The fields of a target. Raises `Usage` where one is missing that a key needs."""
    said = {name: _first(layers.hardware, name) for name in ("kind", *HARDWARE, "migraphx")}
    kind = said["kind"].value if said["kind"] else "gpu"
    names = HARDWARE if kind == "gpu" else ()
    for name in (*(("arch", "rocm") if names else ()), "migraphx"):
        if said[name] is None:
            example = {"arch": "gfx908", "rocm": '"7.2"', "migraphx": '"2.15"'}[name]
            hint = f"Write {name}: {example} here, or under defaults."
            raise side.node.refuse(f"This target says no {name}.", hint)
    found = {name: each.value for name in (*names, "migraphx") if (each := said[name]) is not None}
    arch = said["arch"]
    if arch is not None and kind == "gpu" and found.get("vendor", "amd") == "amd":
        check_known(arch.value, arch.node)
    return {"kind": kind, **found}


def _symbols(shape: Mapping[str, SourcedValue]) -> dict[str, SourcedValue]:
    """The symbols of a shape, each with a place where it stands."""
    return {dim.value: dim for said in shape.values() for dim in said.value if isinstance(dim.value, str)}


def _shaped(inputs: SourcedValue, batch: SourcedValue) -> dict[str, Any]:
    """Inputs with their symbol filled by the batch; the batch itself goes on where it is the first dim of all."""
    if inputs.value is None:
        return {"batch": batch.value}
    symbols = _symbols(inputs.value)
    if len(symbols) > 1:
        both = " and ".join(symbols)
        raise inputs.node.refuse(f"These inputs have two symbols, {both}.", "Only the batch is filled in: write sizes.")
    if symbols and batch.value is None:
        name, place = next(iter(symbols.items()))
        raise place.node.refuse(f"{name} has no value.", "Write `batch: [1, 8]` for this model, or for all.")
    filled: Inputs = tuple(
        (name, tuple(batch.value if isinstance(dim.value, str) else dim.value for dim in said.value))
        for name, said in inputs.value.items()
    )
    first = all(isinstance(said.value[0].value, str) for said in inputs.value.values() if said.value)
    rest = any(isinstance(dim.value, str) for said in inputs.value.values() for dim in said.value[1:])
    return {"inputs": filled, "batch": batch.value if first and not rest else None}


def _flags(matrix: Matrix, layers: _Layers, precision: str | None) -> dict[str, Any]:
    """What is said of the compile beside the axes; calibration data only for what is calibrated."""
    found = {name: said.value for name in FLAGS if (said := _first(layers.all, name)) is not None}
    allow, exact = _first(layers.all, "allow"), _first(layers.all, "exact")
    env = {}
    for entry in reversed(layers.all):
        said = entry.get("env")
        env.update({name: each.value for name, each in said.value.items()} if said else {})
    data = _first(layers.all, "calibration")
    if data is not None and {"int8", "fp8"} & set((precision or "").split("+")):
        found["calibration"] = _calibration(matrix, data)
    return found | {
        "env": dict(sorted(env.items())),
        "exact": bool(exact and exact.value),
        "allow": tuple(dict.fromkeys(each.value for each in allow.value)) if allow else (),
    }


def _calibration(matrix: Matrix, data: SourcedValue) -> Path:
    path: Path = matrix.folder / data.value
    if not path.is_file():
        raise data.node.refuse(f"There is no calibration file {data.value}.", f"It is looked for in {matrix.folder}/.")
    return path


def _check_precision(cell: Cell, place: DocumentNode) -> None:
    options = cell.options
    arch = GfxArch.parse(options.arch).base if options.arch else None
    word = precision_support.impossible(arch, options.vendor, target.parse_precision(options.precision or "fp32"))
    if word is not None:
        raise place.refuse(
            f"{word} does not run on {arch} (the target in line {cell.target_line}).",
            f"{precision_support.where(word)} Leave it out, or exclude"
            f" - {{arch: {arch}, precision: {options.precision}}}.",
        )
