"""Which environment variables and options a key may set, and the attacks on a worker by the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.rows import for_each
from paths import ROOT

from mxr.artifact.compile_settings import OPTIONS, VARIABLES, check_env, check_options, unread
from mxr.artifact.key import Key
from mxr.errors import UsageError

KEY = Key("sha256:" + "0" * 64, "gpu", "2.15", (("x", (1, 3)),), arch="gfx90a", rocm="7.2")

PATHS = (
    "MIGRAPHX_PROBLEM_CACHE",
    "MIGRAPHX_MLIR_TUNING_DB",
    "MIGRAPHX_MLIR_TUNING_CFG",
    "MIGRAPHX_DEBUG_SAVE_TEMP_DIR",
)
DUMPS = ("MIGRAPHX_MLIR_DUMP_TO_MXR", "MIGRAPHX_MLIR_DUMP", "MIGRAPHX_GPU_DUMP_ASM", "MIGRAPHX_GPU_DUMP_BENCHMARK_MXR")
FLAGS = ("MIGRAPHX_GPU_HIP_FLAGS", "MIGRAPHX_GPU_OPTIMIZE", "MIGRAPHX_GPU_DEBUG", "MIGRAPHX_CK_DEBUG")
TRACES = ("MIGRAPHX_TRACE_EVAL", "MIGRAPHX_TRACE_CMD_EXECUTE", "MIGRAPHX_TIME_PASSES", "MIGRAPHX_LOG_LEVEL")
HOST = ("MIGRAPHX_GPU_COMPILE_PARALLEL", "MIGRAPHX_BENCHMARKING_NRUNS", "MIGRAPHX_GPU_OPTIONS")
LOADER = ("LD_PRELOAD", "PATH", "PYTHONPATH", "HOME", "TMPDIR", "HSA_OVERRIDE_GFX_VERSION", "MXR_TOKEN", "")

HARMFUL_VALUES = (
    "/etc/passwd",
    "../x",
    "-fplugin=/tmp/x.so",
    "1;reboot",
    "$(id)",
    "`id`",
    "1\n",
    "1 ",
    " 1",
    "é",
    "\x1b",
)


@for_each([*PATHS, *DUMPS, *FLAGS, *TRACES, *HOST, *LOADER])
def test_a_variable_that_is_not_on_the_list_is_refused_with_every_value(name: str) -> None:
    for value in ("1", "0", "", *HARMFUL_VALUES):
        with pytest.raises(UsageError) as refused:
            replace(KEY, env=((name, value),))
        assert refused.value.exit == 2 and refused.value.hint


@pytest.mark.parametrize(
    "name", ["problem_cache_files", "read_only_problem_cache_files", "offload_copy", "", "Split_Sizes"]
)
def test_an_option_that_is_not_on_the_list_is_refused(name: str) -> None:
    for value in ("1", *HARMFUL_VALUES):
        with pytest.raises(UsageError):
            check_options(((name, value),))


def test_no_setting_accepts_a_path_a_flag_or_a_second_command() -> None:
    for check, settings in ((check_env, VARIABLES), (check_options, OPTIONS)):
        for name in settings:
            for value in HARMFUL_VALUES:
                with pytest.raises(UsageError):
                    check(((name, value),))
            for value in ("", "a" * 1001, "1," * 300 + "1", "\0", "\udc80"):
                with pytest.raises(UsageError):
                    check(((name, value),))


def test_values_of_each_form() -> None:
    for name, good, bad in (
        ("MIGRAPHX_DISABLE_MLIR", ("1", "0"), ("true", "2", "yes")),
        ("MIGRAPHX_NSTREAMS", ("0", "4"), ("-1", "04", "1e9", "10000000000")),
        ("MIGRAPHX_SPLIT_REDUCE_SIZE", ("8192", "-1"), ("-2", "--1")),
        ("MIGRAPHX_SET_GEMM_PROVIDER", ("rocblas", "hipblaslt"), ("rocBLAS", "rocblas,hipblaslt")),
        ("MIGRAPHX_MLIR_USE_SPECIFIC_OPS", ("attention,~dot", "fused"), ("attention, dot", "~", "a,,b")),
        ("MIGRAPHX_DISABLE_PASSES", ("rewrite_gelu,gpu::fuse_ck",), ("gpu:fuse", "::x")),
    ):
        for value in good:
            check_env(((name, value),))
        for value in bad:
            with pytest.raises(UsageError):
                check_env(((name, value),))
    check_options(
        (("convolution_layout", "channels_last"), ("mlss_use_specific_ops", "conv,dot"), ("split_sizes", "1,8"))
    )
    with pytest.raises(UsageError, match="unique"):
        check_env((("MIGRAPHX_NSTREAMS", "1"), ("MIGRAPHX_NSTREAMS", "2")))


def test_the_error_says_why_and_what_is_meant() -> None:
    for name, reason in (
        ("MIGRAPHX_PROBLEM_CACHE", "names files"),
        ("MIGRAPHX_GPU_HIP_FLAGS", "flags of the kernel compiler"),
        ("MIGRAPHX_TRACE_EVAL", "does not change the program"),
        ("MIGRAPHX_GPU_OPTIONS", "write the options that it holds with --option"),
    ):
        with pytest.raises(UsageError, match=reason):
            check_env(((name, "1"),))
    with pytest.raises(UsageError) as refused:
        check_env((("MIGRAPHX_DISABLE_MLIRR", "1"),))
    assert (
        "MIGRAPHX_DISABLE_MLIR?" in refused.value.hint.replace(" ", "") or "MIGRAPHX_DISABLE_MLIR" in refused.value.hint
    )


def test_each_row_has_a_source_and_releases_in_order() -> None:
    for name, setting in (*VARIABLES.items(), *OPTIONS.items()):
        assert setting.name == name and setting.source
        bounds = [tuple(map(int, each.split("."))) for each in (setting.first, setting.last) if each]
        assert bounds == sorted(bounds)
    assert unread("X", VARIABLES["MIGRAPHX_ENABLE_LAYERNORM_FUSION"], "2.12")
    assert unread("X", VARIABLES["MIGRAPHX_DISABLE_LAYERNORM_FUSION"], "2.15")
    assert unread("X", VARIABLES["MIGRAPHX_DISABLE_MLIR"], "2.15") is None


def test_the_documentation_lists_exactly_these_settings() -> None:
    text = (ROOT / "docs" / "keys.md").read_text()
    part = text[text.index("### Settings of a compile") : text.index("## Attributes")]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")
    ]
    documented = {row[0].strip("`"): row[1] for row in rows}
    assert documented == {name: each.form.shown for name, each in (VARIABLES | OPTIONS).items()}
