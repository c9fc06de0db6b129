"""The allow-lists of a key's `env` and `options`: what may change a compile besides the other fields of the key.

Both lists are data. A row states the value form, the MIGraphX releases that read the name, and where that is written.
Only settings that change the program belong here. Paths, caches, compiler flags, tracing and limits of the host do not:
whoever asks for a program must not choose which files a worker reads or writes, or which programs it starts.

`Key` checks both lists wherever a key is made or read: in the client, in the registry and again in the worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mxr.errors import UsageError
from mxr.facts import stated
from mxr.util.codec import canonical, refuse, text
from mxr.util.frozen import dataclass

from . import limits
from .target import release


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The values that a setting accepts. `shown` describes them in messages."""

    shown: str
    pattern: str

    def accepts(self, value: str) -> bool:
        """Return whether `value` has this form."""
        return len(value) <= limits.MAX_VALUE_LENGTH and re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True, slots=True)
class CompileSetting:
    """A setting that changes the program. `first`, `last`: the MIGraphX releases that read it; None where unbounded."""

    name: str
    form: ValueForm
    source: str
    first: str | None = None
    last: str | None = None


_COUNT = r"(?:0|[1-9][0-9]{0,8})"
_WORD = r"[a-z][a-z0-9_]{0,60}"

SWITCH = ValueForm("1 (on) or 0 (off)", "[01]")
COUNT = ValueForm("a number such as 4", _COUNT)
COUNT_OR_OFF = ValueForm("a number such as 8192, or -1 (off)", rf"{_COUNT}|-1")
COUNTS = ValueForm("numbers such as 1,1024", rf"{_COUNT}(?:,{_COUNT}){{0,63}}")
WORDS = ValueForm("names such as conv,dot", rf"{_WORD}(?:,{_WORD}){{0,63}}")
OPERATORS = ValueForm("names such as attention,~convolution", rf"~?{_WORD}(?:,~?{_WORD}){{0,63}}")
PASSES = ValueForm("names of passes such as rewrite_gelu", rf"(?:gpu::)?{_WORD}(?:,(?:gpu::)?{_WORD}){{0,63}}")


def _choice(*values: str) -> ValueForm:
    return ValueForm(" or ".join(values), "|".join(values))


_UPSTREAM = "ROCm/AMDMIGraphX, src/"
"""Releases: the declarations in the tags rocm-3.5.0 to rocm-7.2.4 and in the develop branch of 2026-05-29 (2.16).

MIGraphX reads a switch as on for 1, enable, enabled, yes and true, and as off for every other value (src/env.cpp). The
key accepts one spelling of each, so that the same compile has one key.
"""

_SWITCHES = (
    ("COPY_LITERALS", "targets/gpu/write_literals.cpp", None, None),
    ("DISABLE_FAST_GELU", "targets/gpu/fuse_ops.cpp", None, "2.6"),
    ("DISABLE_FP16_INSTANCENORM_CONVERT", "onnx/parse_instancenorm.cpp", "2.6", None),
    ("DISABLE_FP32_SOFTMAX", "rewrite_reduce.cpp", "2.13", None),
    ("DISABLE_LAYERNORM_FUSION", "targets/gpu/prefuse_ops.cpp", "2.10", "2.12"),
    ("DISABLE_MIOPEN_FUSION", "targets/gpu/fuse_ops.cpp", None, None),
    ("DISABLE_MIOPEN_POOLING", "targets/gpu/lowering.cpp", "2.11", "2.15"),
    ("DISABLE_MLIR", "targets/gpu/fuse_mlir.cpp", "2.8", None),
    ("DISABLE_MULTI_OUTPUT_FUSION", "fuse_pointwise_reduce.cpp", "2.13", None),
    ("DISABLE_POINTWISE_FUSION", "fuse_pointwise.cpp", "2.1", None),
    ("DISABLE_REDUCE_FUSION", "fuse_reduce.cpp", "2.6", None),
    ("DISABLE_SCHEDULE_PASS", "targets/gpu/target.cpp", None, None),
    ("ENABLE_CK", "targets/gpu/target.cpp", "2.7", None),
    ("ENABLE_CK_WORKAROUNDS", "rewrite_quantization.cpp", "2.8", None),
    ("ENABLE_EXTRA_MLIR", "targets/gpu/fuse_mlir.cpp", "2.8", None),
    ("ENABLE_FULL_DYNAMIC", "targets/gpu/target.cpp", "2.15", None),
    ("ENABLE_GEMM_TUNING", "targets/gpu/include/migraphx/gpu/gemm_impl.hpp", "2.9", None),
    ("ENABLE_HIPBLASLT_GEMM", "targets/gpu/lowering.cpp", "2.11", "2.11"),
    ("ENABLE_HIP_GEMM_TUNING", "targets/gpu/include/migraphx/gpu/hip_gemm_impl.hpp", "2.11", None),
    ("ENABLE_LAYERNORM_FUSION", "targets/gpu/prefuse_ops.cpp", "2.13", None),
    ("ENABLE_MIOPEN_POOLING", "targets/gpu/lowering.cpp", "2.16", None),
    ("ENABLE_MLIR", "targets/gpu/fuse_mlir.cpp", "2.6", "2.7"),
    ("ENABLE_MLIR_GEG_FUSION", "targets/gpu/fuse_mlir.cpp", "2.14", None),
    ("ENABLE_MLIR_INPUT_FUSION", "targets/gpu/fuse_mlir.cpp", "2.11", None),
    ("ENABLE_MLIR_REDUCE_FUSION", "targets/gpu/fuse_mlir.cpp", "2.11", None),
    ("ENABLE_NHWC", "targets/gpu/target.cpp", "2.5", None),
    ("ENABLE_REWRITE_DOT", "targets/gpu/target.cpp", "2.13", None),
    ("ENABLE_SPLIT_REDUCE", "fuse_pointwise_reduce.cpp", "2.10", "2.11"),
    ("FLASH_DECODING_ENABLED", "targets/gpu/fuse_mlir.cpp", "2.16", None),
    ("MLIR_ENABLE_SPLITK", "targets/gpu/mlir.cpp", "2.11", None),
    ("MLIR_TUNE_EXHAUSTIVE", "targets/gpu/mlir.cpp", "2.8", None),
    ("REWRITE_LRN", "targets/gpu/target.cpp", "2.14", None),
    ("SKIP_BENCHMARKING", "targets/gpu/compile_ops.cpp", "2.16", None),
    ("TUNE_CK", "targets/gpu/jit/ck_gemm.cpp", "2.7", None),
    ("USE_FAST_SOFTMAX", "targets/gpu/jit/softmax.cpp", "2.4", None),
)

