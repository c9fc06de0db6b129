"""Models with their dims closed: the same model to ONNX's checker and evaluator, with static shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mxr import onnxfile
from mxr.errors import DamagedError, NotAllowedError, UsageError
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


def weights_of(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load(path).graph.initializer[0]).ravel()


def test_external_data_lies_once_beside_the_files_under_a_name_of_our_own(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4], external=True)
    out = tmp_path / "out"
    paths = freeze_batches(source, out, [1, 2])
    assert sorted(path.name for path in out.iterdir()) == ["m.b1.onnx", "m.b2.onnx", "m.data"]
    for path in paths:
        np.testing.assert_array_equal(weights_of(path), np.arange(24, dtype=np.float32))
        assert onnxfile.read_model(path).external == ("m.data",)
    assert [path.name for path in freeze_batches(source, out, [3])] == ["m.b3.onnx"], "the same data is used"
    (out / "m.data").write_bytes(b"other")
    with pytest.raises(NotAllowedError, match="already exists"):
        freeze_batches(source, out, [8])
    with pytest.raises(NotAllowedError, match=r"external data of .*m\.b1\.onnx"):
        freeze_batches(source, out, [2, 3], force=True)
    freeze_batches(source, out, [1, 2, 3], force=True)
    np.testing.assert_array_equal(weights_of(out / "m.b2.onnx"), np.arange(24, dtype=np.float32))


def test_in_the_folder_of_the_model_its_own_data_is_used(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4], external=True)
    (path,) = freeze_batches(source, tmp_path, [1])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.b1.onnx", "m.onnx", "w.bin"]
    assert onnxfile.read_model(path).external == ("w.bin",)


HARMFUL = (".bash_profile", ".git/hooks/pre-commit", "conftest.py", "m.b1.onnx")


def test_the_author_of_a_model_names_no_file_that_is_written(tmp_path: Path) -> None:
    """Also in subgraphs, attributes, sparse tensors, functions and training graphs, and by several names."""
    home, out = tmp_path / "home", tmp_path / "out"
    for location in HARMFUL:
        (home / location).parent.mkdir(parents=True, exist_ok=True)
        (home / location).write_bytes(location.encode().ljust(96, b"."))
    source = model(home / "m.onnx", ["N", 4])
    made = onnx.load(source)

    def tensor(location: str) -> onnx.TensorProto:
        found = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[24], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", "96")):
            found.external_data.add(key=key, value=value)
        return found

    inner = helper.make_graph([], "inner", [], [], initializer=[tensor(HARMFUL[0])])
    made.graph.node.append(helper.make_node("If", ["c"], [], then_branch=inner, else_branch=inner))
    made.graph.node.append(helper.make_node("Constant", [], ["k"], value=tensor(HARMFUL[1])))
    made.graph.initializer.append(tensor(f"./{HARMFUL[1]}"))
    made.graph.sparse_initializer.add().values.CopyFrom(tensor(HARMFUL[2]))
    made.functions.add(name="f").node.append(helper.make_node("Constant", [], ["k"], value=tensor(HARMFUL[3])))
    made.training_info.add().algorithm.CopyFrom(inner)
    onnx.save(made, source)
    (path,) = freeze_batches(source, out, [1])
    assert sorted(str(each.relative_to(out)) for each in out.rglob("*")) == [
        "m.0.data", "m.1.data", "m.2.data", "m.3.data", "m.b1.onnx"
    ]  # fmt: skip
    locations = sorted(onnxfile.read_model(source).external)
    assert len(locations) == 5 and sorted(onnxfile.read_model(path).external) == [f"m.{n}.data" for n in range(4)]
    frozen = onnx.load(path, load_external_data=False)
    for found, location in (
        (frozen.graph.node[-2].attribute[0].g.initializer[0], HARMFUL[0]),
        (frozen.graph.node[-1].attribute[0].t, HARMFUL[1]),
        (frozen.graph.initializer[-1], HARMFUL[1]),
        (frozen.graph.sparse_initializer[0].values, HARMFUL[2]),
        (frozen.functions[0].node[0].attribute[0].t, HARMFUL[3]),
        (frozen.training_info[0].algorithm.initializer[0], HARMFUL[0]),
    ):
        entries = {row.key: row.value for row in found.external_data}
        assert entries.keys() == {"location", "offset", "length"}
        assert (out / entries["location"]).read_bytes() == (home / location).read_bytes()


def test_what_is_there_stays_without_force(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", ["N", 4])
    (tmp_path / "m.b1.onnx").write_bytes(b"mine")
    with pytest.raises(NotAllowedError, match="already"):
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
    with pytest.raises(UsageError, match="Some dims are unknown"):
        freeze_batches(source, tmp_path / "out", [1])
    assert not (tmp_path / "out").exists()
    (tmp_path / "no.onnx").write_bytes(b"{}")
    with pytest.raises(DamagedError):
        freeze_batches(tmp_path / "no.onnx", tmp_path / "out", [1])
