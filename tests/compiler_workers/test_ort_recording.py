"""Recordings of the real ONNX Runtime, on stand-ins for HIP and MIGraphX: what they contain, and how they fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs
from doubles.ort_migraphx import VERSION, Judge, Outcome, parts

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.recording_form import OrtRuntime, form_of
from mxr_workers.compilation import CompileAttemptFailed, CompileEnvironment, CompileTask
from mxr_workers.interpreter import Interpreter, InterpreterInfo
from mxr_workers.ort_recording import RecordedFiles, RecordingTask, record_model, with_runtime
from mxr_workers.sandbox import ChildLimits, ChildResult

from .conftest import LIMITS, MODEL, Target

pytestmark = pytest.mark.timeout(300)

ARCH = "gfx90a:sramecc+:xnack-"
INFO = InterpreterInfo("3.11", "2.15.0", "", ("gpu",), (), {})


class Recorder:
    """Records models with the real ONNX Runtime in its own folder."""

    def __init__(self, judge: Judge, folder: Path) -> None:
        self.judge, self.folder, self.models = judge, folder, folder / "models"
        self.models.mkdir(parents=True)
        self.log = folder / "requests"
        self.program = folder / "saved.mxr"
        source = programs.read(str(parts.one(folder / "any.onnx")), {})
        flags = {"kind": "gpu", "arch": ARCH, "offload_copy": False}
        self.program.write_bytes(programs.write(source, flags, {"file_version": 7, "migraphx": "2.15.0"}))

    def interpreter(self, **settings: str) -> Interpreter:
        """An interpreter whose children use the stand-ins.

        The environment of a child is an allow-list, so that its Python sets the variables of the stand-ins itself.
        """
        settings = {"ARCH": ARCH, "PROGRAM": str(self.program), "LOG": str(self.log)} | settings
        site = self.folder / "site"
        site.mkdir(exist_ok=True)
        values = {f"MXR_DOUBLE_{name}": value for name, value in settings.items()}
        (site / "sitecustomize.py").write_text(f"import os; os.environ.update({values!r})")
        return Interpreter(self.judge.python, {"LD_LIBRARY_PATH": str(self.judge.libraries), "PYTHONPATH": str(site)})

    def __call__(
        self,
        model: Path,
        *,
        name: str | None = "net.onnx",
        key_name: str | None = "net.onnx",
        version: str = VERSION,
        level: str = "all",
        limits: ChildLimits = LIMITS,
        interpreter: Interpreter | None = None,
        **key: Any,
    ) -> RecordedFiles:
        """Record a model that is opened as `name`, for a key with the file name `key_name`."""
        inputs = key.pop("inputs", (("x", (2, 1, 4)),))
        form = form_of(Contract("B", version), key_name, level)
        made = Key(
            MODEL, "gpu", "2.15", inputs, arch="gfx90a", rocm="7.2", offload_copy=False, fast_math=False, form=form
        )
        task = CompileTask(replace(made, **key), Attributes(sramecc="+", xnack="-"), model.name)
        files = tuple(path.name for path in self.models.iterdir())
        environment = CompileEnvironment(interpreter or self.interpreter(), self.folder / "work", limits, limits)
        return record_model(task, RecordingTask(name, files), self.models, environment)

    def requests(self, verb: str) -> int:
        """How many requests of this kind MIGraphX received."""
        return sum(line.startswith(f"{verb}\t") for line in self.log.read_text().splitlines())


@dataclass(frozen=True)
class Recording:
    """One recording of a model with two parts, and the file names that ONNX Runtime requests for it elsewhere."""

    files: RecordedFiles
    name: str | None
    recorder: Recorder
    requested: set[str] = field(default_factory=set)


FORMS: dict[str, tuple[str | None, str]] = {"file": ("net.onnx", "all"), "bytes": (None, "disable")}
"""The file name and the optimization level of a session."""


@pytest.fixture(scope="module")
def recordings(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """A model recorded in both forms."""
    found, tasks = {}, []
    for form, (name, level) in FORMS.items():
        recorder = Recorder(judge, tmp_path_factory.mktemp(form))
        model = parts.several(recorder.models / "model.onnx")
        files = recorder(model, name=name, key_name=name, level=level, precision=("fp16",))
        found[form] = Recording(files, name, recorder)
        opened = model.rename(model.with_name(name or "other.onnx"))
        tasks.append({"model": str(opened), "level": level, "bytes": name is None})
    outcomes: list[Outcome] = judge.sessions(tasks, tmp_path_factory.mktemp("judge"), arch=ARCH)
    pairs = zip(found.items(), outcomes, strict=True)
    return {form: replace(recording, requested=outcome.asked) for (form, recording), outcome in pairs}


@pytest.fixture
def recorder(judge: Judge, tmp_path: Path) -> Recorder:
    return Recorder(judge, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_all_parts_are_recorded_and_loaded_again(recordings: dict[str, Recording], form: str) -> None:
    recording = recordings[form]
    found, recorder = recording.files, recording.recorder
    assert len(found.paths) == 2
    assert (recorder.requests("save"), recorder.requests("load")) == (2, 2)
    compiled = [line for line in recorder.log.read_text().splitlines() if line.startswith("compile\t")]
    assert compiled == ["compile\tfp16 "] * 2, "the flags of the key: fp16, fast_math off"
    assert found.provenance["onnxruntime"] == VERSION and found.provenance["file"] == recording.name
    assert found.provenance["verified"] == {"ran": True, "finite": True, "unrun": []}
    assert found.attributes.latency_ms is not None
    assert recording.requested == {path.name for path in found.paths}


def test_external_weights_are_found(recorder: Recorder) -> None:
    import onnx

    model = parts.several(recorder.models / "model.onnx")
    loaded = onnx.load(model)
    onnx.save(loaded, model, save_as_external_data=True, location="weights.bin", size_threshold=64)
    assert len(recorder(model).paths) == 2
    with pytest.raises(CompileAttemptFailed, match="from bytes"):
        recorder(model, name=None, key_name=None)


def none(models: Path) -> Path:
    return parts.none(models / "model.onnx")


def open_batch(models: Path) -> Path:
    return parts.one(models / "model.onnx", "N")


def several(models: Path) -> Path:
    return parts.several(models / "model.onnx")


def check_failure(caught: pytest.ExceptionInfo[CompileAttemptFailed], kind: str, name: str, text: str) -> None:
    """Compare a failure."""
    failure = caught.value.failure
    assert (failure.kind, failure.name) == (kind, name), failure
    assert text in failure.message


@pytest.mark.parametrize(
    ("make", "double", "key", "kind", "name", "text"),
    [
        (none, {}, {"inputs": (("x", (4, 3)),)}, "permanent", "all-on-cpu", "on the CPU"),
        (open_batch, {}, {"inputs": (("x", (4, 3)),)}, "permanent", "open-dims", "mxr freeze"),
        (several, {"BAD": "abort"}, {}, "poison", "aborted", "SIGABRT"),
        (several, {"BAD": "refuse"}, {}, "transient", "unknown", "in phase compile"),
        (several, {"BAD": "forget"}, {}, "transient", "not-loaded", "instead of loading"),
    ],
    ids=["all-on-cpu", "open-dims", "abort", "refuse", "not-loaded"],
)
def test_a_failure_of_onnx_runtime(
    recorder: Recorder,
    make: Callable[[Path], Path],
    double: dict[str, str],
    key: dict[str, Any],
    kind: str,
    name: str,
    text: str,
) -> None:
    with pytest.raises(CompileAttemptFailed) as caught:
        recorder(make(recorder.models), interpreter=recorder.interpreter(**double), **key)
    check_failure(caught, kind, name, text)


@dataclass(frozen=True)
class RecordedInterpreter(Interpreter):
    """Delivers an earlier recording instead of starting ONNX Runtime, or the result `ending`."""

    files: tuple[Path, ...] = ()
    ending: ChildResult | None = None

    def run(self, verb: str, request: Mapping[str, Any], folder: Path, limits: ChildLimits, **_: Any) -> ChildResult:
        if self.ending is not None:
            return replace(self.ending, seconds=limits.seconds, phase=request["phase"])
        for path in self.files:
            shutil.copyfile(path, Path(request["options"]["migraphx_model_cache_dir"], path.name))
        return ChildResult("exited", code=0, result={"onnxruntime": VERSION})


@pytest.mark.parametrize(
    ("ending", "key", "kind", "name", "text"),
    [
        (ChildResult("deadline"), {}, "hang", "deadline", "after 60 s (last phase: compile)"),
        (None, {"arch": "gfx942"}, "transient", "other-arch", "another GPU"),
        (None, {"version": "1.26.0"}, "transient", "other-runtime", VERSION),
        (None, {"migraphx": "2.16"}, "transient", "other-program", "migraphx"),
    ],
    ids=["hang", "other-arch", "other-runtime", "other-program"],
)
def test_a_recording_that_does_not_match_the_key(
    recorder: Recorder,
    recordings: dict[str, Recording],
    ending: ChildResult | None,
    key: dict[str, Any],
    kind: str,
    name: str,
    text: str,
) -> None:
    """The checks of the worker itself, on files that the real provider wrote."""
    interpreter = RecordedInterpreter(Path("python"), {}, recordings["file"].files.paths, ending)
    with pytest.raises(CompileAttemptFailed) as caught:
        recorder(several(recorder.models), interpreter=interpreter, precision=("fp16",), **key)
    check_failure(caught, kind, name, text)


def test_a_task_that_contradicts_itself_is_refused(recorder: Recorder) -> None:
    model = several(recorder.models)
    for more in ({"key_name": "other.onnx"}, {"name": None}, {"version": "1.27"}, {"precision": ("int8",)}):
        with pytest.raises(CompileAttemptFailed) as caught:
            recorder(model, **more)
        assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "unfit-order")
    (recorder.models / "net.onnx").write_bytes(b"weights with the name of the model")
    with pytest.raises(CompileAttemptFailed, match="another file"):
        recorder(model)


def test_the_onnx_runtime_of_an_interpreter_is_detected(recorder: Recorder, gpu: Target) -> None:
    assert with_runtime(INFO, recorder.interpreter(), recorder.folder / "about").ort == OrtRuntime("B", VERSION)
    without = with_runtime(INFO, gpu.interpreter, recorder.folder / "about")
    assert without == INFO, "an interpreter without ONNX Runtime is normal, and not listed as a refusal"
    no_libraries = replace(recorder.interpreter(), environ={})
    found = with_runtime(INFO, no_libraries, recorder.folder / "about")
    assert found.ort is None and "libmigraphx_c.so.3" in found.refusals["onnxruntime"]
