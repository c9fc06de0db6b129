"""Expands a matrix to its cells: the product in file order, without excluded cells and without duplicates."""

from __future__ import annotations

import fnmatch
import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import mxr.facts as facts
from mxr.artifact import compile_support, target
from mxr.artifact.key import MODEL, MODEL_PREFIX
from mxr.artifact.target import GfxArch, Inputs
from mxr.errors import UsageError
from mxr.request.builder import RequestOptions
from mxr.util.frozen import dataclass

from .document import DocumentNode
from .fields import MAX_MODELS, SectionValues, SourcedValue, check_known
from .matrix_file import Matrix

HARDWARE = tuple(name for name in facts.names(facts.HARDWARE) if name not in ("kind", "migraphx"))
"""Fields that a reference target does not have."""

NOTHING = SourcedValue(None, DocumentNode("", 0))


@dataclass(frozen=True, slots=True)
class Cell:
    """One program of the matrix. `model` is a path or `sha256:...`; `line` is its line in the matrix.

    `name` is the model as written in the matrix, `target_line` the line of the target, `runner` the CI runner labels of
    the target.
    """

    model: Path | str
    options: RequestOptions
    line: int
    name: str
    target_line: int
    runner: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The target in short form, such as `gfx942/304cu/rocm7.2/migraphx2.15`."""
        options = self.options
        cus = f"{options.num_cu}cu" if options.num_cu else None
        chiplets = f"{options.chiplets}xcc" if options.chiplets else None
        vendor = options.vendor if options.vendor != "amd" else None
        userland = f"{'dtk' if vendor else 'rocm'}{options.rocm}" if options.rocm else None
        parts = (vendor, options.arch or options.kind, cus, chiplets, userland, f"migraphx{options.migraphx}")
        return "/".join(part for part in parts if part)

    @property
    def variant(self) -> str:
        """The variant of the model in short form, such as `batch 8 fp16 python`."""
        options = self.options
        shapes = " ".join(f"{name}={target.show_dims(shape)}" for name, shape in options.inputs)
        batch = f"batch {options.batch}" if options.batch is not None and not shapes else shapes
        flags = [
            f"{name}={'on' if value else 'off'}"
            for name, value in (("offload_copy", options.offload_copy), ("fast_math", options.fast_math))
            if value is not None
        ]
        env = [f"{name}={value}" for name, value in (*options.env.items(), *options.options.items())]
        tuning = options.tuning if options.tuning != "default" else None
        return " ".join(part for part in (batch, options.precision, options.consumer, tuning, *flags, *env) if part)


@dataclass(frozen=True, slots=True)
class _Row:
    """A model or an included cell with its targets. `outer` are the sections with its defaults, nearest first."""

    entry: SectionValues
    models: Sequence[tuple[Path | str, str]]
    targets: Sequence[SectionValues]
    outer: Sequence[SectionValues]

    def axis(self, name: str) -> tuple[SourcedValue, ...]:
        """The values of an axis; the single value None if no section gives it."""
        given = _first((self.entry, *self.outer), name)
        return (given.value if given else ()) or (NOTHING,)

    def shapes(self) -> list[tuple[SourcedValue, SourcedValue]]:
        """Pairs of inputs and batch. Inputs without a symbol are combined only with the model's own batch."""
        inputs, found = self.axis("inputs"), []
        for shape in inputs:
            fixed = shape.value is not None and not _symbols(shape.value)
            batches = (NOTHING,) if fixed and self.entry.get("batch") is None else self.axis("batch")
            found += [(shape, batch) for batch in batches]
        return found

    def size(self) -> int:
        """The number of combinations."""
        counts = (self.models, self.targets, self.shapes(), self.axis("precision"), self.axis("for"))
        total = 1
        for count in counts:
            total *= len(count)
        return total


def cells(matrix: Matrix) -> tuple[Cell, ...]:
    """Return the cells without duplicates, in file order.

    Raises `UsageError` with the line for a model that does not exist, an unknown arch, a precision that an arch does
    not support, more combinations than the limit, and a matrix without cells.
    """
    rows = [*_of_models(matrix), *_of_includes(matrix)]
    total = sum(row.size() for row in rows)
    node = matrix.entry.node
    if total > matrix.limit:
        hint = f"If this is intended, pass --limit {total} or write `limit: {total}`."
        raise node.error(f"The matrix has {total} combinations; the limit is {matrix.limit}.", hint)
    found: dict[tuple[object, ...], Cell] = {}
    excludes = matrix.sections("exclude")
    for row in rows:
        for cell, precision in _expanded(matrix, row):
            if not any(_matches(entry, cell.name, cell.options) for entry in excludes):
                _check_precision(cell, precision or DocumentNode(node.file, cell.line))
                found.setdefault((str(cell.model), repr(cell.options)), cell)
    if not found:
        why = f"`exclude` matches all {total} combinations" if total else "there is no model with a target"
        raise node.error(f"There is nothing to compile: {why}.", "Add models and targets, or exclude less.")
    return tuple(found.values())


