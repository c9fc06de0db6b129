"""Runs ONNX Runtime's optimizer in a child interpreter, to get the graph that its providers receive, with all shapes.

It uses only the CPU provider, so it needs neither a GPU nor ROCm. It must be the version that will serve the model,
because each version folds and fuses nodes differently.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxr.onnxfile.writing import field

from .graph import Graph, Sizes, depth_first, read_graph
from .name_fields import PredictionRefused
from .skeleton import BRAIN, DOUBLE, FLOAT, HALF, Unsuited, write_skeleton

PATIENCE = 600.0
"""Seconds for the start and for each graph: a large graph takes minutes on a busy machine."""

INSERTED = "InsertedPrecisionFreeCast_"
"""The prefix of the names of casts that ONNX Runtime inserts to compute half precision on the CPU.
Source: microsoft/onnxruntime, onnxruntime/core/optimizer/insert_cast_transformer.cc."""

INLINED = "_inlfunc_"
"""Part of names in functions that ONNX Runtime inlined because the CPU has no kernel for their types."""


@dataclass(frozen=True, slots=True)
class OptimizedGraph:
    """The graph that a provider receives: nodes in its traversal order, shapes of all values, open dims None."""

    graph: Graph
    version: str


class Optimizer:
    """A child interpreter that has imported ONNX Runtime."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, patience: float) -> None:
        self._process = process
        self._patience = patience
        self.folder = folder
        self.version = str(self._read().get("version"))

    def optimize(self, model: Path, level: str) -> Graph:
        """The graph of `model` after optimization at this level. Raises `PredictionRefused`."""
        out = model.with_name(f"out-{model.name}")
        self._ask({"model": str(model), "level": level, "out": str(out)})
        return read_graph(out)

    def shapes(self, model: Path, graph: Graph) -> Mapping[str, Sizes | None]:
        """The shapes of all values of an optimized graph, as ONNX Runtime infers them. Raises `PredictionRefused`."""
        names = [name for node in graph.nodes for name in node.outputs if name and name not in graph.outputs]
        shown = b"".join(field(12, field(1, name)) for name in names)
        wide = model.with_name(f"wide-{model.name}")
        # Protobuf merges repeated occurrences of a message, so appending a second graph field extends the graph.
        wide.write_bytes(model.with_name(f"out-{model.name}").read_bytes() + field(7, shown))
        found = self._ask({"model": str(wide), "level": "disable"})["shapes"]
        inferred = {name: tuple(dim if isinstance(dim, int) else None for dim in dims) for name, dims in found.items()}
        return {**graph.shapes, **inferred}

    def _ask(self, task: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
        reply = self._read()
        if "error" in reply:
            raise PredictionRefused(f"ONNX Runtime cannot open it on the CPU: {' '.join(reply['error'].split())[:200]}")
        return reply

    def _read(self) -> dict[str, Any]:
        line, late = self._line()
        if late:
            raise PredictionRefused(
                f"ONNX Runtime gave no answer within {self._patience:g} s",
                "Try again when the machine is less busy, or give another interpreter: --ort-python PATH.",
            )
        if not line:
            raise PredictionRefused(
                "the interpreter has no ONNX Runtime, or it does not start",
                "Give an interpreter that has the version that will serve the model: --ort-python PATH.",
            )
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def _line(self) -> tuple[str, bool]:
        """The next line, empty if the child has ended, and whether it was killed because of the timeout."""
        from threading import Event, Timer

        assert self._process.stdout is not None
        late = Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = Timer(self._patience, end)
        timer.daemon = True
        timer.start()
        try:
            line = self._process.stdout.readline()
            while line and not line.startswith("{"):  # some builds of ONNX Runtime print a greeting
                line = self._process.stdout.readline()
        finally:
            timer.cancel()
        return line, late.is_set() and not line


@contextmanager
def started(python: str, patience: float = PATIENCE) -> Iterator[Optimizer]:
    """Start a child of this interpreter and kills it after the block. `patience`: seconds for one answer.

    Raises `PredictionRefused`.
    """
    source = Path(__file__).with_name("child.py").read_text()
    with tempfile.TemporaryDirectory(prefix="mxr-ort-") as folder:
        try:
            process = subprocess.Popen(
                [python, "-c", source],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=folder,
            )
        except OSError as problem:
            raise PredictionRefused(
                f"{python} does not start ({problem.strerror})", "Give another interpreter: --ort-python PATH."
            ) from None
        with process:
            try:
                yield Optimizer(process, Path(folder), patience)
            finally:
                process.kill()


def optimized_graph(
    model: Path, original: Graph, types: frozenset[str], optimizer: Optimizer, level: str
) -> OptimizedGraph:
    """The graph of `model` that a provider receives. Raises `PredictionRefused` if that needs the provider itself."""
    path = optimizer.folder / "model.onnx"
    graph = _seen(model, original, types, optimizer, path, level)
    if not graph.nodes:
        raise PredictionRefused("no node is left for a provider after ONNX Runtime has folded the constants")
    # ONNX Runtime saves an unchanged graph in file order, and a changed one in traversal order.
    order = depth_first(graph.nodes, range(len(graph.nodes))) if _untouched(original, graph) else None
    shapes = optimizer.shapes(path, graph)
    nodes = graph.nodes if order is None else tuple(graph.nodes[at] for at in order)
    return OptimizedGraph(replace(graph, nodes=nodes, shapes=shapes), optimizer.version)


def _seen(model: Path, original: Graph, types: frozenset[str], optimizer: Optimizer, path: Path, level: str) -> Graph:
    changes = _changed_types(types)
    if changes:
        _refuse_folding(original)
    if not changes:
        return _optimized(optimizer, model, path, level, {})
    plain = _optimized(optimizer, model, optimizer.folder / "plain.onnx", level, {})
    *first, last = changes
    for change in first:
        with suppress(PredictionRefused):
            return _compared(_optimized(optimizer, model, path, level, change), plain)
    return _compared(_optimized(optimizer, model, path, level, last), plain)


def _optimized(optimizer: Optimizer, model: Path, path: Path, level: str, change: Mapping[int, int]) -> Graph:
    try:
        write_skeleton(model, path, change)
    except Unsuited as problem:
        raise PredictionRefused(str(problem)) from None
    return optimizer.optimize(path, level)


def _changed_types(types: frozenset[str]) -> list[dict[int, int]]:
    """Substitute for half-precision types, for which the CPU has kernels; distinct types stay distinct.

    The most promising substitution is first.
    """
    halves = types & {"float16", "bfloat16"}
    if not halves:
        return []
    if len(halves) == 2 or ("float32" in types and "float64" in types):
        raise PredictionRefused(f"it mixes too many precisions ({', '.join(sorted(types))})")
    if "float32" in types:
        return [{HALF: FLOAT, BRAIN: FLOAT, FLOAT: DOUBLE}, {HALF: DOUBLE, BRAIN: DOUBLE}]
    return [{HALF: FLOAT, BRAIN: FLOAT}]


def _untouched(before: Graph, after: Graph) -> bool:
    """Whether the graphs are equal except for Constant nodes, which ONNX Runtime removes when it reads a model."""

    def rows(graph: Graph) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        return [(node.op, node.inputs, node.outputs) for node in graph.nodes if node.op != "Constant"]

    return rows(before) == rows(after)


MOVERS = frozenset(
    ("Cast", "Concat", "Constant", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Slice", "Split",
     "Squeeze", "Tile", "Transpose", "Unsqueeze")
)  # fmt: skip
"""Operators that only move data, for which ONNX Runtime's CPU provider has half-precision kernels."""


def _refuse_folding(graph: Graph) -> None:
    """Raise `PredictionRefused` if nodes compute in half precision from constants.

    ONNX Runtime folds such nodes only if the CPU has a kernel for them, otherwise they stay in the graph.
    """
    constant = {name: graph.types[name] in (HALF, BRAIN) for name in graph.initializers}
    for node in graph.nodes:
        names = [name for name in node.inputs if name]
        if node.op != "Constant" and not (names and all(name in constant for name in names)):
            continue
        halves = any(constant[name] for name in names)
        if halves and node.op not in MOVERS:
            raise PredictionRefused(
                f"it computes in half precision from constants only ({node.op}), which depends on the machine"
            )
        if node.op in ("Cast", "Constant"):
            chosen = node.attributes.get("to") or node.attributes.get("value")
            halves = chosen is not None and {chosen.i, chosen.kind} & {HALF, BRAIN} != set()
        constant |= dict.fromkeys(node.outputs, halves and node.op != "Shape")


def _compared(graph: Graph, plain: Graph) -> Graph:
    """Return `graph`. Raises `PredictionRefused` if it was optimized differently in its own precision.

    `graph` was optimized with substituted types, `plain` with its own.
    """
    own, theirs = _rows(graph), _rows(plain)
    written_out = {outputs for op, _, outputs in own} - {outputs for op, _, outputs in theirs}
    inlined = {node.outputs for node in plain.nodes if any(INLINED in name for name in node.inputs)}
    unsure = {row for row in own - theirs if row[2] not in _cleaned_all(inlined)}
    extra = {row for row in theirs - own if not any(INLINED in name for name in (*row[1], *row[2]))}
    if unsure or (extra and not written_out <= _cleaned_all(inlined)):
        ops = sorted({op for op, _, _ in unsure | extra})
        raise PredictionRefused(f"ONNX Runtime optimizes it differently in half precision ({', '.join(ops[:4])})")
    return graph


def _cleaned_all(rows: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {tuple(map(_clean, outputs)) for outputs in rows}


def _clean(name: str) -> str:
    while name.startswith(INSERTED):
        name = name.removeprefix(INSERTED)
    return name


def _rows(graph: Graph) -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """The nodes without casts: each value is replaced by the value that it was cast from."""
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "Cast":
            source = _clean(node.inputs[0])
            if _clean(node.outputs[0]) != source:
                roots[_clean(node.outputs[0])] = source

    def root(name: str) -> str:
        name = _clean(name)
        while name in roots:
            name = roots[name]
        return name

    return {
        (node.op, tuple(map(root, node.inputs)), tuple(map(_clean, node.outputs)))
        for node in graph.nodes
        if node.op != "Cast"
    }