_VALUES = (
    ("DISABLE_PASSES", PASSES, "pass_manager.cpp", "2.12", None),
    ("FLASH_DECODING_MAX_SPLITS", COUNT, "fuse_attention.cpp", "2.16", None),
    ("FLASH_DECODING_MIN_CHUNK_SIZE", COUNT, "fuse_attention.cpp", "2.16", None),
    ("FLASH_DECODING_NUM_SPLITS", COUNT, "fuse_attention.cpp", "2.15", None),
    ("FLASH_DECODING_THRESHOLD", COUNT, "fuse_attention.cpp", "2.16", None),
    ("MLIR_TUNE_LIMIT", COUNT, "targets/gpu/mlir.cpp", "2.9", None),
    ("MLIR_USE_SPECIFIC_OPS", OPERATORS, "targets/gpu/fuse_mlir.cpp", "2.8", None),
    ("NSTREAMS", COUNT, "targets/gpu/include/migraphx/gpu/context.hpp", None, None),
    ("SET_GEMM_PROVIDER", _choice("rocblas", "hipblaslt"), "targets/gpu/lowering.cpp", "2.12", None),
    ("SPLIT_REDUCE_SIZE", COUNT_OR_OFF, "fuse_pointwise_reduce.cpp", "2.12", None),
)

DYNAMIC_SHAPE = "MIGRAPHX_DYNAMIC_SHAPE"
"""The variable that lets Hygon's MIGraphX compile a program whose inputs can be reshaped."""

VARIABLES: Mapping[str, CompileSetting] = {
    setting.name: setting
    for setting in (
        *(
            CompileSetting(f"MIGRAPHX_{name}", SWITCH, _UPSTREAM + file, first, last)
            for name, file, first, last in _SWITCHES
        ),
        *(
            CompileSetting(f"MIGRAPHX_{name}", form, _UPSTREAM + file, first, last)
            for name, form, file, first, last in _VALUES
        ),
        CompileSetting(DYNAMIC_SHAPE, SWITCH, "Hygon's documentation of MIGraphX for DTK, dynamic shapes"),
    )
}
"""The environment variables that a key may set."""

OPTIONS: Mapping[str, CompileSetting] = {
    setting.name: setting
    for setting in (
        CompileSetting(
            "convolution_layout",
            _choice("channels_auto", "channels_first", "channels_last"),
            "ROCm/AMDMIGraphX, develop of 2026-10, src/targets/gpu/target.cpp, backend_options",
        ),
        CompileSetting("mlss_use_specific_ops", WORDS, "ROCm/AMDMIGraphX pull 5053 (2026-07)"),
        CompileSetting("split_sizes", COUNTS, "ROCm/AMDMIGraphX, develop of 2026-10, docs: split_single_dyn_dim"),
    )
}
"""MIGraphX's options of the GPU backend (`compile_options::backend_options`) that a key may set."""