def _of_models(matrix: Matrix) -> Iterator[_Row]:
    outer = (matrix.entry, matrix.section("defaults"))
    common = matrix.sections("targets")
    for entry in matrix.sections("models"):
        own = entry.get("targets")
        targets = own.value if own else common
        if not targets:
            raise entry.node.error("This model has no target.", "Add `targets:`, for example - {kind: ref}.")
        yield _Row(entry, _models(matrix, entry), targets, outer)


def _of_includes(matrix: Matrix) -> Iterator[_Row]:
    for entry in matrix.sections("include"):
        yield _Row(entry, _models(matrix, entry), (entry,), (matrix.section("defaults"),))


def _models(matrix: Matrix, entry: SectionValues) -> list[tuple[Path | str, str]]:
    path = entry.values["path"]
    text, node = path.value, path.node
    if text.startswith(MODEL_PREFIX):
        if not MODEL.fullmatch(text):
            raise node.error(f"{text[:80]!r} is not the identity of a model.", "Write sha256: and all 64 hex digits.")
        return [(text, text)]
    # Also for a glob: its folders outside are not even listed.
    matrix.file(str(Path(*itertools.takewhile(lambda part: not glob.has_magic(part), Path(text).parts))), node)
    if (matrix.folder / text).is_file():
        return [(matrix.folder / text, text)]
    if not glob.has_magic(text):
        raise node.error(f"The model {text} does not exist.", f"Paths are relative to {matrix.folder}/.")
    found = sorted(glob.glob(text, root_dir=matrix.folder, recursive=True))  # noqa: PTH207 - Path.glob rejects `..`
    files = [(matrix.file(each, node), each) for each in found if (matrix.folder / each).is_file()]
    if not files or len(files) > MAX_MODELS:
        what = f"{len(files)} files match" if files else "No file matches"
        raise node.error(f"{what} {text}.", f"Paths are relative to {matrix.folder}/. Use a more specific path.")
    return list(files)


def _expanded(matrix: Matrix, row: _Row) -> Iterator[tuple[Cell, DocumentNode]]:
    """The cells of a row, each with the node of its precision."""
    shapes, axes = row.shapes(), (row.axis("precision"), row.axis("for"))
    sides = [(side, _Layers((side, *row.outer), (row.entry, side, *row.outer))) for side in row.targets]
    hardware = [_hardware(side, layers) for side, layers in sides]
    for model, name in row.models:
        for (side, layers), fixed in zip(sides, hardware, strict=True):
            runner = side.get("runner")
            labels = tuple(each.value for each in runner.value) if runner else ()
            for (inputs, batch), precision, consumer in product(shapes, *axes):
                options = RequestOptions(
                    **fixed,
                    **_shaped(inputs, batch),
                    **_flags(matrix, layers, precision.value),
                    precision=precision.value or "fp32",
                    consumer=consumer.value or "python",
                )
                line = row.entry.node.line
                yield Cell(model, options, line, name, side.node.line, labels), precision.node


def _matches(entry: SectionValues, name: str, options: RequestOptions) -> bool:
    """Whether a cell matches every field of an exclusion. `name` is its model as written in the matrix."""
    for field, given in entry.values.items():
        if field == "path":
            if not (name == given.value or fnmatch.fnmatchcase(name, given.value)):
                return False
        elif not any(_equal(field, each, options) for each in given.value):
            return False
    return True


def _equal(field: str, wanted: SourcedValue, options: RequestOptions) -> bool:
    found = getattr(options, "consumer" if field == "for" else field)
    if field == "arch":
        return found is not None and (found == wanted.value or found.partition(":")[0] == wanted.value)
    if field in ("rocm", "migraphx"):
        return found is not None and (found == wanted.value or found.startswith(wanted.value + "."))
    defaults = {"vendor": "amd" if options.kind == "gpu" else None, "tuning": "default"}
    return bool((found if found is not None else defaults.get(field)) == wanted.value)


class _Layers:
    """The sections that apply to a cell, nearest first: `hardware` for its target fields, `all` for other fields."""

    def __init__(self, hardware: Sequence[SectionValues], all: Sequence[SectionValues]) -> None:
        self.hardware, self.all = hardware, all


def _first(layers: Sequence[SectionValues], name: str) -> SourcedValue | None:
    return next((given for entry in layers if (given := entry.get(name)) is not None), None)


