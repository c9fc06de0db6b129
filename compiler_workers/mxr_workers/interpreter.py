"""The interpreter that has migraphx: how its children are started, what it offers, and whether its targets work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxr.consumers.ort.form import OrtRuntime
from mxr.errors import Usage
from mxr_workers.failures import CompileFailure, classify
from mxr_workers.sandbox import ChildLimits, ChildObserver, ChildResult, run_child

from .child_environment import child_environment
from .child_log import ChildLog

CHILD = Path(__file__).parent / "compiler"
ABOUT = ChildLimits(seconds=120, memory=8 << 30)
PROBE = ChildLimits(seconds=180, memory=16 << 30)
"""The first HIP program after a driver's start may take a minute."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`python`: its absolute path. `outer`: the worker's environment, of which children see what is allowed."""

    python: Path
    outer: Mapping[str, str]

    def argv(self, verb: str) -> list[str]:
        """The command of a child; without byte code, as the folder may not be ours to write in."""
        return [str(self.python), "-B", str(CHILD), verb]

    def run(
        self,
        verb: str,
        order: Mapping[str, Any],
        folder: Path,
        limits: ChildLimits,
        *,
        environment: Mapping[str, str] | None = None,
        log: ChildLog | None = None,
        watch: ChildObserver | None = None,
    ) -> ChildResult:
        """Run one child in `folder`; without `environment` it sees no MIGRAPHX_* at all."""
        seen = environment if environment is not None else child_environment(self.outer, folder, {})
        return run_child(self.argv(verb), order, folder, seen, limits, log=log, watch=watch)


@dataclass(frozen=True, slots=True)
class InterpreterInfo:
    """What an interpreter offers. `migraphx` is None where neither module nor file tells the version (2.0 to 2.6).

    `targets` are those whose library loads, which does not mean that they work: see `probe`. `refusals` say why others
    did not. `precisions` are those that its module can quantise to. `ort`: the ONNX Runtime beside it whose MIGraphX
    provider works.
    """

    python: str
    migraphx: str | None
    build: str
    targets: tuple[str, ...]
    precisions: tuple[str, ...]
    features: Mapping[str, bool]
    refusals: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None
    numpy: str | None = None
    ort: OrtRuntime | None = None


def ask(interpreter: Interpreter, folder: Path, limits: ChildLimits = ABOUT) -> InterpreterInfo:
    """Ask the interpreter, in a child. Raises `Usage` where it has no usable migraphx, saying why."""
    log = ChildLog()
    try:
        ending = interpreter.run("about", {}, folder, limits, log=log)
    except OSError as error:
        raise Usage(
            f"{folder} cannot be used: {error.strerror}.", hint="Name a folder that the worker may write in."
        ) from error
    if not ending.done:
        failure = classify(ending, log.tail, memory=limits.memory)
        raise Usage(failure.message, hint=_hint(failure))
    found = dict(ending.result or {})
    return InterpreterInfo(**{**found, "targets": tuple(found["targets"]), "precisions": tuple(found["precisions"])})


def probe(interpreter: Interpreter, kind: str, folder: Path, limits: ChildLimits = PROBE) -> CompileFailure | None:
    """Compile and run a sum on a target, in a child: None when it works, else what is wrong with it."""
    log = ChildLog()
    ending = interpreter.run("probe", {"kind": kind}, folder, limits, log=log)
    return None if ending.done else classify(ending, log.tail, memory=limits.memory)


def _hint(failure: CompileFailure) -> str:
    if failure.name == "placeholder":
        return "Remove it (pip uninstall migraphx), install ROCm's own, and name its interpreter with --python."
    if failure.name == "no-numpy":
        return "Install numpy for that interpreter."
    return "Name an interpreter that has ROCm's migraphx with --python; PYTHONPATH may have to name its folder."
