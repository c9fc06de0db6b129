"""The predicted name equals the name that the real provider requests, for random and unusual graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from doubles.ort_migraphx import ARCH, PROVIDER, VERSION, Judge, Outcome
from paths import DATA

from mxr.consumers.ort import contract
from mxr.consumers.ort.prediction.name_fields import PredictedName, PredictionRefused, Unpredictable
from mxr.consumers.ort.prediction.naming import PredictionRequest, check_predictable, predict, predict_with
from mxr.consumers.ort.prediction.optimizer import started

from .graphs import random_model
from .odd import ODD

pytestmark = pytest.mark.timeout(900)

SEEDS = range(60)
MODELS = DATA / "models"


def ask_both(
    judge: Judge, folder: Path, models: Sequence[Path], arch: str = ARCH, **task: Any
) -> list[tuple[PredictedName | Unpredictable, Outcome]]:
    """The prediction for each of these files, and what the provider did."""
    from_bytes, level = task.get("bytes", False), task.get("level", "all")
    outcomes = judge.sessions([{"model": str(each), **task} for each in models], folder / "sessions", arch=arch)
    found = contract.Contract("B", VERSION, PROVIDER)
    questions = [
        PredictionRequest(each, found, arch, None if from_bytes else each.name, level=level, python=str(judge.python))
        for each in models
    ]
    return list(zip(predict_all(questions), outcomes, strict=True))


def predict_all(questions: Sequence[PredictionRequest]) -> list[PredictedName | Unpredictable]:
    """The predictions of one child interpreter, that of the first question: each start of one takes long."""
    answers: list[PredictedName | Unpredictable] = []
    with started(questions[0].python) as optimizer:
        for each in questions:
            try:
                check_predictable(each)
                answers.append(predict_with(optimizer, each))
            except PredictionRefused as refused:
                answers.append(refused.answer)
    return answers


def write(folder: Path, models: dict[str, onnx.ModelProto]) -> list[Path]:
    for name, model in models.items():
        onnx.save(model, folder / f"{name}.onnx")
    return [folder / f"{name}.onnx" for name in models]


@pytest.mark.parametrize("kind", ["fp32", "fp16", "mixed"])
def test_the_prediction_is_right(judge: Judge, tmp_path: Path, kind: str) -> None:
    models = {
        f"{kind}-{seed}": random_model(
            seed, half=kind == "fp16" or (kind == "mixed" and seed % 2 == 1), mixed=kind == "mixed"
        )
        for seed in SEEDS
    }
    rows = ask_both(judge, tmp_path, write(tmp_path, models))
    refused = [name for name, _ in rows if isinstance(name, Unpredictable)]
    assert all(each.reason for each in refused)
    assert len(refused) <= len(rows) // 10
    wrong = {
        outcome.cache.name: (name.file, outcome.asked)
        for name, outcome in rows
        if isinstance(name, PredictedName) and outcome.asked != {name.file}
    }
    assert not wrong


@pytest.mark.parametrize(
    "task",
    [{"bytes": True}, {"level": "basic"}, {"level": "disable"}, {"options": {"migraphx_fp16_enable": "1"}}],
    ids=["from bytes", "basic", "disable", "the provider's own fp16"],
)
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_the_prediction_is_right_however_the_model_is_opened(
    judge: Judge, tmp_path: Path, task: dict[str, Any], half: bool
) -> None:
    models = write(tmp_path, {f"m{seed}": random_model(seed, half=half) for seed in range(100, 112)})
    for name, outcome in ask_both(judge, tmp_path, models, **task):
        assert isinstance(name, PredictedName), name
        assert outcome.asked == {name.file}


@pytest.mark.parametrize("arch", ["gfx1100", "gfx90a:sramecc+:xnack-", "gfx942"])
def test_the_arch_is_in_the_name(judge: Judge, tmp_path: Path, arch: str) -> None:
    models = write(tmp_path, {"a.b": random_model(1), "other name": random_model(1)})
    rows = ask_both(judge, tmp_path, models, arch)
    assert [{name.file} for name, _ in rows if isinstance(name, PredictedName)] == [
        outcome.asked for _, outcome in rows
    ]
    assert rows[0][1].asked != rows[1][1].asked  # the name depends on the file name as well


REFUSED = {
    "conv_dyn": "open dims",
    "open_batch": "open dims",
    "no_shape": "open dims",
    "scalar_input": "scalar",
    "shape_computed": "computed",
    "unsupported": "Hardmax",
    "only_unsupported": "Hardmax",
    "branches": "graphs within nodes",
    "all_constant": "no node is left",
    "half_constants": "constants only",
    "bfloat16": "CPU",
}
"""Models whose name cannot be predicted, with a part of the reason; the others are predicted."""


def test_unusual_models(judge: Judge, tmp_path: Path) -> None:
    rows = ask_both(judge, tmp_path, write(tmp_path, {name: make() for name, make in ODD.items()}))
    for model, (name, outcome) in zip(ODD, rows, strict=True):
        if model in REFUSED:
            assert isinstance(name, Unpredictable), model
            assert REFUSED[model] in name.reason and name.hint
        else:
            assert isinstance(name, PredictedName), (model, name)
            assert outcome.asked == {name.file}, model


def test_the_models_of_the_tests(judge: Judge, tmp_path: Path) -> None:
    models = sorted(MODELS.glob("*.onnx"))
    rows = ask_both(judge, tmp_path, models)
    assert rows
    for name, outcome in rows:
        assert isinstance(name, Unpredictable) or outcome.asked == {name.file}


def test_weights_beside_the_model(judge: Judge, tmp_path: Path) -> None:
    model = random_model(7)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    ((name, outcome),) = ask_both(judge, tmp_path, [tmp_path / "m.onnx"])
    assert isinstance(name, PredictedName) and outcome.asked == {name.file}


def test_a_predicted_file_is_loaded_and_nothing_is_compiled(judge: Judge, tmp_path: Path) -> None:
    (model,) = write(tmp_path, {"m": random_model(3)})
    ((name, first),) = ask_both(judge, tmp_path, [model])
    assert isinstance(name, PredictedName)
    assert first.verbs == ["parse", "compile", "save"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (first.cache / name.file).rename(elsewhere / name.file)
    (second,) = judge.sessions([{"model": str(model), "cache": str(elsewhere), "run": {}}], tmp_path / "again")
    assert second.verbs == ["load", "run"]
    assert "error" not in second.reply


def test_the_provider_of_the_wheel_is_recognised(judge: Judge) -> None:
    found = contract.of_library(judge.provider_library)
    assert (found.generation, found.version, found.provider) == ("B", VERSION, PROVIDER)


def test_an_interpreter_with_another_version_is_refused(judge: Judge, tmp_path: Path) -> None:
    (model,) = write(tmp_path, {"m": random_model(3)})
    found = predict(
        PredictionRequest(model, contract.Contract("B", "1.24.0", PROVIDER), ARCH, "m.onnx", python=str(judge.python))
    )
    assert isinstance(found, Unpredictable)
    assert VERSION in found.reason and "1.24.0" in found.reason and "--ort-python" in found.hint
