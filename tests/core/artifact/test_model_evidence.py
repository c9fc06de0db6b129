"""May this program come from this model: what contradicts, and what proves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from harness.rows import for_each
from paths import DATA

from mxr.artifact import model_evidence
from mxr.artifact.key import Key
from mxr.onnxfile import OnnxInput, OnnxModel, OutputDim, read_model
from mxr.program import describe_file

X = OnnxInput("x", "float32", ("N", 3))
OPEN = OnnxInput("x", "float32", ("N", "length"))
Y = OnnxInput("y", "float32", ("N", 10))


def key(*precision: str) -> Key:
    return Key(model="sha256:" + "0" * 64, kind="ref", migraphx="2.16", inputs=(), precision=tuple(precision))


def made_of(*outputs: OnnxInput, inputs: tuple[OnnxInput, ...] = (X,), **facts: Any) -> OnnxModel:
    return replace(OnnxModel(Path("m.onnx"), 1, inputs, outputs, (), 17, 8, ""), **facts)


def returning(made: list[Any]) -> dict[str, Any]:
    return {"outputs": [{"type": "float_type", "dims": dims} for dims in made]}


def fields(model: OnnxModel, description: dict[str, Any], *precision: str, **asked: Any) -> list[str]:
    wanted = replace(key(*precision), **asked)
    return [each.field for each in model_evidence.contradictions(wanted, model, description)]


@for_each(
    [
        ([[8, 10]], (Y,), False),
        ([[[1, 8, []], 10]], (Y,), False),
        ([[8, 11]], (Y,), True),
        ([[8, 10, 1]], (Y,), True),
        ([[8, 10]], (), False),
        ([], (Y,), False),
        ([[1]], (OnnxInput("y", "float32", ()),), False),
        ([[1]], (OnnxInput("y", "float32", None),), False),
        ([None], (Y,), False),
    ]
)
def test_declared_dims_warn_and_contradict_nothing(made: list[Any], outputs: Any, warned: bool) -> None:
    """MIGraphX ignores them."""
    model = made_of(*outputs)
    assert fields(model, returning(made)) == []
    found = model_evidence.warnings(model, returning(made))
    assert ["y float32[N, 10], but the program returns float_type[8,1" in text for text in found] == [True] * warned


def test_sizes_that_follow_from_open_dims_warn_of_nothing() -> None:
    model = made_of(Y, inputs=(OPEN,))
    assert not model_evidence.warnings(model, returning([[8, 11]]))
    assert model_evidence.warnings(model, returning([[8, 11, 1]]))


def test_not_more_warnings_than_a_person_reads() -> None:
    model = made_of(*(replace(Y, name=f"y{number}") for number in range(100)))
    found = model_evidence.warnings(model, returning([[8, 11]] * 100))
    assert len(found) == model_evidence.SHOWN + 1 and "92 more" in found[-1]


def test_another_number_of_outputs_contradicts_and_another_declared_type_warns() -> None:
    """MIGraphX's own test models declare `float` for the outputs of ArgMax, Equal, Shape and others."""
    whole = OnnxInput("i", "int64", ("N",))
    rows = [{"type": "float_type", "dims": [8, 10]}, {"type": "int64_type", "dims": [8]}]
    assert fields(made_of(Y, whole), {"outputs": rows[:1]}) == fields(made_of(Y), {"outputs": rows}) == ["outputs"]
    assert fields(made_of(Y, whole), {"outputs": rows[::-1]}) == []
    assert len(model_evidence.warnings(made_of(Y, whole), {"outputs": rows[::-1]})) == 2
    assert model_evidence.warnings(made_of(Y, whole), {"outputs": rows}) == ()
    for unknown in ("undefined", "sequence", "type99", "uint4"):
        assert model_evidence.warnings(made_of(OnnxInput("y", unknown, None)), {"outputs": rows[:1]}) == ()


@for_each(
    [
        (OutputDim(-1, 10, 2), [8, 10], False),
        (OutputDim(-1, 10, 2), [8, [1, 10, []]], False),
        (OutputDim(-1, 10, 2), [8, 11], True),
        (OutputDim(-1, 10, 2), [8, 1, 10], True),
        (OutputDim(-1, 10, None), [8, 1, 10], False),
        (OutputDim(-1, 10, None), [], True),
        (OutputDim(1, 64, 4), [8, 64, 5, 5], False),
        (OutputDim(1, 64, 4), [8, 64], True),
        (OutputDim(1, 64, 4), [8, 63, 5, 5], True),
    ]
)
def test_dims_from_weights_contradict(dim: OutputDim, made: list[Any], contradicted: bool) -> None:
    """MIGraphX cannot ignore the weights."""
    model = made_of(OnnxInput("y", "float32", None), weight_dims=(("y", dim),))
    assert fields(model, returning([made])) == ["outputs.y"] * contradicted


def test_inputs_of_another_model_contradict() -> None:
    asked = (("x", (8, 3)),)
    assert fields(made_of(Y), {}, inputs=asked) == []
    assert fields(made_of(Y, inputs=(X, replace(OPEN, name="unused"))), {}, inputs=asked) == []
    for other in (replace(X, name="z"), replace(X, dims=("N", 4)), replace(X, dims=("N", 3, 1))):
        assert fields(made_of(Y, inputs=(other,)), {}, inputs=asked)[0].startswith("inputs")


def test_a_program_without_a_key() -> None:
    model = made_of(Y, inputs=(X, OnnxInput("s", "float32", ()), OnnxInput("open", "float32", ("N",))))
    rows = {"x": {"dims": [8, 3]}, "s": {"dims": [1]}, "open": {"dims": [None]}}
    assert model_evidence.of_program(model, {"inputs": rows} | returning([[8, 11]])) == ()
    for wrong in ({"x": {"dims": [8, 4]}}, {"z": {"dims": [8, 3]}}, {"s": {"dims": [2]}}):
        (found,) = model_evidence.of_program(model, {"inputs": wrong})
        assert found.field.startswith("inputs")


def test_integer_operators_are_computed_in_fp16() -> None:
    own = made_of(Y, types=frozenset({"float32", "uint8"}))
    half, brain = {"precisions": ["fp16", "int8"]}, {"precisions": ["bf16"]}
    assert fields(own, half) == ["precision"]
    for operator in ("MatMulInteger", "ConvInteger"):
        model = replace(own, operators=frozenset({operator, "Add"}))
        assert fields(model, half) == [] and fields(model, brain) == ["precision"]
    assert fields(replace(own, operators=frozenset({"MatMul", "QLinearConv"})), half) == ["precision"]


@pytest.mark.parametrize(
    ("name", "precision", "wrong"),
    [
        ("convnet_b1_fp16_ref", (), ["precision"]),
        ("convnet_b4_bf16_ref", (), ["precision"]),
        ("convnet_b1_fp16_ref", ("fp16",), []),
        ("convnet_b4_fp32_ref", (), []),
        ("convnet_b4_int8_ref", (), []),
    ],
)
def test_halves_that_neither_model_nor_label_has(name: str, precision: tuple[str, ...], wrong: list[str]) -> None:
    model = read_model(DATA / "models" / "convnet.onnx")
    facts = describe_file(DATA / "mxr_real" / f"{name}.mxr").to_json()
    assert fields(model, facts, *precision) == wrong


def test_a_model_with_halves_of_its_own(tmp_path: Path) -> None:
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
