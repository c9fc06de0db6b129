"""Many graphs through the whole of a compile with a real MIGraphX: outputs, and what the reader says of the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Bench, Trade
from .graphs import GRAPHS
from .test_contract import compare

if not os.environ.get("MXR_TEST_MIGRAPHX_PYTHON"):
    pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx", allow_module_level=True)

pytestmark = [pytest.mark.real_migraphx, pytest.mark.timeout(180)]

BATCHES = [int(each) for each in os.environ.get("MXR_TEST_BATCHES", "1,4").split(",")]
SETS = [(name, batch) for name, graph in GRAPHS.items() for batch in (BATCHES if graph.batched else [1])]
WRONG = {("cast", ("fp16",)): "MIGraphX 2.16's quantize_fp16 drops a conversion to int64 and back, which rounds"}
"""What MIGraphX itself computes wrongly; strict, so that a release that mends it is noticed."""

EIGHT_BITS = ["conv", "conv_bn_relu", "gemm", "matmul", "attention"]
"""Where int8 has something to quantise. Without calibration its outputs are far off: only that it runs is told."""


@pytest.mark.parametrize("precision", [(), ("fp16",)], ids=["fp32", "fp16"])
@pytest.mark.parametrize(("name", "batch"), SETS, ids=lambda value: str(value))
def test_outputs_are_those_of_onnx_runtime(
    real: Bench, tmp_path: Path, request: pytest.FixtureRequest, name: str, batch: int, precision: tuple[str, ...]
) -> None:
    if (name, precision) in WRONG:
        request.applymarker(pytest.mark.xfail(reason=WRONG[name, precision], raises=AssertionError, strict=True))
    compare(Trade(real, tmp_path), name, batch, precision)


@pytest.mark.parametrize(
    "precision", [("bf16",), ("int8",), ("fp8",), ("int8", "fp16"), ("fp16", "int8")], ids="+".join
)
@pytest.mark.parametrize("name", EIGHT_BITS)
def test_reduced_precisions_compile_and_run(real: Bench, tmp_path: Path, name: str, precision: tuple[str, ...]) -> None:
    made = Trade(real, tmp_path).compile(name, batch=2, precision=precision)
    assert made.trial is not None and made.trial["ran"] and made.trial["finite"]
    assert set(precision) <= set(made.description["precisions"])


def test_two_compiles_of_one_key_are_the_same_bytes(real: Bench, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (Trade(real, folder).compile("conv_bn_relu", batch=4) for folder in folders)
    assert first.path.read_bytes() == second.path.read_bytes()
