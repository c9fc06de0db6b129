"""What a recording promises, with the real ONNX Runtime on stand-ins for what is below it; and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs
from doubles.ort_migraphx import VERSION, Judge, parts

from mxr.artifact.key import Key
from mxr.artifact.qualities import Qualities
from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.recording_form import OrtRuntime, form_of
from mxr_workers.compilation import CompileEnvironment, CompileTask, Uncompiled
from mxr_workers.interpreter import Interpreter, InterpreterInfo
from mxr_workers.ort_recording import RecordedFiles, RecordingTask, record, with_runtime
from mxr_workers.sandbox import ChildLimits

from .conftest import MODEL, SECONDS

pytestmark = pytest.mark.timeout(300)

ARCH = "gfx90a:sramecc+:xnack-"
ABOUT = InterpreterInfo("3.11", "2.15.0", "", ("gpu",), (), {})


class Studio:
    """Records with the real ONNX Runtime in a folder of the test's own."""

    def __init__(self, judge: Judge, tmp: Path) -> None:
        self.judge, self.tmp, self.models = judge, tmp, tmp / "models"
        self.models.mkdir()
        self.log = tmp / "asked"
        self.program = tmp / "saved.mxr"
        made = programs.read(str(parts.one(tmp / "any.onnx")), {})
        flags = {"kind": "gpu", "arch": ARCH, "offload_copy": False}
        self.program.write_bytes(programs.write(made, flags, {"file_version": 7, "migraphx": "2.15.0"}))

    def interpreter(self, **told: str) -> Interpreter:
        """Children with the stand-ins; as their environment is an allow-list, Python itself sets what those read."""
        told = {"ARCH": ARCH, "PROGRAM": str(self.program), "LOG": str(self.log)} | told
        site = self.tmp / "site"
        site.mkdir(exist_ok=True)
        values = {f"MXR_DOUBLE_{name}": value for name, value in told.items()}
        (site / "sitecustomize.py").write_text(f"import os; os.environ.update({values!r})")
        return Interpreter(self.judge.python, {"LD_LIBRARY_PATH": str(self.judge.libraries), "PYTHONPATH": str(site)})

    def __call__(
        self,
        model: Path,
        *,
        name: str | None = "net.onnx",
        said: str | None = "net.onnx",
        version: str = VERSION,
        level: str = "all",
        limits: ChildLimits = SECONDS,
        told: dict[str, str] | None = None,
        **key: Any,
    ) -> RecordedFiles:
        """Records a model that is opened as `name`, for a key that was made of the file name `said`."""
        inputs = key.pop("inputs", (("x", (2, 1, 4)),))
        form = form_of(Contract("B", version), said, level)
        made = Key(
            MODEL, "gpu", "2.15", inputs, arch="gfx90a", rocm="7.2", offload_copy=False, fast_math=False, form=form
        )
        order = CompileTask(replace(made, **key), Qualities(sramecc="+", xnack="-"), model.name)
        files = tuple(path.name for path in self.models.iterdir())
        shop = CompileEnvironment(self.interpreter(**(told or {})), self.tmp / "work", limits, limits)
        return record(order, RecordingTask(name, files), self.models, shop)

    def asked(self, verb: str) -> int:
        """How often MIGraphX was asked to do something."""
        return sum(line.startswith(f"{verb}\t") for line in self.log.read_text().splitlines())


@pytest.fixture
def studio(judge: Judge, tmp_path: Path) -> Studio:
    return Studio(judge, tmp_path)


