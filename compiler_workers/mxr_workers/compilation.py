"""One compile: a child makes a program, the reader holds it against the key, another child runs it: then it counts."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mxr.artifact.key import Key
from mxr.artifact.program_evidence import contradictions
from mxr.artifact.qualities import Qualities
from mxr.errors import CompileFailed, Damaged, Usage
from mxr.program.reader import describe_file
from mxr_workers.failures import CompileFailure, classify
from mxr_workers.interpreter import Interpreter
from mxr_workers.sandbox import ChildLimits, ChildObserver, ChildResult

from .child_environment import child_environment, recorded
from .child_log import ChildLog

SEED = 1
"""Of the values that a trial run is fed with: the same in each, so that two of them can be compared."""


@dataclass(frozen=True, slots=True)
class CompileTask:
    """What to compile: `model` names the ONNX file in its folder, `qualities` are what this worker will make.

    `cross` are the arguments of the library's target for a GPU that is not here (`gpu_arch`, `gpu_num_cu`, ...); then
    `qualities.tuning` is `cross`, and no trial run is possible. `calibration` is an .npz.
    """

    key: Key
    qualities: Qualities
    model: str
    calibration: Path | None = None
    cross: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.cross is not None) != (self.qualities.tuning == "cross"):
            raise Usage("A cross-compile and the tuning 'cross' go together.", hint="Order both or neither.")

    def to_compile(self, models: Path, output: Path) -> dict[str, Any]:
        """The order of the child that compiles."""
        key = self.key
        return {
            "model": str((models / self.model).absolute()),
            "inputs": key.to_json()["inputs"],
            "precision": list(key.precision),
            "calibration": str(self.calibration.absolute()) if self.calibration else None,
            "kind": key.kind,
            "cross": dict(self.cross) if self.cross else None,
            "offload_copy": key.offload_copy,
            "fast_math": key.fast_math,
            "exhaustive": self.qualities.tuning == "exhaustive",
            "output": str(output),
        }

    def to_verify(self, program: Path, save: Path | None) -> dict[str, Any]:
        """The order of the child that tries the program."""
        return {
            "program": str(program),
            "kind": self.key.kind,
            "inputs": self.key.to_json()["inputs"],
            "offload_copy": self.key.offload_copy,
            "seed": SEED,
            "save": str(save) if save else None,
        }


@dataclass(frozen=True, slots=True)
class CompileEnvironment:
    """Where one compile happens: interpreter, a folder of its own, limits of both children, whom to tell.

    `problem_cache` is the tuning record of this device and toolchain build: a copy is given to the compile and comes
    back when it went well. `save_trial` names an .npz for the values of the trial run.
    """

    interpreter: Interpreter
    folder: Path
    compile_limits: ChildLimits
    verify_limits: ChildLimits
    watch: ChildObserver = field(default_factory=ChildObserver)
    problem_cache: Path | None = None
    save_trial: Path | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program that was made, read and tried. `trial` is None after a cross-compile."""

    path: Path
    qualities: Qualities
    description: Mapping[str, Any]
    provenance: Mapping[str, Any]
    log: ChildLog
    warnings: tuple[str, ...] = ()
    trial: Mapping[str, Any] | None = None


class Uncompiled(CompileFailed):
    """The compile failed. `failure` says what that means for the job, `log` is what the children printed."""

    def __init__(self, failure: CompileFailure, log: ChildLog, ending: ChildResult) -> None:
        detail = {"kind": failure.kind, "name": failure.name, "phase": ending.phase, "seconds": ending.seconds}
        super().__init__(failure.message, detail=detail)
        self.failure, self.log, self.ending = failure, log, ending


def compile_program(order: CompileTask, models: Path, shop: CompileEnvironment) -> Compiled:
    """Compile `order.model` of the folder `models`. Raises `Uncompiled`; whatever happens, no process is left of it."""
    log = ChildLog()
    output = (shop.folder / "compile" / "program.mxr").absolute()
    environment, made = _compile(order, models, shop, output, log)
    described = described_as(order, output, log, made)
    tried = _verify(order, output, shop, log) if order.cross is None else None
    result = dict(made.result or {})
    trial = dict(tried.result or {}) if tried else None
    qualities = replace(
        order.qualities,
        libraries=tuple(described["libraries"]),
        latency_ms=trial["latency_ms"] if trial else None,
    )
    provenance = measured(made, environment, log) | {
        "migraphx": result.get("migraphx"),
        "build": result.get("build"),
        "verified": {name: trial[name] for name in ("ran", "finite", "outputs")} if trial else None,
    }
    return Compiled(output, qualities, described, provenance, log, made.warnings, trial)


