"""MIGraphX releases differ: what a release lacks is refused with a reason, and what a later one adds is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxr.artifact.target import DynamicDim
from mxr.errors import UsageError
from mxr_workers.compilation import CompileAttemptFailed, CompileTask
from mxr_workers.interpreter import Interpreter, describe_interpreter

from .conftest import GraphCompiler, Target, double_interpreter
from .graphs import GRAPHS

RDNA = {"gpu_arch": "gfx1100", "gpu_num_cu": 48}


def double(folder: Path, release: str = "2.15", **settings: object) -> GraphCompiler:
    """Compiles for a GPU with the double of one release."""
    return GraphCompiler(Target(double_interpreter(folder / "settings", **settings), "gpu", release), folder)


def old_double(folder: Path) -> GraphCompiler:
    """MIGraphX 2.5: before dynamic dims, exhaustive tuning and the version in its files."""
    return double(folder, "2.5", migraphx="2.5.0", version_text="dev", file_version=6, old=True)


def test_an_old_module_has_its_version_in_its_files(tmp_path: Path) -> None:
    old = double_interpreter(tmp_path / "old", migraphx="2.9.0", version_text="dev")
    assert describe_interpreter(old, tmp_path / "describe").migraphx == "2.9.0"


def test_an_old_release_compiles_what_it_supports(tmp_path: Path) -> None:
    compiler = old_double(tmp_path)
    info = describe_interpreter(compiler.target.interpreter, tmp_path / "describe")
    assert not info.features["dynamic_dims"] and not info.features["exhaustive_tune"]
    assert info.precisions == ("fp16", "int8")
    compiled = compiler.compile("gemm", batch=4, precision=("fp16",), offload_copy=False)
    assert compiled.description["file_version"] == 6 and compiled.description["offload_copy"] is False


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"inputs": {"x": (DynamicDim(1, 4), 16)}}, "no-dynamic"),
        ({"task": {"attributes": {"tuning": "exhaustive"}}}, "no-exhaustive"),
        ({"task": {"attributes": {"tuning": "eager"}}}, "no-eager"),
        ({"precision": ("bf16",)}, "no-bf16"),
        ({"precision": ("fp8",)}, "no-fp8"),
        ({"task": {"attributes": {"tuning": "cross"}, "cross": RDNA}, "arch": "gfx1100"}, "no-cross"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_old_release_lacks_is_refused_permanently(tmp_path: Path, request_: dict, name: str) -> None:
    with pytest.raises(CompileAttemptFailed) as caught:
        old_double(tmp_path).compile("gemm", **request_)
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", name)


def test_exhaustive_tuning_is_on_only_when_requested(tmp_path: Path) -> None:
    compiler = double(tmp_path)
    compiled = compiler.compile("gemm", task={"attributes": {"tuning": "exhaustive"}})
    assert b"exhaustive_tune=True" in compiled.log.kept
    assert b"exhaustive_tune=False" in compiler.compile("gemm").log.kept


def test_an_eager_compile_uses_the_compile_mode(tmp_path: Path) -> None:
    compiler = double(tmp_path, modes=True)
    assert describe_interpreter(compiler.target.interpreter, tmp_path / "describe").features["compile_mode"]
    compiled = compiler.compile("gemm", task={"attributes": {"tuning": "eager"}})
    assert b"compile_mode=<compile_modes.eager: 0>" in compiled.log.kept and compiled.attributes.tuning == "eager"
    assert b"compile_mode=None" in compiler.compile("gemm").log.kept
    assert not describe_interpreter(double_interpreter(tmp_path / "without"), tmp_path / "describe").features[
        "compile_mode"
    ]


def test_options_are_passed_only_to_a_migraphx_that_reads_them(tmp_path: Path) -> None:
    """MIGraphX ignores options that it does not know: the program would not be the one of the key."""
    options = (("convolution_layout", "channels_last"), ("mlss_use_specific_ops", "conv,dot"))
    # First: the test's process keeps a library that it has mapped.
    with pytest.raises(CompileAttemptFailed, match="convolution_layout"):
        double(tmp_path / "older").compile("gemm", options=options[:1])
    library = tmp_path / "libmigraphx_gpu.so.2"
    library.write_bytes(b"\x7fELF..MIGRAPHX_GPU_OPTIONS\0convolution_layout\0mlss_use_specific_ops\0")
    compiler = double(tmp_path, library=str(library))
    assert compiler.compile("gemm", options=options).path.is_file()
    with pytest.raises(CompileAttemptFailed, match="split_sizes") as caught:
        compiler.compile("gemm", options=(*options, ("split_sizes", "1,8")))
    assert (caught.value.failure.kind, caught.value.failure.name) == ("permanent", "no-option")


def test_a_cross_compile_makes_a_program_for_another_gpu_and_does_not_run_it(tmp_path: Path) -> None:
    compiler = double(tmp_path, cross=True)
    assert describe_interpreter(compiler.target.interpreter, tmp_path / "describe").features["cross_compile"]
    attributes = {"sramecc": "any", "xnack": "any", "num_cu": 48, "tuning": "cross"}
    compiled = compiler.compile("gemm", arch="gfx1100", task={"attributes": attributes, "cross": RDNA})
    assert compiled.description["archs"] == ["gfx1100"]
    assert compiled.verified is None and compiled.provenance["verified"] is None
    assert compiled.attributes.tuning == "cross" and compiled.attributes.latency_ms is None


def test_the_tuning_of_a_cross_compile_must_be_cross(tmp_path: Path) -> None:
    graph, target = GRAPHS["gemm"], double(tmp_path).target
    with pytest.raises(UsageError, match="cross"):
        CompileTask(target.key(graph), target.attributes(), "gemm.onnx", cross=RDNA)
    with pytest.raises(UsageError, match="cross"):
        CompileTask(target.key(graph), target.attributes(tuning="cross"), "gemm.onnx")


HYGON: dict[str, object] = {"hygon": True, "migraphx": "4.1.0", "arch": "gfx906:sramecc+:xnack-"}
DCU = {"vendor": "hygon", "arch": "gfx906", "rocm": "25.04"}


def test_hygon_compiles_for_the_largest_shape(tmp_path: Path) -> None:
    """Its Python module has no ranges: the ends of those in the key, and the variable that makes the program dynamic.
    Source: Hygon's documentation of MIGraphX for DTK; qianqing13579/MIGraphX_Dynamic, src/py/migraphx_py.cpp.
    """
    # A process of its own: the variable is one of its environment.
    interpreter = double_interpreter(tmp_path / "settings", Interpreter, **HYGON)
    compiler = GraphCompiler(Target(interpreter, "gpu", "4.1"), tmp_path)
    compiled = compiler.compile("gemm", inputs={"x": (DynamicDim(1, 8), 16)}, **DCU)
    assert (compiled.description["flavour"], compiled.description["reshapes"]) == ("hygon", True)
    assert compiled.description["inputs"]["x"]["dims"] == [8, 16]
    assert compiled.verified is not None and compiled.verified["ran_dims"] == [[8, 5]]
    fixed = compiler.compile("gemm", batch=4, **DCU)
    assert not fixed.description["reshapes"] and fixed.description["inputs"]["x"]["dims"] == [4, 16]
