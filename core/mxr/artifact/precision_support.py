"""The precisions that each arch supports. Where MIGraphX would silently compute in fp32, mxr refuses the request."""

from __future__ import annotations

from mxr.errors import UsageError

from .key import Key
from .target import GENERIC_ARCH

FP8 = ("gfx94", "gfx95", "gfx12")
"""Prefixes of the archs whose matrix units support fp8: FNUZ on gfx94x, OCP on gfx950 and gfx12.

Source: MIGraphX, src/targets/gpu/device_name.cpp (gfx_has_fp8fnuz_intrinsics, gfx_has_fp8ocp_intrinsics). On other
archs, src/targets/gpu/eliminate_data_type_for_gpu.cpp converts fp8 to float.
"""

NO_BF16 = ("gfx1030",)
"""Source: MIGraphX, src/targets/gpu/device_name.cpp, gfx_has_bf16_intrinsics."""


def impossible(arch: str | None, vendor: str | None, words: tuple[str, ...]) -> str | None:
    """Returns the first of these precisions that the arch does not support, or None.

    Only checks AMD's own archs: for generic archs and for GPUs of other vendors, the support is unknown.
    """
    if arch is None or vendor not in (None, "amd") or GENERIC_ARCH.fullmatch(arch):
        return None
    if "fp8" in words and not arch.startswith(FP8):
        return "fp8"
    if "bf16" in words and arch in NO_BF16:
        return "bf16"
    return None


def uncalibrated_warnings(key: Key) -> tuple[str, ...]:
    """Returns a sentence for a key with a precision that needs calibration data, and without them."""
    if not key.uncalibrated:
        return ()
    return (
        f"{'+'.join(key.uncalibrated)} without calibration data: MIGraphX quantizes with its default scales, so the "
        "outputs can be wrong. Compile it with samples: --calibration FILE.npz.",
    )


def where(word: str) -> str:
    """Returns a sentence about which archs support a precision."""
    if word == "fp8":
        return "fp8 is supported on gfx94x, gfx950 and gfx12. On other archs, MIGraphX silently computes in fp32."
    return f"{word} is not supported on {', '.join(NO_BF16)}: MIGraphX silently computes in fp32 there."


def check(arch: str | None, vendor: str | None, words: tuple[str, ...]) -> None:
    """Raises `UsageError` for a precision that this arch does not support."""
    word = impossible(arch, vendor, words)
    if word is not None:
        raise UsageError(f"{word} does not run on {arch}.", hint=f"{where(word)} Choose another precision.")
