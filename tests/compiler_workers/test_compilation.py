"""What a compile returns, the same with the MIGraphX double and with the real MIGraphX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from mxr.artifact.target import DynamicDim
from mxr_workers.compilation import CompileAttemptFailed
from mxr_workers.interpreter import Interpreter, describe_interpreter, probe
from mxr_workers.sandbox import ChildObserver

from .conftest import GraphCompiler, Target, double_interpreter
from .graphs import GRAPHS
from .in_process import InProcessInterpreter

Run = Callable[[Path, dict[str, np.ndarray]], list[np.ndarray]]

pytestmark = pytest.mark.timeout(120)


def test_an_interpreter_is_described(compiler: GraphCompiler) -> None:
    info = describe_interpreter(compiler.target.interpreter, compiler.folder / "describe")
    assert "ref" in info.targets
    assert info.migraphx is not None and info.migraphx.startswith(compiler.target.migraphx + ".")
    assert {"fp16", "int8"} <= set(info.precisions) and "int4w" not in info.precisions
    assert info.features["dynamic_dims"] and not info.features["cross_compile"]


def test_a_working_target_passes_its_probe(compiler: GraphCompiler) -> None:
    assert probe(compiler.target.interpreter, "ref", compiler.folder / "probe") is None


def test_a_compile_returns_description_provenance_and_phases(compiler: GraphCompiler) -> None:
    check_result(compiler)


def test_a_child_process_returns_the_same_as_the_double_in_process(tmp_path: Path) -> None:
    interpreter = double_interpreter(tmp_path / "settings", Interpreter, quick=True)
    check_result(GraphCompiler(Target(interpreter, "ref", "2.15"), tmp_path))
    info = describe_interpreter(interpreter, tmp_path / "describe")
    assert info.targets == ("gpu", "ref") and info.migraphx == "2.15.0"
    assert probe(interpreter, "ref", tmp_path / "probe") is None


def check_result(compiler: GraphCompiler) -> None:
    """Compile a graph and check what the compile returns."""
    phases: list[str] = []
    compiled = compiler.compile("conv_bn_relu", batch=4, observer=ChildObserver(phase=phases.append))
    assert phases == ["parse", "compile", "save", "end", "load", "run"]
    assert compiled.description["targets"] == ["ref"]
    assert compiled.description["inputs"] == {"x": {"type": "float_type", "dims": [4, 3, 8, 8]}}
    assert compiled.verified is not None
    assert compiled.verified["outputs"] == [{"type": "float_type", "dims": [4, 4, 6, 6]}]
    assert compiled.verified["finite"] is True and compiled.attributes.latency_ms is not None
    provenance = compiled.provenance
    assert provenance["migraphx"].startswith(compiler.target.migraphx) and provenance["compile_seconds"] > 0
    assert provenance["peak_memory"] > 10 << 20
    assert provenance["log_sha256"] == compiled.log.sha256


@pytest.mark.parametrize("precision", [("fp16",), ("bf16",), ("int8",), ("int8", "fp16")])
def test_the_file_shows_its_precisions(compiler: GraphCompiler, precision: tuple[str, ...]) -> None:
    phases: list[str] = []
    compiled = compiler.compile("conv", batch=2, precision=precision, observer=ChildObserver(phase=phases.append))
    assert phases[:3] == ["parse", "quantise", "compile"]
    assert set(precision) <= set(compiled.description["precisions"])
    assert [warning for warning in compiled.warnings if "calibration" in warning] == list(compiled.warnings)
    assert bool(compiled.warnings) == ("int8" in precision)


def test_int4_weights_are_refused_permanently(compiler: GraphCompiler) -> None:
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile("matmul", precision=("int4w",))
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "no-int4w")


@pytest.mark.parametrize("dims", [(2, 16), (6, 16), (3, 2, 16)], ids=["one", "joined", "stacked"])
def test_calibration_data_is_read_from_an_npz(compiler: GraphCompiler, dims: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, x=np.random.default_rng(1).random(dims))
    compiled = compiler.compile("gemm", batch=2, precision=("int8",), calibration="0" * 64, task={"calibration": path})
    assert compiled.warnings == ()


@pytest.mark.parametrize("values", [{"y": np.zeros((2, 16))}, {"x": np.zeros((2, 15))}, {"x": np.zeros((3, 16))}])
def test_calibration_data_that_does_not_fit_is_refused(compiler: GraphCompiler, values: dict, tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, **values)
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile("gemm", batch=2, precision=("int8",), task={"calibration": path})
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "calibration")


def test_dynamic_dims(compiler: GraphCompiler) -> None:
    compiled = compiler.compile("gemm", inputs={"x": (DynamicDim(1, 4, (1, 4)), 16)})
    assert compiled.description["inputs"]["x"]["dims"] == [[1, 4, [1, 4]], 16]
    assert compiled.verified is not None and compiled.verified["ran_dims"] == [[4, 5]]


def test_dynamic_and_static_dims_together(compiler: GraphCompiler) -> None:
    compiled = compiler.compile("concat", inputs={"x": (DynamicDim(1, 4), 3, 4), "z": (DynamicDim(1, 4), 2, 4)})
    assert compiled.verified is not None and compiled.verified["ran_dims"] == [[4, 5, 4]]


def test_a_missing_external_file_is_a_permanent_failure(compiler: GraphCompiler) -> None:
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile("external_data", spoil=lambda path: path.with_name("weights.bin").unlink())
    assert caught.value.failure.kind == "permanent", caught.value.failure


def test_a_file_that_is_no_model_is_a_permanent_failure(compiler: GraphCompiler) -> None:
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile("relu", spoil=lambda path: path.write_bytes(b"<html>"))
    assert caught.value.failure.kind == "permanent", caught.value.failure


@pytest.mark.parametrize(
    ("name", "batch"),
    [("attention", 1), ("attention", 4), ("external_data", 2), ("scalar_input", 1), ("bool_input", 2)],
)
def test_outputs_equal_those_of_another_runtime(compiler: GraphCompiler, name: str, batch: int) -> None:
    double = isinstance(compiler.target.interpreter, InProcessInterpreter)
    compare(compiler, name, batch, (), run_reference_evaluator if double else run_onnx_runtime)


def run_reference_evaluator(model: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX's reference evaluator. The double uses it too, so that this compares what is passed to it."""
    return list(ReferenceEvaluator(str(model)).run(None, feed))


