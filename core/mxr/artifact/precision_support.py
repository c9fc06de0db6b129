"""Which precisions run on which arch: what MIGraphX would quietly compute in fp32 is refused before any compile."""

from __future__ import annotations

from mxr.errors import Usage

from .target import GENERIC_ARCH

FP8 = ("gfx94", "gfx95", "gfx12")
"""The archs whose matrix units take fp8, by how they begin: FNUZ on gfx94x, OCP on gfx950 and gfx12.

Source: MIGraphX, src/targets/gpu/device_name.cpp (gfx_has_fp8fnuz_intrinsics, gfx_has_fp8ocp_intrinsics); elsewhere
src/targets/gpu/eliminate_data_type_for_gpu.cpp turns fp8 into float.
"""

NO_BF16 = ("gfx1030",)
"""Source: MIGraphX, src/targets/gpu/device_name.cpp, gfx_has_bf16_intrinsics."""


def impossible(arch: str | None, vendor: str | None, words: tuple[str, ...]) -> str | None:
    """The word of a precision that this arch cannot run, or None.

    Only AMD's own archs are judged: of generic programs and of other vendors' GPUs nothing is known.
    """
    if arch is None or vendor not in (None, "amd") or GENERIC_ARCH.fullmatch(arch):
        return None
    if "fp8" in words and not arch.startswith(FP8):
        return "fp8"
    if "bf16" in words and arch in NO_BF16:
        return "bf16"
    return None


def where(word: str) -> str:
    """What to say of a precision that does not run on an arch: where it does."""
    if word == "fp8":
        return "fp8 runs on gfx94x, gfx950 and gfx12; elsewhere MIGraphX computes in fp32 without a word."
    return f"{word} does not run on {', '.join(NO_BF16)}: MIGraphX computes in fp32 there without a word."


def check(arch: str | None, vendor: str | None, words: tuple[str, ...]) -> None:
    """Raises `Usage` for a precision that this arch cannot run."""
    word = impossible(arch, vendor, words)
    if word is not None:
        raise Usage(f"{word} does not run on {arch}.", hint=f"{where(word)} Ask for another precision.")
