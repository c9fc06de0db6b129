"""What MIGraphX can compile: archs, precisions and CU counts, by release. Impossible requests are refused as such,
before a job is queued: MIGraphX itself fails with texts that do not name the cause, or silently computes in fp32.

Each table is data with its source. Only what is sure is refused: where the release of a change is unknown, a row has
the weaker limit. The patch releases of one ROCm can have different commits of rocMLIR (MIGraphX, requirements.txt).
"""

from __future__ import annotations

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.util.frozen import dataclass

from .attributes import Attributes
from .key import Key
from .target import GENERIC_ARCH, release

FP8 = ("gfx94", "gfx95", "gfx12")
"""Prefixes of the archs whose matrix units support fp8: FNUZ on gfx94x, OCP on gfx950 and gfx12.

Source: MIGraphX, src/targets/gpu/device_name.cpp (gfx_has_fp8fnuz_intrinsics, gfx_has_fp8ocp_intrinsics). On other
archs, src/targets/gpu/eliminate_data_type_for_gpu.cpp converts fp8 to float.
"""

NO_BF16 = ("gfx1030",)
"""Source: MIGraphX, src/targets/gpu/device_name.cpp, gfx_has_bf16_intrinsics."""

FIRST_WITH_PRECISION = {"bf16": "2.12", "fp8": "2.12"}
"""The first MIGraphX release whose Python module quantizes to a precision. The others are older than 2.0.

Source: MIGraphX, src/py/migraphx_py.cpp at the tags rocm-6.3.0 and rocm-6.4.0 (quantize_bf16, quantize_fp8)."""

FIRST_WITH_ARCH = {"gfx94": "2.8", "gfx120": "2.11", "gfx95": "2.13"}
"""The first MIGraphX release for an arch, by prefix. Source: MIGraphX, CHANGELOG.md."""


@dataclass(frozen=True, slots=True)
class LeastCUs:
    """The least CU count that rocMLIR accepts for archs with a prefix, from one MIGraphX release to another.

    RDNA's counts are those of HIP: work-group processors of two CUs.
    """

    prefix: str
    first: str
    last: str
    count: int
    source: str


_TABLE = "ROCm/rocMLIR, mlir/lib/Dialect/Rock/IR/AmdArchDb.cpp, minNumCU"

LEAST_CUS = (
    LeastCUs("gfx906", "2.10", "2.16", 10, _TABLE),
    LeastCUs("gfx908", "2.10", "2.16", 120, _TABLE),
    LeastCUs("gfx90a", "2.10", "2.16", 104, _TABLE),
    LeastCUs("gfx942", "2.13", "2.14", 80, _TABLE + "; pulls 1927 and 1928 (2025-07)"),
    LeastCUs("gfx942", "2.15", "2.16", 20, _TABLE + "; pull 2197 (2026-01)"),
    LeastCUs("gfx950", "2.13", "2.16", 256, _TABLE),
    LeastCUs("gfx103", "2.10", "2.14", 30, _TABLE + "; pull 2055 (2025-10), issue 2303 (2026-03)"),
    LeastCUs("gfx11", "2.10", "2.10", 48, "an error of MIGraphX 2.10 on a gfx1103 as gfx1100, published by its user"),
    LeastCUs("gfx11", "2.11", "2.14", 12, _TABLE + "; pull 1673"),
    LeastCUs("gfx11", "2.15", "2.16", 2, _TABLE + "; pull 2187 (2025-12)"),
    LeastCUs("gfx12", "2.11", "2.16", 12, _TABLE),
)

NO_MLIR = "MIGRAPHX_DISABLE_MLIR"
"""The variable that leaves rocMLIR out. Source: MIGraphX, src/targets/gpu/fuse_mlir.cpp."""


def impossible_precision(arch: str | None, vendor: str | None, words: tuple[str, ...]) -> str | None:
    """Return the first of these precisions that the arch does not support, or None.

    Only checks AMD's own archs: for generic archs and for GPUs of other vendors, the support is unknown.
    """
    if arch is None or vendor not in (None, "amd") or GENERIC_ARCH.fullmatch(arch):
        return None
    if "fp8" in words and not arch.startswith(FP8):
        return "fp8"
    if "bf16" in words and arch in NO_BF16:
        return "bf16"
    return None