def measured(made: ChildResult, environment: Mapping[str, str], log: ChildLog) -> dict[str, Any]:
    """The part of a provenance that every child leaves: what it took, where, and what it printed."""
    return {
        "compile_seconds": made.seconds,
        "phase_seconds": (made.result or {}).get("seconds"),
        "peak_memory": made.peak_memory,
        "peak_vram": made.peak_vram,
        "host": platform.node(),
        "kernel": platform.release(),
        "env": recorded(environment),
        "log_sha256": log.sha256,
        "log_size": log.size,
        "warnings": list(made.warnings),
    }


def _compile(
    order: CompileTask, models: Path, shop: CompileEnvironment, output: Path, log: ChildLog
) -> tuple[Mapping[str, str], ChildResult]:
    home = output.parent
    home.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    cache = _borrow(shop.problem_cache, home)
    environment = child_environment(shop.interpreter.outer, home, dict(order.key.env), cache)
    ending = shop.interpreter.run(
        "compile",
        order.to_compile(models, output),
        home,
        shop.compile_limits,
        environment=environment,
        log=log,
        watch=shop.watch,
    )
    if not ending.done:
        raise Uncompiled(classify(ending, log.tail, memory=shop.compile_limits.memory), log, ending)
    _give_back(cache, shop.problem_cache)
    return environment, ending


def described_as(order: CompileTask, output: Path, log: ChildLog, ending: ChildResult) -> Mapping[str, Any]:
    """The reader's description, when the file is what the key asks. Raises `Uncompiled`."""
    try:
        described = describe_file(output)
    except (Damaged, Usage) as error:
        failure = CompileFailure("transient", "damaged-program", f"MIGraphX saved no whole program: {error.message}")
        raise Uncompiled(failure, log, ending) from error
    # Not the precision: MIGraphX was told it here, and where nothing computes (a concat, say) it leaves no trace of it.
    found = contradictions(order.key, order.qualities, described.to_json())
    wrong = [str(difference) for difference in found if difference.field != "precision"]
    if wrong or described.warnings:
        words = "; ".join([*wrong, *described.warnings])
        raise Uncompiled(CompileFailure("transient", "other-program", f"It made another program: {words}"), log, ending)
    return described.to_json()


def _verify(order: CompileTask, output: Path, shop: CompileEnvironment, log: ChildLog) -> ChildResult:
    """A fresh child loads and runs the program. Raises `Uncompiled`."""
    folder = (shop.folder / "verify").absolute()
    environment = child_environment(shop.interpreter.outer, folder, dict(order.key.env))
    printed = ChildLog()

    def hear(data: bytes) -> None:
        log.add(data)
        shop.watch.log(data)

    ending = shop.interpreter.run(
        "verify",
        order.to_verify(output, shop.save_trial),
        folder,
        shop.verify_limits,
        environment=environment,
        log=printed,
        watch=replace(shop.watch, log=hear),
    )
    if not ending.done:
        failure = classify(ending, printed.tail, stage="verify", memory=shop.verify_limits.memory)
        raise Uncompiled(replace(failure, message=f"Its trial run failed: {failure.message}"), log, ending)
    return ending


def _borrow(problem_cache: Path | None, folder: Path) -> Path | None:
    """A copy of the tuning record: MIGraphX reads and writes it whole, and a killed compile may leave half of one."""
    if problem_cache is None:
        return None
    copy = folder / "problems.json"
    copy.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(problem_cache, copy)
    return copy


def _give_back(copy: Path | None, problem_cache: Path | None) -> None:
    if copy is None or problem_cache is None or not copy.is_file():
        return
    problem_cache.parent.mkdir(parents=True, exist_ok=True)
    fresh = problem_cache.with_name(f".{problem_cache.name}.{os.getpid()}")
    shutil.copyfile(copy, fresh)
    fresh.replace(problem_cache)