_REFUSED = (
    (r"MIGRAPHX_GPU_OPTIONS", "it can name files; write the options that it holds with {option}"),
    (r"MIGRAPHX_MLSS_USE_SPECIFIC_OPS", "write mlss_use_specific_ops with {option}"),
    (
        r"MIGRAPHX_(PROBLEM_CACHE|MLIR_TUNING_(DB|CFG)|CK_TUNING|DEBUG_SAVE_TEMP_DIR|MLIR_DUMP.*|GPU_DUMP_.*)"
        r"|(read_only_)?problem_cache_files",
        "it names files, and a request must not choose which files a worker reads or writes",
    ),
    (
        r"MIGRAPHX_(GPU_HIP_FLAGS|GPU_OPTIMIZE|GPU_DEBUG|GPU_DEBUG_SYM|CK_DEBUG)",
        "it holds flags of the kernel compiler",
    ),
    (
        r"MIGRAPHX_(TRACE|TIME|LOG|VALIDATE|VERIFY|DEBUG|8BITS|INT8)_.*|MIGRAPHX_LOG_LEVEL",
        "it traces or checks a compile, and does not change the program",
    ),
    (r"MIGRAPHX_(GPU_COMPILE_PARALLEL|BENCHMARKING_.*)", "it is a matter of the worker's host"),
)
"""Names for which the error says more than that they are unknown. None of them is accepted."""


def check_env(env: Iterable[tuple[str, str]], where: str = "env") -> None:
    """Raise `UsageError` for a variable that is not allowed, or a value of another form."""
    _check(env, where, VARIABLES, "environment variable")


def check_options(options: Iterable[tuple[str, str]], where: str = "options") -> None:
    """Raise `UsageError` for an option that is not allowed, or a value of another form."""
    _check(options, where, OPTIONS, "option")


def check_name(name: str, where: str = "env") -> None:
    """Raise `UsageError` for the name of a variable (or with `where` "options", of an option) that is not allowed."""
    allowed, what = (VARIABLES, "environment variable") if where == "env" else (OPTIONS, "option")
    if name not in allowed:
        raise _not_allowed(name, where, allowed, what)


def _check(given: Iterable[tuple[str, str]], where: str, allowed: Mapping[str, CompileSetting], what: str) -> None:
    pairs, seen = tuple(given), set()
    limits.check_count(pairs, limits.MAX_VARIABLES, where, "entries")
    for name, value in pairs:
        text(value, f"{where}.{name}")
        if name in seen:
            raise refuse(where, "unique names", name)
        seen.add(name)
        setting = allowed.get(name)
        if setting is None:
            raise _not_allowed(name, where, allowed, what)
        if not setting.form.accepts(value):
            raise refuse(f"{where}.{name}", setting.form.shown, value)


def _not_allowed(name: str, where: str, allowed: Mapping[str, CompileSetting], what: str) -> UsageError:
    reason = next((why for pattern, why in _REFUSED if re.fullmatch(pattern, name)), None)
    reason = reason and reason.replace("{option}", stated("options"))
    from difflib import get_close_matches

    near = get_close_matches(name[:100], allowed, 2, 0.8)
    known = f"Did you mean {' or '.join(near)}? " if near and reason is None else ""
    return UsageError(
        f"{where}: {name[:100]!r} is not an {what} that a key may set{f': {reason}' if reason else ''}.",
        hint=f"{known}docs/keys.md lists those that change a program; the context of this error has them too.",
        context={"name": name[:100], "allowed": sorted(allowed)},
    )


def backend_options(options: Mapping[str, str]) -> str:
    """Return options as the JSON object that MIGraphX reads in MIGRAPHX_GPU_OPTIONS. Raises as `check_options`.

    Source: ROCm/AMDMIGraphX, develop of 2026-10, src/targets/gpu/target.cpp, get_backend_options.
    """
    check_options(options.items())
    made: dict[str, object] = {}
    for name, value in options.items():
        form = OPTIONS[name].form
        words = value.split(",")
        made[name] = [int(word) for word in words] if form is COUNTS else words if form is WORDS else value
    return canonical(made)


def unread(name: str, setting: CompileSetting, migraphx: str) -> str | None:
    """Return a note if this MIGraphX release (MAJOR.MINOR) does not read the setting, else None."""
    found = release(migraphx)
    if setting.first is not None and found < release(setting.first):
        return f"MIGraphX {migraphx} does not read {name}: it came with {setting.first}"
    if setting.last is not None and found > release(setting.last):
        return f"MIGraphX {migraphx} does not read {name}: the last release with it is {setting.last}"
    return None