def archs_with(word: str) -> str:
    """Return a sentence about which archs support a precision."""
    if word == "fp8":
        return "fp8 is supported on gfx94x, gfx950 and gfx12. On other archs, MIGraphX silently computes in fp32."
    return f"{word} is not supported on {', '.join(NO_BF16)}: MIGraphX silently computes in fp32 there."


def check_compilable(key: Key, num_cu: int | None) -> None:
    """Raise `UsageError`, with what would work, for a program that MIGraphX cannot compile."""
    if key.kind == "gpu":
        word = impossible_precision(key.arch, key.vendor, key.precision)
        if word is not None:
            raise UsageError(
                f"{word} does not run on {key.arch}.", hint=f"{archs_with(word)} Choose another precision."
            )
    if key.vendor == "hygon":
        return
    for word in key.precision:
        first = FIRST_WITH_PRECISION.get(word)
        if first is not None and release(key.migraphx) < release(first):
            raise UsageError(
                f"MIGraphX {key.migraphx} cannot quantize to {word}: {first} is the first that can.",
                hint=f"Use MIGraphX {first} or newer, or another precision.",
            )
    if key.kind == "gpu":
        _check_arch(key)
        _check_cus(key, num_cu)


def _check_arch(key: Key) -> None:
    first = next((first for prefix, first in FIRST_WITH_ARCH.items() if (key.arch or "").startswith(prefix)), None)
    if first is not None and release(key.migraphx) < release(first):
        raise UsageError(
            f"MIGraphX {key.migraphx} cannot compile for {key.arch}: {first} is the first that can.",
            hint=f"Use MIGraphX {first} or newer.",
        )


def _check_cus(key: Key, num_cu: int | None) -> None:
    row = least_cus(key.arch or "", key.migraphx)
    if num_cu is None or row is None or num_cu >= row.count or dict(key.env).get(NO_MLIR) == "1":
        return
    others = [each for each in LEAST_CUS if each.prefix == row.prefix and each.count <= num_cu]
    later = f"Use MIGraphX {others[-1].last}, which takes {others[-1].count}. Or compile" if others else "Compile"
    raise UsageError(
        f"MIGraphX {key.migraphx} cannot compile for {key.arch} with {num_cu} CUs: its rocMLIR needs {row.count}.",
        hint=f"{later} without rocMLIR, which can be slower: {stated('env', f'{NO_MLIR}=1')}. Partitions of a "
        "large GPU have fewer "
        "CUs than the whole (SPX mode).",
    )


def least_cus(arch: str, migraphx: str) -> LeastCUs | None:
    """Return the limit of rocMLIR for an arch in a MIGraphX release, None where it is unknown."""
    if GENERIC_ARCH.fullmatch(arch):
        return None
    at = release(migraphx)
    return next(
        (row for row in LEAST_CUS if arch.startswith(row.prefix) and release(row.first) <= at <= release(row.last)),
        None,
    )


def program_warnings(key: Key, attributes: Attributes) -> tuple[str, ...]:
    """Return a sentence for each property of a program that its user should know before it is used."""
    if attributes.tuning != "cross":
        return uncalibrated_warnings(key)
    target = f"{key.arch} with {attributes.num_cu} CUs and {counted(attributes.chiplets or 0, 'chiplet')}"
    never = f"cross, never run: it was compiled for {target} on a host without this GPU, and is not tuned."
    return (never, *uncalibrated_warnings(key))


def uncalibrated_warnings(key: Key) -> tuple[str, ...]:
    """Return a sentence for a key with a precision that needs calibration data, and without them."""
    if not key.uncalibrated:
        return ()
    return (
        f"{'+'.join(key.uncalibrated)} without calibration data: MIGraphX quantizes with its default scales, so the "
        f"outputs can be wrong. Compile it with samples (calibration).",
    )
