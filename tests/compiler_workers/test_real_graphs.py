"""Compile many graphs with a real MIGraphX; compare the outputs with ONNX Runtime and the files with the reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import GraphCompiler, Target
from .graphs import GRAPHS
from .test_compilation import compare

if not os.environ.get("MXR_TEST_MIGRAPHX_PYTHON"):
    pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx", allow_module_level=True)

pytestmark = [pytest.mark.real_migraphx, pytest.mark.timeout(180)]

BATCHES = [int(each) for each in os.environ.get("MXR_TEST_BATCHES", "1,4").split(",")]
CASES = [(name, batch) for name, graph in GRAPHS.items() for batch in (BATCHES if graph.batched else [1])]
WRONG = {("cast", ("fp16",)): "MIGraphX 2.16's quantize_fp16 drops a conversion to int64 and back, which rounds"}
"""What MIGraphX itself computes wrongly. Strict, so that a release with a fix is noticed."""

EIGHT_BITS = ["conv", "conv_bn_relu", "gemm", "matmul", "attention"]
"""Graphs that int8 quantizes. Without calibration the outputs are inaccurate: only that they run is tested."""


@pytest.mark.parametrize("precision", [(), ("fp16",)], ids=["fp32", "fp16"])
@pytest.mark.parametrize(("name", "batch"), CASES, ids=str)
def test_outputs_equal_those_of_onnx_runtime(
    real: Target, tmp_path: Path, request: pytest.FixtureRequest, name: str, batch: int, precision: tuple[str, ...]
) -> None:
    if (name, precision) in WRONG:
        request.applymarker(pytest.mark.xfail(reason=WRONG[name, precision], raises=AssertionError, strict=True))
    compare(GraphCompiler(real, tmp_path), name, batch, precision)


@pytest.mark.parametrize(
    "precision", [("bf16",), ("int8",), ("fp8",), ("int8", "fp16"), ("fp16", "int8")], ids="+".join
)
@pytest.mark.parametrize("name", EIGHT_BITS)
def test_reduced_precisions_compile_and_run(
    real: Target, tmp_path: Path, name: str, precision: tuple[str, ...]
) -> None:
    compiled = GraphCompiler(real, tmp_path).compile(name, batch=2, precision=precision)
    assert compiled.verified is not None and compiled.verified["ran"] and compiled.verified["finite"]
    assert set(precision) <= set(compiled.description["precisions"])


def test_two_compiles_of_one_key_give_the_same_bytes(real: Target, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (GraphCompiler(real, folder).compile("conv_bn_relu", batch=4) for folder in folders)
    assert first.path.read_bytes() == second.path.read_bytes()
