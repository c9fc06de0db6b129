"""Releases of MIGraphX differ: what one lacks is refused with a word, what a later one brings is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxr.artifact.target import DynamicDim
from mxr.errors import Usage
from mxr_workers.compilation import CompileTask, Uncompiled
from mxr_workers.interpreter import ask

from .conftest import Bench, Trade, double_interpreter
from .graphs import GRAPHS

RDNA = {"gpu_arch": "gfx1100", "gpu_num_cu": 48}


def test_an_old_module_tells_its_version_by_a_file(tmp_path: Path) -> None:
    old = double_interpreter(tmp_path / "old", migraphx="2.9.0", version_text="dev")
    assert ask(old, tmp_path / "about").migraphx == "2.9.0"


def old(tmp_path: Path) -> Trade:
    """MIGraphX 2.5: before dynamic dims, exhaustive tuning and the version in its files."""
    settings = {"migraphx": "2.5.0", "version_text": "dev", "file_version": 6, "old": True}
    return Trade(Bench(double_interpreter(tmp_path / "settings", **settings), "gpu", "2.5"), tmp_path)


def test_an_old_one_compiles_what_it_can(tmp_path: Path) -> None:
    trade = old(tmp_path)
    about = ask(trade.bench.interpreter, tmp_path / "about")
    assert not about.features["dynamic_dims"] and not about.features["exhaustive_tune"]
    assert about.precisions == ("fp16", "int8")
    made = trade.compile("gemm", batch=4, precision=("fp16",), offload_copy=False)
    assert made.description["file_version"] == 6 and made.description["offload_copy"] is False


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"inputs": {"x": (DynamicDim(1, 4), 16)}}, "no-dynamic"),
        ({"order": {"qualities": {"tuning": "exhaustive"}}}, "no-exhaustive"),
        ({"precision": ("bf16",)}, "no-bf16"),
        ({"precision": ("fp8",)}, "no-fp8"),
        ({"order": {"qualities": {"tuning": "cross"}, "cross": RDNA}, "arch": "gfx1100"}, "no-cross"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_old_one_lacks_is_refused_for_ever(tmp_path: Path, asked: dict, name: str) -> None:
    with pytest.raises(Uncompiled) as caught:
        old(tmp_path).compile("gemm", **asked)
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", name)


def test_exhaustive_tuning_is_asked_for_where_it_is(trade: Trade) -> None:
    made = trade.compile("gemm", order={"qualities": {"tuning": "exhaustive"}})
    assert b"exhaustive_tune=True" in made.log.kept
    assert b"exhaustive_tune=False" in trade.compile("gemm").log.kept


def test_a_cross_compile_makes_a_program_for_another_gpu_and_runs_nothing(tmp_path: Path) -> None:
    trade = Trade(Bench(double_interpreter(tmp_path / "settings", cross=True), "gpu", "2.15"), tmp_path)
    assert ask(trade.bench.interpreter, tmp_path / "about").features["cross_compile"]
    qualities = {"sramecc": "any", "xnack": "any", "num_cu": 48, "tuning": "cross"}
    made = trade.compile("gemm", arch="gfx1100", order={"qualities": qualities, "cross": RDNA})
    assert made.description["archs"] == ["gfx1100"]
    assert made.trial is None and made.provenance["verified"] is None
    assert made.qualities.tuning == "cross" and made.qualities.latency_ms is None


def test_a_cross_compile_is_marked_or_not_ordered(double: Bench) -> None:
    graph = GRAPHS["gemm"]
    with pytest.raises(Usage, match="cross"):
        CompileTask(double.key(graph), double.qualities(), "gemm.onnx", cross=RDNA)
    with pytest.raises(Usage, match="cross"):
        CompileTask(double.key(graph), double.qualities(tuning="cross"), "gemm.onnx")
