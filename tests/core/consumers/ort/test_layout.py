"""The folder for ONNX Runtime, and what the real provider does with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from core.consumers.parts import delivery, place
from doubles.ort_migraphx import ARCH, Judge
from strategies import GPU

from mxr import consumers
from mxr.artifact.attributes import Constraints
from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.consumers.layout import Delivery
from mxr.consumers.ort import verification
from mxr.consumers.ort.layout import settings
from mxr.consumers.ort.prediction.name_fields import PredictionRefused
from mxr.consumers.ort.prediction.optimizer import started
from mxr.errors import DamagedError, NotAllowedError, UsageError

from .odd import ODD

pytestmark = pytest.mark.timeout(900)

ORT = consumers.find_consumer("ort")
KEY = replace(GPU, arch="gfx942", offload_copy=False, fast_math=False, inputs=(("x", (1, 3, 224, 224)),))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "conv_static.onnx"
    onnx.save(ODD["conv_static"](), path)
    return path


def made(folder: Path, model: Path | None, judge: Judge | None, key: Key = KEY, **said: str) -> Delivery:
    words = {"ort": "1.27.1", "ort_migraphx": "2.15.0", **said}
    if judge is not None:
        words["ort_python"] = str(judge.python)
    constraints = Constraints(sramecc="+", xnack="-")
    return delivery(
        folder, key, stem=model.stem if model else "m", model=model, consumer_options=words, constraints=constraints
    )


def program_for(judge: Judge, model: Path, folder: Path) -> bytes:
    """The program that the stand-ins compile from this model, in another folder."""
    (outcome,) = judge.sessions([{"model": str(model)}], folder)
    (path,) = outcome.cache.glob("*.mxr")
    return path.read_bytes()


def test_the_provider_loads_what_was_placed(judge: Judge, model: Path, tmp_path: Path) -> None:
    data = program_for(judge, model, tmp_path / "elsewhere")
    asked = replace(made(tmp_path / "o", model, judge), artifact=delivery(tmp_path, KEY, data).artifact)
    layout = place(ORT, Cache(tmp_path / "cache"), asked, data)
    home = tmp_path / "o" / layout.path
    names = [piece.name for piece in layout.pieces]
    assert names[-1] == f"{layout.path}/20f00-12d9ae3ea9d3827f-8e96240bd18e6f87-36a8840bfe2de0d1.mxr"
    assert layout.settings[0] == f"ORT_MIGRAPHX_MODEL_CACHE_PATH={home}"
    task = {"model": str(model), "cache": str(home), "run": {}}
    (outcome,) = judge.sessions([task], tmp_path / "run")
    assert outcome.verbs == ["load", "run"]
    assert verification.verify_ort_folders(tmp_path / "o") == verification.verify_ort_folders(home) == ()


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        ({"file": "renamed.onnx"}, "graph", "another name"),
        ({"arch": "gfx1100"}, "arch", "it ran on gfx1100"),
        ({"inputs": 8}, "graph", "other dims"),
    ],
)
def test_the_differing_field_is_reported(
    judge: Judge, model: Path, tmp_path: Path, change: dict[str, Any], field: str, word: str
) -> None:
    data = program_for(judge, model, tmp_path / "elsewhere")
    asked = replace(made(tmp_path / "o", model, judge), artifact=delivery(tmp_path, KEY, data).artifact)
    home = tmp_path / "o" / place(ORT, Cache(tmp_path / "cache"), asked, data).path
    if "file" in change:
        model = model.rename(model.with_name(change["file"]))
    if "inputs" in change:
        other = onnx.load(model)
        other.graph.input[0].type.tensor_type.shape.dim[2].dim_value = change["inputs"]
        onnx.save(other, model)
    (outcome,) = judge.sessions(
        [{"model": str(model), "cache": str(home)}], tmp_path / "run", arch=change.get("arch", ARCH)
    )
    assert outcome.verbs == ["parse", "compile", "save"]
    (finding,) = verification.verify_ort_folders(home)
    assert finding.kind == "added" and {finding.path.name} == outcome.asked
    assert field in [name for name, _, _ in finding.differences]
    assert word in finding.why
    assert finding.to_json()["differences"][0].keys() == {"field", "asked", "found"}


def test_rewritten_and_missing_files_are_reported(judge: Judge, model: Path, tmp_path: Path) -> None:
    asked = made(tmp_path / "o", model, judge)
    home = tmp_path / "o" / place(ORT, Cache(tmp_path / "cache"), asked, b"program").path
    (outcome,) = judge.sessions([{"model": str(model), "cache": str(home)}], tmp_path / "run")
    assert outcome.verbs == ["damaged", "parse", "compile", "save"]
    (finding,) = verification.verify_ort_folders(home)
    assert finding.kind == "rewritten" and "could not load" in finding.why
    finding.path.unlink()
    assert [each.kind for each in verification.verify_ort_folders(home)] == ["missing"]


def test_a_folder_for_each_precision_and_one_for_all_batches(model: Path, tmp_path: Path) -> None:
    from mxr.consumers.ort.layout import folder_name

    half = replace(KEY, precision=("fp16",))
    eight = replace(KEY, inputs=(("x", (8, 3, 224, 224)),))
    assert folder_name("m", KEY) == folder_name("m", eight) != folder_name("m", half)
    assert folder_name("a b/ü", KEY).startswith("a_b__-")


def test_settings_of_other_generations(judge: Judge, model: Path, tmp_path: Path) -> None:
    def lines(key: Key = KEY, **said: str) -> tuple[str, ...]:
        assert ORT.lay_out is not None
        return ORT.lay_out(made(tmp_path, model, judge, key, **said)).settings

    literal = lines(ort="A")
    assert "ORT_MIGRAPHX_LOAD_COMPILED_MODEL=1" in literal and "ORT_MIGRAPHX_SAVE_COMPILED_MODEL=0" in literal
    assert "ORT_MIGRAPHX_COMPILE_BATCHES=1" in settings("C", "o", KEY)
    assert settings("D", "o", KEY)[0].startswith("ORT_MIGRAPHX_CACHE_DIR=")
    assert "ORT_MIGRAPHX_FP16_ENABLE=1" in lines(replace(KEY, precision=("fp16",)), ort="B")


@pytest.mark.parametrize(
    ("key", "word"),
    [
        (replace(KEY, offload_copy=True), "offload_copy"),
        (replace(KEY, fast_math=True), "fast_math"),
        (replace(KEY, kind="ref"), "only GPU programs"),
        (replace(KEY, inputs=(("x", (DynamicDim(1, 8), 3)),)), "dynamic dim"),
    ],
)
def test_keys_that_the_provider_cannot_use(key: Key, word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        ORT.check("m", key)
    assert caught.value.hint


def test_open_dims_offer_to_freeze(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(ODD["open_batch"](), path)
    with pytest.raises(UsageError, match="open dims") as caught:
        ORT.lay_out(made(tmp_path, path, judge))
    assert "mxr freeze" in caught.value.hint


@pytest.mark.parametrize("generation", ["B'", "C", "D"])
def test_names_that_only_their_provider_knows(judge: Judge, model: Path, tmp_path: Path, generation: str) -> None:
    assert ORT.lay_out is not None
    with pytest.raises(UsageError, match=f"generation {generation} .* known to that provider only") as caught:
        ORT.lay_out(made(tmp_path, model, judge, ort=generation))
    assert "--on-miss wait" in caught.value.hint and "mxr import --ort-cache" in caught.value.hint
    assert caught.value.exit == 2


def test_without_the_model_or_the_features(judge: Judge, model: Path, tmp_path: Path) -> None:
    assert ORT.lay_out is not None
    with pytest.raises(UsageError, match="model itself"):
        ORT.lay_out(made(tmp_path, None, judge))
    with pytest.raises(UsageError, match="full name"):
        ORT.lay_out(replace(made(tmp_path, model, judge), constraints=Constraints()))


def test_an_interpreter_without_onnxruntime(model: Path, tmp_path: Path) -> None:
    assert ORT.lay_out is not None
    for python in ("/nowhere/python", "/bin/true"):
        with pytest.raises(UsageError, match="cannot be predicted") as caught:
            ORT.lay_out(made(tmp_path, model, None, ort_python=python))
        assert "--ort-python" in caught.value.hint


def test_an_interpreter_that_never_answers(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    with (
        pytest.raises(PredictionRefused, match=r"no answer within 0\.2 s") as caught,
        started(str(silent), patience=0.2),
    ):
        pass
    assert "--ort-python" in caught.value.answer.hint


def test_a_foreign_file_of_that_name_stays(judge: Judge, model: Path, tmp_path: Path) -> None:
    asked, cache = made(tmp_path / "o", model, judge), Cache(tmp_path / "cache")
    assert ORT.lay_out is not None
    theirs = tmp_path / "o" / ORT.lay_out(asked).pieces[-1].name
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"compiled here")
    with pytest.raises(NotAllowedError):
        place(ORT, cache, asked)
    assert theirs.read_bytes() == b"compiled here"
    place(ORT, cache, asked, force=True)
    assert theirs.read_bytes() == b"program"


def test_folders_without_records_of_mxr(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing that mxr placed"):
        verification.verify_ort_folders(tmp_path)
    with pytest.raises(UsageError):
        verification.verify_ort_folders(tmp_path / "nowhere")
    (tmp_path / "m" / ".mxr-names").mkdir(parents=True)
    (tmp_path / "m" / ".mxr-names" / "x.json").write_text("{}")
    with pytest.raises(DamagedError, match="not a valid record"):
        verification.verify_ort_folders(tmp_path)