@pytest.mark.parametrize(("name", "level"), [("net.onnx", "all"), (None, "disable")], ids=["file", "bytes"])
def test_all_parts_are_recorded_and_loaded_again(studio: Studio, name: str | None, level: str) -> None:
    model = parts.several(studio.models / "model.onnx")
    found = studio(model, name=name, said=name, level=level, precision=("fp16",))
    assert len(found.paths) == 2
    assert (studio.asked("save"), studio.asked("load")) == (2, 2)
    compiled = [line for line in studio.log.read_text().splitlines() if line.startswith("compile\t")]
    assert compiled == ["compile\tfp16 "] * 2, "as the key asks, fast_math off"
    assert found.provenance["onnxruntime"] == VERSION and found.provenance["file"] == name
    assert found.provenance["verified"] == {"ran": True, "finite": True, "unrun": []}
    assert found.qualities.latency_ms is not None
    # The very names that this ONNX Runtime asks for elsewhere.
    task = {"model": str(model.rename(model.with_name(name or "other.onnx"))), "level": level, "bytes": name is None}
    (outcome,) = studio.judge.sessions([task], studio.tmp / "judge", arch=ARCH)
    assert outcome.asked == {path.name for path in found.paths}


def test_weights_beside_the_model_are_found(studio: Studio) -> None:
    import onnx

    model = parts.several(studio.models / "model.onnx")
    loaded = onnx.load(model)
    onnx.save(loaded, model, save_as_external_data=True, location="weights.bin", size_threshold=64)
    assert len(studio(model).paths) == 2
    with pytest.raises(Uncompiled, match="from bytes"):
        studio(model, name=None, said=None)


def none(models: Path) -> Path:
    return parts.none(models / "model.onnx")


def opened(models: Path) -> Path:
    return parts.one(models / "model.onnx", "N")


def several(models: Path) -> Path:
    return parts.several(models / "model.onnx")


@pytest.mark.parametrize(
    ("make", "more", "kind", "name", "words"),
    [
        (none, {"inputs": (("x", (4, 3)),)}, "permanent", "all-on-cpu", "on the CPU"),
        (opened, {"inputs": (("x", (4, 3)),)}, "permanent", "open-dims", "mxr freeze"),
        (several, {"told": {"ARCH": "gfx942:sramecc+:xnack-"}}, "transient", "other-arch", "another GPU"),
        (several, {"told": {"BAD": "abort"}}, "poison-suspect", "aborted", "SIGABRT"),
        (several, {"told": {"BAD": "hang"}, "limits": ChildLimits(4, 2 << 30)}, "hang", "deadline", "phase: compile"),
        (several, {"told": {"BAD": "refuse"}}, "transient", "unknown", "in phase compile"),
        (several, {"told": {"BAD": "forget"}}, "transient", "not-loaded", "instead of loading"),
        (several, {"version": "1.26.0"}, "transient", "other-runtime", VERSION),
        (several, {"migraphx": "2.16"}, "transient", "other-program", "migraphx"),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value else "",
)
def test_a_recording_that_fails(
    studio: Studio, make: Callable[[Path], Path], more: dict[str, Any], kind: str, name: str, words: str
) -> None:
    with pytest.raises(Uncompiled) as caught:
        studio(make(studio.models), **more)
    failure = caught.value.failure
    assert (failure.kind, failure.name) == (kind, name), failure
    assert words in failure.message


def test_an_order_that_contradicts_itself_is_refused(studio: Studio) -> None:
    model = several(studio.models)
    for more in ({"said": "other.onnx"}, {"name": None}, {"version": "1.27"}, {"precision": ("int8",)}):
        with pytest.raises(Uncompiled) as caught:
            studio(model, **more)
        assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "unfit-order")
    (studio.models / "net.onnx").write_bytes(b"weights that are called so")
    with pytest.raises(Uncompiled, match="another file"):
        studio(model)


def test_what_an_interpreter_offers(studio: Studio, double: Any) -> None:
    assert with_runtime(ABOUT, studio.interpreter(), studio.tmp / "about").ort == OrtRuntime("B", VERSION)
    without = with_runtime(ABOUT, double.interpreter, studio.tmp / "about")
    assert without == ABOUT, "no ONNX Runtime with that provider is nothing to speak of"
    alone = replace(studio.interpreter(), outer={})
    found = with_runtime(ABOUT, alone, studio.tmp / "about")
    assert found.ort is None and "libmigraphx_c.so.3" in found.refusals["onnxruntime"]
