"""What a compile promises, the same with the double and with the real MIGraphX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxr.artifact.target import DynamicDim
from mxr_workers.compilation import Uncompiled
from mxr_workers.interpreter import ask, probe
from mxr_workers.sandbox import ChildObserver

from .conftest import Trade
from .graphs import GRAPHS

pytestmark = pytest.mark.timeout(120)


def test_it_says_what_it_offers(either: Trade) -> None:
    about = ask(either.bench.interpreter, either.folder / "about")
    assert "ref" in about.targets
    assert about.migraphx is not None and about.migraphx.startswith(either.bench.migraphx + ".")
    assert {"fp16", "int8"} <= set(about.precisions) and "int4w" not in about.precisions
    assert about.features["dynamic_dims"] and not about.features["cross_compile"]


def test_its_target_works(either: Trade) -> None:
    assert probe(either.bench.interpreter, "ref", either.folder / "probe") is None


def test_a_compile_leaves_a_program_its_provenance_and_its_phases(either: Trade) -> None:
    phases: list[str] = []
    made = either.compile("conv_bn_relu", batch=4, watch=ChildObserver(phase=phases.append))
    assert phases == ["parse", "compile", "save", "end", "load", "run"]
    assert made.description["targets"] == ["ref"]
    assert made.description["inputs"] == {"x": {"type": "float_type", "dims": [4, 3, 8, 8]}}
    assert made.trial is not None and made.trial["outputs"] == [{"type": "float_type", "dims": [4, 4, 6, 6]}]
    assert made.trial["finite"] is True and made.qualities.latency_ms is not None
    told = made.provenance
    assert told["migraphx"].startswith(either.bench.migraphx) and told["compile_seconds"] > 0
    assert told["peak_memory"] > 10 << 20
    assert told["log_sha256"] == made.log.sha256


@pytest.mark.parametrize("precision", [("fp16",), ("bf16",), ("int8",), ("int8", "fp16")])
def test_precisions_show_in_the_file(either: Trade, precision: tuple[str, ...]) -> None:
    phases: list[str] = []
    made = either.compile("conv", batch=2, precision=precision, watch=ChildObserver(phase=phases.append))
    assert phases[:3] == ["parse", "quantise", "compile"]
    assert set(precision) <= set(made.description["precisions"])
    assert [warning for warning in made.warnings if "calibration" in warning] == list(made.warnings)
    assert bool(made.warnings) == ("int8" in precision)


def test_int4_weights_are_refused_for_ever(either: Trade) -> None:
    with pytest.raises(Uncompiled) as caught:
        either.compile("matmul", precision=("int4w",))
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "no-int4w")


@pytest.mark.parametrize("dims", [(2, 16), (6, 16), (3, 2, 16)], ids=["one", "joined", "stacked"])
def test_calibration_comes_from_an_npz(either: Trade, dims: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, x=np.random.default_rng(1).random(dims))
    made = either.compile("gemm", batch=2, precision=("int8",), calibration="0" * 64, order={"calibration": path})
    assert made.warnings == ()


@pytest.mark.parametrize("values", [{"y": np.zeros((2, 16))}, {"x": np.zeros((2, 15))}, {"x": np.zeros((3, 16))}])
def test_calibration_that_does_not_fit_is_refused(either: Trade, values: dict, tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, **values)
    with pytest.raises(Uncompiled) as caught:
        either.compile("gemm", batch=2, precision=("int8",), order={"calibration": path})
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "calibration")


def test_dynamic_dims(either: Trade) -> None:
    made = either.compile("gemm", inputs={"x": (DynamicDim(1, 4, (1, 4)), 16)})
    assert made.description["inputs"]["x"]["dims"] == [[1, 4, [1, 4]], 16]
    assert made.trial is not None and made.trial["ran_dims"] == [[4, 5]]


def test_dynamic_and_static_inputs_together(either: Trade) -> None:
    made = either.compile("concat", inputs={"x": (DynamicDim(1, 4), 3, 4), "z": (DynamicDim(1, 4), 2, 4)})
    assert made.trial is not None and made.trial["ran_dims"] == [[4, 5, 4]]


def test_a_missing_external_file_is_refused(either: Trade) -> None:
    with pytest.raises(Uncompiled) as caught:
        either.compile("external_data", spoil=lambda path: path.with_name("weights.bin").unlink())
    assert caught.value.failure.kind == "permanent", caught.value.failure


def test_no_model_at_all_is_refused(either: Trade) -> None:
    with pytest.raises(Uncompiled) as caught:
        either.compile("relu", spoil=lambda path: path.write_bytes(b"<html>"))
    assert caught.value.failure.kind == "permanent", caught.value.failure


@pytest.mark.parametrize(
    ("name", "batch"),
    [("attention", 1), ("attention", 4), ("external_data", 2), ("scalar_input", 1), ("bool_input", 2)],
)
def test_the_same_values_come_out_as_from_onnx_runtime(either: Trade, name: str, batch: int) -> None:
    compare(either, name, batch, ())


def compare(trade: Trade, name: str, batch: int, precision: tuple[str, ...]) -> None:
    """Compile a graph, and hold what it computes against ONNX Runtime on the CPU."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    graph = GRAPHS[name]
    values = trade.folder / "values.npz"
    made = trade.compile(name, batch=batch, precision=precision, shop={"save_trial": values})
    assert made.trial is not None and made.trial["ran"]
    session = runtime.InferenceSession(str(trade.folder / "models" / f"{name}.onnx"))
    with np.load(values) as held:
        feed = {each: held[f"in:{each}"].reshape(graph.dims(batch)[each]) for each in graph.inputs}
        expected = session.run(None, feed)
        tolerance = graph.tolerance if not precision else 3e-2 if precision == ("fp16",) else 1e-1
        for at, want in enumerate(expected):
            found = held[f"out:{at}"]
            assert found.size == want.size
            np.testing.assert_allclose(found.reshape(want.shape), want, rtol=tolerance, atol=tolerance)
    read = made.description
    assert made.trial["inputs"] == read["inputs"]
    assert [row["dims"] for row in made.trial["outputs"]] == [row["dims"] for row in read["outputs"]]