def run_onnx_runtime(model: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX Runtime on the CPU."""
    runtime = importlib.import_module("onnxruntime")
    return list(runtime.InferenceSession(str(model)).run(None, feed))


def compare(
    compiler: GraphCompiler, name: str, batch: int, precision: tuple[str, ...], run: Run = run_onnx_runtime
) -> None:
    """Compile a graph and compare its outputs with those of another runtime."""
    graph = GRAPHS[name]
    values = compiler.folder / "values.npz"
    compiled = compiler.compile(name, batch=batch, precision=precision, environment={"save_values": values})
    assert compiled.verified is not None and compiled.verified["ran"]
    with np.load(values) as saved:
        feed = {each: saved[f"in:{each}"].reshape(graph.dims(batch)[each]) for each in graph.inputs}
        expected = run(compiler.folder / "models" / f"{name}.onnx", feed)
        tolerance = graph.tolerance if not precision else 3e-2 if precision == ("fp16",) else 1e-1
        for at, want in enumerate(expected):
            found = saved[f"out:{at}"]
            assert found.size == want.size
            np.testing.assert_allclose(found.reshape(want.shape), want, rtol=tolerance, atol=tolerance)
    described = compiled.description
    assert compiled.verified["inputs"] == described["inputs"]
    assert [row["dims"] for row in compiled.verified["outputs"]] == [row["dims"] for row in described["outputs"]]
