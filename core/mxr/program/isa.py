"""Instruction sets (ISAs) of AMD GPUs: what a code object runs on, and whether one device can run several."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mxr.artifact.target import ALWAYS_XNACK, FAMILIES, GfxArch

MACHINES = {
    0x20: "gfx600", 0x21: "gfx601", 0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702", 0x25: "gfx703", 0x26: "gfx704",
    0x28: "gfx801", 0x29: "gfx802", 0x2A: "gfx803", 0x2B: "gfx810", 0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904",
    0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c", 0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012",
    0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3A: "gfx602", 0x3B: "gfx705",
    0x3C: "gfx805", 0x3D: "gfx1035", 0x3E: "gfx1034", 0x3F: "gfx90a", 0x40: "gfx940", 0x41: "gfx1100",
    0x42: "gfx1013", 0x43: "gfx1150", 0x44: "gfx1103", 0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102",
    0x48: "gfx1200", 0x49: "gfx1250", 0x4A: "gfx1151", 0x4B: "gfx941", 0x4C: "gfx942", 0x4E: "gfx1201",
    0x4F: "gfx950", 0x50: "gfx1310", 0x51: "gfx9-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic",
    0x54: "gfx11-generic", 0x55: "gfx1152", 0x57: "gfx1154", 0x58: "gfx1153", 0x59: "gfx12-generic", 0x5A: "gfx1251",
    0x5B: "gfx12-5-generic", 0x5C: "gfx1172", 0x5D: "gfx1170", 0x5E: "gfx1171", 0x5F: "gfx9-4-generic",
    0x62: "gfx11-7-generic", 0x63: "gfx13-generic", 0xEB: "gfx1250-strict",
}  # fmt: skip
"""EF_AMDGPU_MACH, the low byte of e_flags. Source: LLVM's llvm/BinaryFormat/ELF.h and docs/AMDGPUUsage; for the last
one, tools of ROCm that read it (2026-09)."""

_PROCESSOR = r"(gfx[1-9][0-9]?(?:-[0-9])?-generic|gfx[1-9][0-9]?[0-9a-f]{2}(?:-strict)?)"
_FEATURE = re.compile(r"[:+-](xnack|sramecc|sram-ecc)([+-]?)")
_TARGET = re.compile(rf"(?:^|-){_PROCESSOR}((?:[:+-](?:xnack|sramecc|sram-ecc)[+-]?)*)$")


def read_isa(text: str) -> GfxArch | None:
    """The ISA at the end of a target id, in the current notation (`gfx90a:xnack-`) or the old (`gfx906+sram-ecc`)."""
    match = _TARGET.search(text)
    if match is None:
        return None
    features = {name.replace("-", ""): sign or "+" for name, sign in _FEATURE.findall(match.group(2))}
    xnack = None if match.group(1) in ALWAYS_XNACK else features.get("xnack")
    return GfxArch(match.group(1), features.get("sramecc"), xnack)


def intersect(one: GfxArch, other: GfxArch) -> GfxArch | None:
    """The ISA of a device that runs code for both; None if there is none."""
    if one.base != other.base:
        if other.base in FAMILIES.get(one.base, ()):
            return other
        return one if one.base in FAMILIES.get(other.base, ()) else None
    if not _agree(one.sramecc, other.sramecc) or not _agree(one.xnack, other.xnack):
        return None
    return GfxArch(one.base, one.sramecc or other.sramecc, one.xnack or other.xnack)


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def can_intersect(choices: Iterable[frozenset[GfxArch]]) -> bool:
    """Whether one device can run a code object of each set; the ISAs of a set are alternatives."""
    devices: set[GfxArch] | None = None
    for offered in choices:
        if devices is None:
            devices = set(offered)
        else:
            devices = {both for device in devices for isa in offered if (both := intersect(device, isa)) is not None}
    return devices is None or bool(devices)
