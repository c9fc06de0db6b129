"""One compile: a child makes the program, the reader checks it against the key, and a second child runs it."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mxr.artifact.attributes import Attributes
from mxr.artifact.compile_settings import DYNAMIC_SHAPE
from mxr.artifact.key import Key
from mxr.artifact.program_evidence import contradictions
from mxr.artifact.target import DynamicDim
from mxr.errors import CompileFailedError, DamagedError, UsageError
from mxr.util import disk
from mxr.util.codec import canonical

from .failures import CompileFailure, classify
from .interpreter import Interpreter, child_environment, recorded_variables
from .reading import describe_program
from .sandbox import ChildLimits, ChildLog, ChildObserver, ChildResult
from .slots import locked

PROBLEMS = "problems.json"
ARCHS = re.compile(rb"gfx[0-9a-f]+")
MAX_PROBLEMS = 64 << 20
"""Bytes of a tuning cache that is kept."""

SEED = 1
"""The random seed of the inputs of every verification run, so that two runs can be compared."""


@dataclass(frozen=True, slots=True)
class CompileTask:
    """What to compile: `model` is the ONNX file's name in its folder, `attributes` are those of the resulting program.

    `cross` holds the target arguments (`gpu_arch`, `gpu_num_cu`, ...) for a GPU that this host does not have; then
    `attributes.tuning` is `cross`, and the program is not run. `calibration` is an .npz file.
    """

    key: Key
    attributes: Attributes
    model: str
    calibration: Path | None = None
    cross: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.cross is not None) != (self.attributes.tuning == "cross"):
            raise UsageError("`cross` and the tuning 'cross' must be used together.", hint="Set both, or neither.")

    def compile_request(self, models: Path, output: Path) -> dict[str, Any]:
        """The request to the child that compiles."""
        key = self.key
        return key.to_json() | {
            "model": str((models / self.model).absolute()),
            "calibration": str(self.calibration.absolute()) if self.calibration else None,
            "cross": dict(self.cross) if self.cross else None,
            "tuning": self.attributes.tuning,
            "output": str(output),
        }

    def variables(self) -> dict[str, str]:
        """The MIGRAPHX_* variables of the children: those of the key, and the one without which DTK fixes all dims."""
        ranges = any(isinstance(dim, DynamicDim) for _, shape in self.key.inputs for dim in shape)
        return ({DYNAMIC_SHAPE: "1"} if self.key.vendor == "hygon" and ranges else {}) | dict(self.key.env)

    def verify_request(self, program: Path, save: Path | None) -> dict[str, Any]:
        """The request to the child that runs the program."""
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
    """Where one compile runs: the interpreter, its own folder, the limits of both children, and the observer.

    `problem_cache` is the tuning cache of this device and toolchain build: the compile gets a copy, which replaces it
    after a success. `save_values` is the path of an .npz for the inputs and outputs of the verification run.
    """

    interpreter: Interpreter
    folder: Path
    compile_limits: ChildLimits
    verify_limits: ChildLimits
    observer: ChildObserver = field(default_factory=ChildObserver)
    problem_cache: Path | None = None
    save_values: Path | None = None


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program that was compiled, read and verified. `verified` is None after a cross-compile, which is not run."""

    path: Path
    attributes: Attributes
    description: Mapping[str, Any]
    provenance: Mapping[str, Any]
    log: ChildLog
    warnings: tuple[str, ...] = ()
    verified: Mapping[str, Any] | None = None


class CompileAttemptFailed(CompileFailedError):
    """A compile failed. `failure` classifies it, `log` is the output of the children, `ending` how the child ended."""

    def __init__(self, failure: CompileFailure, log: ChildLog, ending: ChildResult) -> None:
        context = {"kind": failure.kind, "name": failure.name, "phase": ending.phase, "seconds": ending.seconds}
        super().__init__(failure.message, context=context)
        self.failure, self.log, self.ending = failure, log, ending


def compile_program(task: CompileTask, models: Path, environment: CompileEnvironment) -> CompiledProgram:
    """Compile `task.model` of the folder `models`. No process of the compile is left when this returns or raises.

    Raises `CompileAttemptFailed`.
    """
    log = ChildLog()
    output = (environment.folder / "compile" / "program.mxr").absolute()
    variables, compiled = _compile(task, models, environment, output, log)
    description = checked_description(task, output, log, compiled)
    verified = _verify(task, output, environment, log) if task.cross is None else None
    _save_problem_cache(output.parent / PROBLEMS, environment.problem_cache)
    compile_result = dict(compiled.result or {})
    verify_result = dict(verified.result or {}) if verified else None
    attributes = replace(
        task.attributes,
        libraries=tuple(description["libraries"]),
        latency_ms=verify_result["latency_ms"] if verify_result else None,
    )
    checks = ("ran", "finite", "outputs")
    provenance = measurements(compiled, variables, log) | {
        "migraphx": compile_result.get("migraphx"),
        "build": compile_result.get("build"),
        "verified": {name: verify_result[name] for name in checks} if verify_result else None,
    }
    return CompiledProgram(output, attributes, description, provenance, log, compiled.warnings, verify_result)