def _hardware(side: SectionValues, layers: _Layers) -> dict[str, Any]:
    """The fields of a target. Raises `UsageError` if a field is missing that a key requires."""
    given = {name: _first(layers.hardware, name) for name in ("kind", *HARDWARE, "migraphx")}
    kind = given["kind"].value if given["kind"] else "gpu"
    names = HARDWARE if kind == "gpu" else ()
    for name in (*(("arch", "rocm") if names else ()), "migraphx"):
        if given[name] is None:
            example = {"arch": "gfx908", "rocm": '"7.2"', "migraphx": '"2.15"'}[name]
            hint = f"Write {name}: {example} here, or under defaults."
            raise side.node.error(f"This target has no {name}.", hint)
    found = {name: each.value for name in (*names, "migraphx") if (each := given[name]) is not None}
    arch = given["arch"]
    if arch is not None and kind == "gpu" and found.get("vendor", "amd") == "amd":
        check_known(arch.value, arch.node)
    return {"kind": kind, **found}


def _symbols(shape: Mapping[str, SourcedValue]) -> dict[str, SourcedValue]:
    """The symbols of the shapes, each with a node that contains it."""
    return {dim.value: dim for dims in shape.values() for dim in dims.value if isinstance(dim.value, str)}


def _shaped(inputs: SourcedValue, batch: SourcedValue) -> dict[str, Any]:
    """The inputs with the batch in place of their symbol. The batch is kept if it is the first dim of all inputs."""
    if inputs.value is None:
        return {"batch": batch.value}
    symbols = _symbols(inputs.value)
    if len(symbols) > 1:
        both = " and ".join(symbols)
        hint = "Only the batch can be a symbol: write sizes for the other dims."
        raise inputs.node.error(f"These inputs have several symbols, {both}.", hint)
    if symbols and batch.value is None:
        name, place = next(iter(symbols.items()))
        raise place.node.error(f"{name} has no value.", "Write `batch: [1, 8]` for this model, or for all.")
    filled: Inputs = tuple(
        (name, tuple(batch.value if isinstance(dim.value, str) else dim.value for dim in dims.value))
        for name, dims in inputs.value.items()
    )
    first = all(isinstance(dims.value[0].value, str) for dims in inputs.value.values() if dims.value)
    rest = any(isinstance(dim.value, str) for dims in inputs.value.values() for dim in dims.value[1:])
    return {"inputs": filled, "batch": batch.value if first and not rest else None}


def _flags(matrix: Matrix, layers: _Layers, precision: str | None) -> dict[str, Any]:
    """The compile options that are not axes. Calibration data applies only to precisions that use it."""
    found: dict[str, Any] = {}
    for fact in facts.FACTS:
        given = _first(layers.all, fact.name) if fact.has(facts.OPTION) else None
        if given is None:
            continue
        if fact.kind == facts.NAMES:
            found[fact.name] = _merged(layers, fact.name)
        elif fact.kind == facts.LIST:
            found[fact.name] = tuple(dict.fromkeys(each.value for each in given.value))
        elif fact.kind != facts.PATH:
            found[fact.name] = given.value
        elif {"int8", "fp8"} & set((precision or "").split("+")):
            found[fact.name] = _calibration(matrix, given)
    return found


def _merged(layers: _Layers, field: str) -> dict[str, str]:
    """A mapping of the matrix, to which each layer adds names; the nearest value of a name counts."""
    found: dict[str, str] = {}
    for entry in reversed(layers.all):
        given = entry.get(field)
        found.update({name: each.value for name, each in given.value.items()} if given else {})
    return dict(sorted(found.items()))


def _calibration(matrix: Matrix, data: SourcedValue) -> Path:
    path = matrix.file(data.value, data.node)
    if not path.is_file():
        hint = f"Paths are relative to {matrix.folder}/."
        raise data.node.error(f"The calibration file {data.value} does not exist.", hint)
    return path


def _check_precision(cell: Cell, place: DocumentNode) -> None:
    options = cell.options
    arch = GfxArch.parse(options.arch).base if options.arch else None
    word = compile_support.impossible_precision(
        arch, options.vendor, target.parse_precision(options.precision or "fp32")
    )
    if word is not None:
        raise place.error(
            f"{word} does not run on {arch} (the target in line {cell.target_line}).",
            f"{compile_support.archs_with(word)} Leave it out, or exclude"
            f" - {{arch: {arch}, precision: {options.precision}}}.",
        )


def select(found: Sequence[Cell], targets: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells of these targets, of all without any. Raises `UsageError` for a target that there is not."""
    known = dict.fromkeys(cell.target for cell in found)
    for name in targets:
        if name not in known:
            raise UsageError(f"The matrix has no target {name!r}.", hint=f"Its targets: {', '.join(known)}.")
    return tuple(cell for cell in found if not targets or cell.target in targets)
