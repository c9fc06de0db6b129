"""May this program come from this model: what contradicts, and what proves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from mxr.artifact import model_evidence
from mxr.artifact.key import Key
from mxr.onnxfile import OnnxInput, OnnxModel, read_model
from mxr.program import describe_file

X = OnnxInput("x", "float32", ("N", 3))
OPEN = OnnxInput("x", "float32", ("N", "length"))
Y = OnnxInput("y", "float32", ("N", 10))


def key(*precision: str) -> Key:
    return Key(
        model="xxh3:" + "0" * 32, kind="ref", migraphx="2.16", inputs=(("x", (1, 3)),), precision=tuple(precision)
    )


def against(made: list[Any], *outputs: OnnxInput, inputs: tuple[OnnxInput, ...] = (X,)) -> list[str]:
    model = OnnxModel(Path("m.onnx"), 1, inputs, outputs, (), 17, 8, "")
    found = model_evidence.contradictions(
        key(), model, {"outputs": [{"type": "float_type", "dims": dims} for dims in made]}
    )
    return [each.field for each in found]


@pytest.mark.parametrize(
    ("made", "outputs", "fields"),
    [
        ([[8, 10]], (Y,), []),
        ([[[1, 8, []], 10]], (Y,), []),
        ([[8, 11]], (Y,), ["outputs.y"]),
        ([[8, 10, 1]], (Y,), ["outputs.y"]),
        ([[8, 10], [8, 10]], (Y,), ["outputs"]),
        ([[8, 10]], (), []),
        ([], (Y,), []),
        ([[1]], (OnnxInput("y", "float32", ()),), []),
        ([[1]], (OnnxInput("y", "float32", None),), []),
        ([None], (Y,), []),
    ],
)
def test_outputs(made: list[Any], outputs: tuple[OnnxInput, ...], fields: list[str]) -> None:
    assert against(made, *outputs) == fields


def test_sizes_that_follow_from_open_dims_prove_nothing() -> None:
    assert against([[8, 11]], Y, inputs=(OPEN,)) == []
    assert against([[8, 11, 1]], Y, inputs=(OPEN,)) == ["outputs.y"]


@pytest.mark.parametrize(
    ("name", "precision", "fields"),
    [
        ("convnet_b1_fp16_ref", (), ["precision"]),
        ("convnet_b4_bf16_ref", (), ["precision"]),
        ("convnet_b1_fp16_ref", ("fp16",), []),
        ("convnet_b4_fp32_ref", (), []),
        ("convnet_b4_int8_ref", (), []),
    ],
)
def test_halves_that_neither_model_nor_label_has(name: str, precision: tuple[str, ...], fields: list[str]) -> None:
    model = read_model(DATA / "models" / "convnet.onnx")
    facts = describe_file(DATA / "mxr_real" / f"{name}.mxr").to_json()
    assert [each.field for each in model_evidence.contradictions(key(*precision), model, facts)] == fields


def test_a_model_with_halves_of_its_own(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, half = onnx.helper, onnx.TensorProto.FLOAT16
    facts = {"precisions": ["fp16"]}
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=half), helper.make_node("Cast", ["y"], ["z"], to=1)]
    ends = [helper.make_tensor_value_info(name, 1, [1, 3]) for name in ("x", "z")]
    weights = helper.make_tensor("w", half, [1], [1.0])
    for made in (
        helper.make_graph(nodes, "g", ends[:1], ends[1:]),
        helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "g", ends[:1], ends[1:], [weights]),
    ):
        path = tmp_path / "m.onnx"
        onnx.save(helper.make_model(made), path)
        assert model_evidence.contradictions(key(), read_model(path), facts) == ()