def measurements(ending: ChildResult, variables: Mapping[str, str], log: ChildLog) -> dict[str, Any]:
    """The part of the provenance that is common to all children: duration, memory, host, environment and log."""
    return {
        "compile_seconds": ending.seconds,
        "phase_seconds": (ending.result or {}).get("seconds"),
        "peak_memory": ending.peak_memory,
        "peak_vram": ending.peak_vram,
        "host": platform.node(),
        "kernel": platform.release(),
        "env": recorded_variables(variables),
        "log_sha256": log.sha256,
        "log_size": log.size,
        "warnings": list(ending.warnings),
    }


def _compile(
    task: CompileTask, models: Path, environment: CompileEnvironment, output: Path, log: ChildLog
) -> tuple[Mapping[str, str], ChildResult]:
    folder = output.parent
    folder.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    cache = _copy_problem_cache(environment.problem_cache, folder)
    variables = child_environment(
        environment.interpreter.environ, folder, task.variables(), cache, dict(task.key.options)
    )
    ending = environment.interpreter.run(
        "compile",
        task.compile_request(models, output),
        folder,
        environment.compile_limits,
        environment=variables,
        log=log,
        observer=environment.observer,
        reads=(models, *([task.calibration] if task.calibration else [])),
    )
    if not ending.done:
        failure = classify(ending, log.tail, memory=environment.compile_limits.memory)
        raise CompileAttemptFailed(failure, log, ending)
    return variables, ending


def checked_description(task: CompileTask, output: Path, log: ChildLog, ending: ChildResult) -> Mapping[str, Any]:
    """The reader's description of a program that matches the key. Raises `CompileAttemptFailed` where it does not."""
    try:
        if not is_regular(output):
            raise DamagedError("it is no regular file")
        description = describe_program(output)
    except (DamagedError, UsageError) as error:
        message = f"MIGraphX saved an incomplete program: {error.message}"
        raise CompileAttemptFailed(CompileFailure("transient", "damaged-program", message), log, ending) from error
    # The precision is not compared: it was passed to MIGraphX, and a program without arithmetic (only a concat, say)
    # shows no trace of it.
    found = contradictions(task.key, task.attributes, description)
    wrong = [str(difference) for difference in found if difference.field != "precision"]
    if wrong or description["warnings"]:
        message = f"The program does not match the key: {'; '.join([*wrong, *description['warnings']])}"
        raise CompileAttemptFailed(CompileFailure("transient", "other-program", message), log, ending)
    return description


def _verify(task: CompileTask, output: Path, environment: CompileEnvironment, log: ChildLog) -> ChildResult:
    """Load and run the program in a fresh child. Raises `CompileAttemptFailed`."""
    folder = (environment.folder / "verify").absolute()
    variables = child_environment(environment.interpreter.environ, folder, task.variables())
    verify_log = ChildLog()

    def add_log(data: bytes) -> None:
        log.add(data)
        environment.observer.log(data)

    ending = environment.interpreter.run(
        "verify",
        task.verify_request(output, environment.save_values),
        folder,
        environment.verify_limits,
        environment=variables,
        log=verify_log,
        observer=replace(environment.observer, log=add_log),
        reads=(output,),
        writes=() if environment.save_values is None else (environment.save_values.parent,),
    )
    if not ending.done:
        failure = classify(ending, verify_log.tail, stage="verify", memory=environment.verify_limits.memory)
        message = f"The verification run failed: {failure.message}"
        raise CompileAttemptFailed(replace(failure, message=message), log, ending)
    return ending


def _copy_problem_cache(problem_cache: Path | None, folder: Path) -> Path | None:
    """Copy the tuning cache: MIGraphX reads and writes the whole file, and a killed compile may leave a partial one."""
    if problem_cache is None:
        return None
    copy = folder / PROBLEMS
    copy.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(problem_cache, copy)
    return copy


def _save_problem_cache(copy: Path, problem_cache: Path | None) -> None:
    """Keep the tuning cache of a compile whose program was verified, if it is one: later compiles read it."""
    if problem_cache is None or not is_regular(copy):
        return
    try:
        data = copy.read_bytes() if copy.stat().st_size <= MAX_PROBLEMS else b""
        found = json.loads(data)
        # A null is a search without a result, at which MIGraphX fails. Source: ROCm/AMDMIGraphX, issue 5204.
        if not isinstance(found, (list, dict)) or _has_null(found):
            return
        # A problem begins with its device. Only a hostile model has those of another one here.
        if {each.decode() for each in ARCHS.findall(data)} - {problem_cache.stem.partition("-")[0]}:
            return
    except (OSError, ValueError, RecursionError):
        return
    with locked(problem_cache.parent, blocking=True):
        disk.write_whole(problem_cache, _with_known(problem_cache, found) or data)


def _with_known(problem_cache: Path, found: object) -> bytes | None:
    """The records of a compile, and those that other slots of the same device kept meanwhile.

    A record is `[problem, solution]`. Source: ROCm/AMDMIGraphX, problem_cache.cpp. No release has a tool that merges
    them; issue 5117 has one.
    """
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = json.loads(problem_cache.read_bytes())
        if isinstance(known, list) and isinstance(found, list):
            merged = {canonical(problem): [problem, solution] for problem, solution in [*known, *found]}
            text = canonical(list(merged.values())).encode()
            return text if len(text) <= MAX_PROBLEMS else None
    return None


def _has_null(found: object) -> bool:
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return found is None or any(map(_has_null, values))


def is_regular(path: Path) -> bool:
    """Whether a file that a child made is one of its own: no link to another one, no device, no pipe."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1
