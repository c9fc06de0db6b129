"""One recording: ONNX Runtime runs the model once in a child, what its MIGraphX provider wrote is read and held against
the key, and another child opens the model again on these files: it must load them and write nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxr.artifact.qualities import Demands, Qualities
from mxr.consumers.layout import full_arch
from mxr.consumers.ort import contract, layout, recording
from mxr.consumers.ort.recording_form import OrtRuntime, check_recording, check_weights, level_in, runtime_in
from mxr.errors import Usage
from mxr_workers.compilation import SEED, CompileEnvironment, CompileTask, Uncompiled, described_as, measured
from mxr_workers.failures import CompileFailure, classify
from mxr_workers.interpreter import PROBE, Interpreter, InterpreterInfo
from mxr_workers.sandbox import ChildLimits, ChildResult

from .child_environment import child_environment
from .child_log import ChildLog

NONE = "no-onnxruntime"
"""How the child says that there is no such ONNX Runtime, which is how most interpreters are."""


@dataclass(frozen=True, slots=True)
class RecordingTask:
    """How the model is opened: `files` of its manifest are there, and the ONNX one is called `file_name` then; None for
    a session that is made from bytes.
    """

    file_name: str | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """What a run of ONNX Runtime left: the files under the names that its provider gave them."""

    paths: tuple[Path, ...]
    qualities: Qualities
    provenance: Mapping[str, Any]


def with_runtime(about: InterpreterInfo, interpreter: Interpreter, folder: Path) -> InterpreterInfo:
    """What an interpreter offers, with the ONNX Runtime that it has; or the reason why that cannot be used."""
    log = ChildLog()
    ending = interpreter.run("runtime", {}, folder, PROBE, log=log)
    if not ending.done:
        failure = classify(ending, log.tail, memory=PROBE.memory)
        return about if failure.name == NONE else _without(about, failure.message)
    told = dict(ending.result or {})
    try:
        found = contract.of_library(Path(told["library"]))
        version = _numbers(str(told["version"]))
        if found.version not in (None, version):
            return _without(about, f"Its module says {version}, and its library is of {found.version}.")
        return replace(about, ort=OrtRuntime(found.generation, version))
    except Usage as problem:
        return _without(about, problem.message)


def _numbers(version: str) -> str:
    """MAJOR.MINOR.PATCH, without what a build adds."""
    return ".".join(version.split("+")[0].split(".")[:3])


def _without(about: InterpreterInfo, reason: str) -> InterpreterInfo:
    return replace(about, refusals={**about.refusals, "onnxruntime": reason})


def record(order: CompileTask, opening: RecordingTask, models: Path, shop: CompileEnvironment) -> RecordedFiles:
    """Have ONNX Runtime run `order.model` of the folder `models`, and take what its provider wrote.

    Raises `Uncompiled`, for an order that contradicts itself as well.
    """
    log, cache = ChildLog(), (shop.folder / "cache").absolute()
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    try:
        check_recording(order.key, opening.file_name)
        check_weights(opening.file_name, len(opening.files))
        model = _laid_out(models, order.model, opening, (shop.folder / "model").absolute())
    except Usage as problem:
        # The order's fault, not this worker's: no other one could do it.
        failure = CompileFailure("permanent", "unfit-order", f"{problem.message} {problem.hint}")
        raise Uncompiled(failure, log, ChildResult("exited")) from problem
    environment, made = _run(order, opening, model, cache, shop, shop.compile_limits, log, phase="compile")
    version = str((made.result or {}).get("onnxruntime"))
    if _numbers(version) != runtime_in(order.key.form).split(":")[1]:
        raise Uncompiled(
            CompileFailure("transient", "other-runtime", f"This is ONNX Runtime {version} by now."), log, made
        )
    paths = _named(order, cache, log, made)
    described = [described_as(order, path, log, made) for path in paths]
    before = _stamps(cache)
    _, again = _run(order, opening, model, cache, shop, shop.verify_limits, log, phase="load")
    if _stamps(cache) != before:
        words = "Opened again on its own files, ONNX Runtime compiled instead of loading them."
        raise Uncompiled(CompileFailure("transient", "not-loaded", words), log, again)
    tried = dict(again.result or {})
    provenance = measured(made, environment, log) | {
        "recorder": "mxr-worker",
        "onnxruntime": version,
        "file": opening.file_name,
        "migraphx": described[0].get("migraphx"),
        "verified": {name: tried.get(name) for name in ("ran", "finite", "unrun")},
    }
    libraries = sorted({name for each in described for name in each["libraries"]})
    qualities = replace(order.qualities, libraries=tuple(libraries), latency_ms=tried.get("latency_ms"))
    return RecordedFiles(tuple(paths), qualities, provenance)


def _stamps(cache: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when a file is written again, though it be with the same bytes."""
    found = {path.name: path.stat() for path in recording.named(cache)}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def _laid_out(models: Path, onnx: str, opening: RecordingTask, home: Path) -> Path:
    """The model in a folder of its own, under the name that it will have where it serves; links, no copies."""
    shutil.rmtree(home, ignore_errors=True)
    for name in opening.files:
        final = home / (opening.file_name or name if name == onnx else name)
        if final.exists():
            raise Usage(f"The model has another file that is called {final.name}.", hint="Give it another --name.")
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(models / name, final)
        except OSError:
            shutil.copyfile(models / name, final)
    return home / (opening.file_name or onnx)


