"""Models with their dims closed: the same model to ONNX's checker and evaluator, with static shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mxr import onnxfile
from mxr.errors import Damaged, NotAllowed, Usage
from mxr.workflows.freeze import freeze_batches


def model(
    path: Path, dims: list[int | str | None], *, out: list[int | str] | None = None, external: bool = False
) -> Path:
    """x -> MatMul -> Relu, with value infos that carry symbols."""
    weight = numpy_helper.from_array(np.arange(24, dtype=np.float32).reshape(4, 6), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [weight],
        value_info=[helper.make_tensor_value_info("m", TensorProto.FLOAT, ["N", 6])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made.metadata_props.add(key="maker", value="test")
    onnx.save(made, path, save_as_external_data=external, location="w.bin", size_threshold=0)
    return path


def dims_of(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


def test_one_file_for_each_batch(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4], out=["N", 6])
    paths = freeze_batches(source, tmp_path / "out", [1, 4, 4])
    assert [path.name for path in paths] == ["m.b1.onnx", "m.b4.onnx"]
    before = onnx.load(source)
    for path, batch in zip(paths, (1, 4), strict=True):
        frozen = onnx.load(path)
        onnx.checker.check_model(frozen, full_check=True)
        assert dims_of(frozen.graph.input[0]) == [batch, 4]
        assert dims_of(frozen.graph.output[0]) == dims_of(frozen.graph.value_info[0]) == [batch, 6]
        assert onnxfile.read_model(path).inputs[0].dims == (batch, 4)
        x = np.ones((batch, 4), np.float32)
        told = [ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (before, frozen)]
        np.testing.assert_array_equal(*told)
        assert (frozen.metadata_props, frozen.graph.initializer) == (before.metadata_props, before.graph.initializer)


def test_dims_without_a_name_and_outputs_of_other_symbols(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", [None, 4], out=["K", 6])
    (path,) = freeze_batches(source, tmp_path, [3])
    frozen = onnx.load(path)
    assert dims_of(frozen.graph.input[0]) == [3, 4]
    assert not frozen.graph.output[0].type.tensor_type.HasField("shape")
    assert frozen.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
    assert not frozen.graph.value_info
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(frozen), full_check=True)


def test_an_input_without_a_shape(tmp_path: Path) -> None:
    made = onnx.load(model(tmp_path / "m.onnx", [1, 4]))
    made.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(made, tmp_path / "m.onnx")
    (path,) = freeze_batches(tmp_path / "m.onnx", tmp_path / "out", [2], (("x", (2, 4)),))
    assert dims_of(onnx.load(path).graph.input[0]) == [2, 4]


def test_external_data_lies_once_beside_the_files(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4], external=True)
    paths = freeze_batches(source, tmp_path / "out", [1, 2])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m.b1.onnx", "m.b2.onnx", "w.bin"]
    for path in paths:
        np.testing.assert_array_equal(
            numpy_helper.to_array(onnx.load(path).graph.initializer[0]).ravel(), np.arange(24, dtype=np.float32)
        )
    assert [path.name for path in freeze_batches(source, tmp_path, [1])] == ["m.b1.onnx"]
    (tmp_path / "out" / "w.bin").write_bytes(b"other")
    with pytest.raises(NotAllowed, match="exists with other content"):
        freeze_batches(source, tmp_path / "out", [8])


def test_what_is_there_stays_without_force(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4])
    (tmp_path / "m.b1.onnx").write_bytes(b"mine")
    with pytest.raises(NotAllowed, match="already"):
        freeze_batches(source, tmp_path, [1])
    assert (tmp_path / "m.b1.onnx").read_bytes() == b"mine"
    freeze_batches(source, tmp_path, [1], force=True)
    assert dims_of(onnx.load(tmp_path / "m.b1.onnx").graph.input[0]) == [1, 4]


def test_other_open_dims_are_said_once_for_all_batches(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", "M"])
    paths = freeze_batches(source, tmp_path / "out", [1, 8], (("x", (1, 4)),))
    assert [dims_of(onnx.load(path).graph.input[0]) for path in paths] == [[1, 4], [8, 4]]


def test_what_cannot_be_frozen(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", "M"])
    with pytest.raises(Usage, match="Some dims are unknown"):
        freeze_batches(source, tmp_path / "out", [1])
    assert not (tmp_path / "out").exists()
    (tmp_path / "no.onnx").write_bytes(b"{}")
    with pytest.raises(Damaged):
        freeze_batches(tmp_path / "no.onnx", tmp_path / "out", [1])
