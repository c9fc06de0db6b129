"""Record the files that ONNX Runtime's MIGraphX provider writes for a model, so that other hosts can load them.

One child opens the model in a session and runs it. The files that the provider wrote are read and checked against the
key. A second child opens the model again with these files: it must load them and write nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxr.artifact.attributes import Attributes, Constraints
from mxr.consumers.layout import full_arch
from mxr.consumers.ort import contract, layout, recording
from mxr.consumers.ort.recording_form import OrtRuntime, check_recording, check_weights, level_in, runtime_in
from mxr.errors import UsageError

from .compilation import (
    SEED,
    CompileAttemptFailed,
    CompileEnvironment,
    CompileTask,
    checked_description,
    measurements,
)
from .failures import CompileFailure, classify
from .interpreter import PROBE_LIMITS, Interpreter, InterpreterInfo, child_environment
from .sandbox import ChildLog, ChildResult

NO_RUNTIME = "no-onnxruntime"
"""The child's failure name where the interpreter has no such ONNX Runtime, as most do not."""


@dataclass(frozen=True, slots=True)
class RecordingTask:
    """How the model is opened: `file_name` is the ONNX file's name then, None for a session created from bytes.

    `files` are the files of its manifest.
    """

    file_name: str | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """The files of a recording, with the names that the provider gave them."""

    paths: tuple[Path, ...]
    attributes: Attributes
    provenance: Mapping[str, Any]


def with_runtime(info: InterpreterInfo, interpreter: Interpreter, folder: Path) -> InterpreterInfo:
    """`info` with the interpreter's ONNX Runtime, or with the reason why that one cannot be used."""
    log = ChildLog()
    ending = interpreter.run("runtime", {}, folder, PROBE_LIMITS, log=log)
    if not ending.done:
        failure = classify(ending, log.tail, memory=PROBE_LIMITS.memory)
        return info if failure.name == NO_RUNTIME else _refused(info, failure.message)
    result = dict(ending.result or {})
    try:
        found = contract.of_library(Path(result["library"]))
        version = _release(str(result["version"]))
        if found.version not in (None, version):
            return _refused(info, f"The module is version {version}, but its library is version {found.version}.")
        return replace(info, ort=OrtRuntime(found.generation, version))
    except UsageError as problem:
        return _refused(info, problem.message)


def _release(version: str) -> str:
    """MAJOR.MINOR.PATCH, without build suffixes."""
    return ".".join(version.split("+")[0].split(".")[:3])


def _refused(info: InterpreterInfo, reason: str) -> InterpreterInfo:
    return replace(info, refusals={**info.refusals, "onnxruntime": reason})


def record_model(
    task: CompileTask, opening: RecordingTask, models: Path, environment: CompileEnvironment
) -> RecordedFiles:
    """Run `task.model` of the folder `models` with ONNX Runtime, and collect the files that its provider writes.

    Raises `CompileAttemptFailed`, also for a task that contradicts itself.
    """
    log, cache = ChildLog(), (environment.folder / "cache").absolute()
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    model = _prepared_model(task, opening, models, environment.folder, log)
    variables, recorded = _run_session(task, opening, model, cache, environment, log, phase="compile")
    version = str((recorded.result or {}).get("onnxruntime"))
    if _release(version) != runtime_in(task.key.form).split(":")[1]:
        failure = CompileFailure("transient", "other-runtime", f"The installed ONNX Runtime is now version {version}.")
        raise CompileAttemptFailed(failure, log, recorded)
    paths = _recorded_paths(task, cache, log, recorded)
    descriptions = [checked_description(task, path, log, recorded) for path in paths]
    before = _file_states(cache)
    _, loaded = _run_session(task, opening, model, cache, environment, log, phase="load")
    if _file_states(cache) != before:
        message = "Opened again with its own files, ONNX Runtime compiled instead of loading them."
        raise CompileAttemptFailed(CompileFailure("transient", "not-loaded", message), log, loaded)
    verified = dict(loaded.result or {})
    provenance = measurements(recorded, variables, log) | {
        "recorder": "mxr-worker",
        "onnxruntime": version,
        "file": opening.file_name,
        "migraphx": descriptions[0].get("migraphx"),
        "verified": {name: verified.get(name) for name in ("ran", "finite", "unrun")},
    }
    libraries = sorted({name for description in descriptions for name in description["libraries"]})
    attributes = replace(task.attributes, libraries=tuple(libraries), latency_ms=verified.get("latency_ms"))
    return RecordedFiles(tuple(paths), attributes, provenance)