def _run(
    order: CompileTask,
    opening: RecordingTask,
    model: Path,
    cache: Path,
    shop: CompileEnvironment,
    limits: ChildLimits,
    log: ChildLog,
    *,
    phase: str,
) -> tuple[Mapping[str, str], ChildResult]:
    """One session in a child, as the settings that mxr prints would have it. Raises `Uncompiled`."""
    home, key = (shop.folder / phase).absolute(), order.key
    told = layout.variables(runtime_in(key.form).split(":")[0], str(cache), key)
    environment = child_environment(shop.interpreter.outer, home, dict(key.env)) | dict(told)
    options = dict(layout.provider_options(str(cache), key.precision))
    if order.qualities.tuning == "exhaustive":
        options["migraphx_exhaustive_tune"] = "1"
    words = {
        "model": str(model),
        "bytes": opening.file_name is None,
        "level": level_in(key.form),
        "options": options,
        "inputs": key.to_json()["inputs"],
        "seed": SEED,
        "phase": phase,
    }
    printed = ChildLog()

    def hear(data: bytes) -> None:
        log.add(data)
        shop.watch.log(data)

    watch = replace(shop.watch, log=hear)
    ending = shop.interpreter.run("session", words, home, limits, environment=environment, log=printed, watch=watch)
    if not ending.done:
        stage = "compile" if phase == "compile" else "verify"
        raise Uncompiled(classify(ending, printed.tail, stage=stage, memory=limits.memory), log, ending)
    return environment, ending


def _named(order: CompileTask, cache: Path, log: ChildLog, ending: ChildResult) -> list[Path]:
    """The files that the provider wrote, all for this GPU. Raises `Uncompiled`."""
    paths = recording.named(cache)
    if not paths:
        words = (
            "ONNX Runtime ran the whole model on the CPU: its MIGraphX provider took no part of it, and wrote nothing."
        )
        raise Uncompiled(CompileFailure("permanent", "all-on-cpu", words), log, ending)
    if any(map(recording.for_any_shape, paths)):
        words = (
            "The provider wrote a file whose name ends in -0.mxr: the model has open dims, and the file would be "
            "loaded for any shape. Freeze it first: mxr freeze MODEL --batch 1,4,8 -o FOLDER."
        )
        raise Uncompiled(CompileFailure("permanent", "open-dims", words), log, ending)
    arch = full_arch(order.key, Demands(), order.qualities)
    if arch is not None and recording.of_arch(paths, arch) != paths:
        words = f"The provider named its files for another GPU than {arch}: {paths[0].name}."
        raise Uncompiled(CompileFailure("transient", "other-arch", words), log, ending)
    return paths