def _file_states(cache: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of each recorded file: they change when a file is rewritten, even with the same bytes."""
    found = {path.name: path.stat() for path in recording.named(cache)}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def _prepared_model(task: CompileTask, opening: RecordingTask, models: Path, folder: Path, log: ChildLog) -> Path:
    """Check the task and link the model into a folder. Raises `CompileAttemptFailed`."""
    try:
        check_recording(task.key, opening.file_name)
        check_weights(opening.file_name, len(opening.files))
        return _link_model(models, task.model, opening, (folder / "model").absolute())
    except UsageError as problem:
        # Permanent: the task itself is wrong, so that no other worker can run it either.
        failure = CompileFailure("permanent", "unfit-order", f"{problem.message} {problem.hint}")
        raise CompileAttemptFailed(failure, log, ChildResult("exited")) from problem


def _link_model(models: Path, onnx: str, opening: RecordingTask, folder: Path) -> Path:
    """Link the model's files into their own folder, with the ONNX file's name as it is when the model is served."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in opening.files:
        final = folder / (opening.file_name or name if name == onnx else name)
        if final.exists():
            raise UsageError(f"The model has another file named {final.name}.", hint="Choose another --name.")
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(models / name, final)
        except OSError:
            shutil.copyfile(models / name, final)
    return folder / (opening.file_name or onnx)


def _run_session(
    task: CompileTask,
    opening: RecordingTask,
    model: Path,
    cache: Path,
    environment: CompileEnvironment,
    log: ChildLog,
    *,
    phase: str,
) -> tuple[Mapping[str, str], ChildResult]:
    """Run one session in a child, with the settings that mxr prints for the model. `phase` is `compile` or `load`.

    Raises `CompileAttemptFailed`.
    """
    folder, key = (environment.folder / phase).absolute(), task.key
    limits = environment.compile_limits if phase == "compile" else environment.verify_limits
    settings = layout.variables(runtime_in(key.form).split(":")[0], str(cache), key)
    variables = child_environment(environment.interpreter.environ, folder, dict(key.env)) | dict(settings)
    options = dict(layout.provider_options(str(cache), key.precision))
    if task.attributes.tuning == "exhaustive":
        options["migraphx_exhaustive_tune"] = "1"
    request = {
        "model": str(model),
        "bytes": opening.file_name is None,
        "level": level_in(key.form),
        "options": options,
        "inputs": key.to_json()["inputs"],
        "seed": SEED,
        "phase": phase,
    }
    session_log = ChildLog()

    def add_log(data: bytes) -> None:
        log.add(data)
        environment.observer.log(data)

    ending = environment.interpreter.run(
        "session",
        request,
        folder,
        limits,
        environment=variables,
        log=session_log,
        observer=replace(environment.observer, log=add_log),
        reads=(environment.folder / "model",),
        writes=(cache,),
    )
    if not ending.done:
        stage = "compile" if phase == "compile" else "verify"
        failure = classify(ending, session_log.tail, stage=stage, memory=limits.memory)
        raise CompileAttemptFailed(failure, log, ending)
    return variables, ending


def _recorded_paths(task: CompileTask, cache: Path, log: ChildLog, ending: ChildResult) -> list[Path]:
    """The files that the provider wrote. Raises `CompileAttemptFailed` where they cannot be used for the key."""
    paths = recording.named(cache)
    if not paths:
        message = "ONNX Runtime ran the whole model on the CPU: its MIGraphX provider took no node and wrote no file."
        raise CompileAttemptFailed(CompileFailure("permanent", "all-on-cpu", message), log, ending)
    if any(map(recording.for_any_shape, paths)):
        message = (
            "The provider wrote a file whose name ends in -0.mxr: the model has open dims, and the file would be "
            "loaded for any shape. Freeze the model first: mxr freeze MODEL --batch 1,4,8 -o FOLDER."
        )
        raise CompileAttemptFailed(CompileFailure("permanent", "open-dims", message), log, ending)
    arch = full_arch(task.key, Constraints(), task.attributes)
    if arch is not None and recording.of_arch(paths, arch) != paths:
        message = f"The provider named its files for another GPU than {arch}: {paths[0].name}."
        raise CompileAttemptFailed(CompileFailure("transient", "other-arch", message), log, ending)
    return paths
