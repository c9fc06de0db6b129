"""What the kernel's numbers mean for a program: sramecc and xnack, CUs as MIGraphX counts them, the arch overridden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mxr.artifact.target import capable

from .kfd import gfx_name

PER_PROCESS = frozenset({"gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
"""Archs whose xnack mode each process chooses. Source: Linux, amdkfd/kfd_priv.h, KFD_SUPPORT_XNACK_PER_PROCESS."""

RETRYING = frozenset({"gfx902", "gfx904", "gfx909"})
"""gfx9 archs that retry page faults unless told otherwise. Source: Linux, amdgpu/amdgpu_gmc.c, noretry_default."""

CHIPLETS = frozenset({"gfx940", "gfx941", "gfx942", "gfx950"})
"""Archs made of several compute dies, so that a kernel that tells no num_xcc leaves the count unknown."""


MOST_CUS = 100_000
"""More is a damaged number."""


def xnack_mode(archs: Iterable[str], asked: str | None, noretry: str | None) -> bool:
    """Whether a process that opens GPUs of these (real) archs runs with xnack on: one mode for all of them.

    `asked` is HSA_XNACK, `noretry` the module parameter of amdgpu ("-1" lets the driver decide). Only gfx9 retries, so
    one newer GPU turns it off for all. MI200 and later follow HSA_XNACK by themselves; the others only repeat what the
    driver was loaded with. Source: Linux, amdkfd/kfd_process.c, kfd_process_xnack_mode. Not covered, as no file shows
    it: virtual functions whose host forbids xnack.
    """
    if asked not in (None, "1"):
        return False
    counted = [arch for arch in archs if not re.fullmatch("gfx[78]..", arch)]
    return bool(counted) and all(_retries(arch, asked, noretry) for arch in counted)


def _retries(arch: str, asked: str | None, noretry: str | None) -> bool:
    if not re.fullmatch("gfx9..", arch):
        return False
    if asked and arch in PER_PROCESS:
        return True
    return noretry == "0" or (noretry != "1" and arch in RETRYING)


def xnack_found_by(on: bool, asked: str | None) -> str:
    """The words for where the xnack mode is from."""
    if asked is None:
        return "amdgpu's noretry, without HSA_XNACK" if on else "default without HSA_XNACK"
    return f"HSA_XNACK={asked}" if on or asked != "1" else "HSA_XNACK=1, which the GPUs here cannot follow"


def sign(arch: str, feature: str, on: bool | None) -> str | None:
    """`+`, `-`, or None where the arch has no such setting or it is unknown."""
    if on is None or not capable(arch, feature):
        return None
    return "+" if on else "-"


def migraphx_cus(compute_units: int | None, arch: str) -> int | None:
    """The CU count that MIGraphX compiles for: HIP's multiProcessorCount, which counts work-group processors of two
    CUs from gfx10 on. Unknown for gfx125x, where no source was seen.

    Source: ROCm/clr, rocdevice.cpp (enableWgpMode_ halves maxComputeUnits_); AMDMIGraphX, gpu/context.hpp.
    """
    if compute_units is None or not 0 < compute_units < MOST_CUS or arch.startswith("gfx125"):
        return None
    return (compute_units // 2 or None) if re.fullmatch("gfx1[0-9]..", arch) else compute_units


def chiplets_of(num_xcc: int | None, arch: str) -> int | None:
    """The chiplets of a node. Kernels that print no num_xcc know GPUs of one die only, the MI300 family apart.

    Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c (absent is 1); AMDMIGraphX, gpu/hsa_chiplet.cpp.
    """
    return num_xcc or (None if arch in CHIPLETS else 1)


def overridden(environ: Mapping[str, str], node: int) -> tuple[str | None, str | None]:
    """The arch that HSA_OVERRIDE_GFX_VERSION puts in place of the real one, and the variable that says so.

    `node` counts as ROCr does: the nodes that this process may use, CPUs too, from 0. The variable with the node's
    number goes first. A value that is no `major.minor.stepping` gives (None, name): ROCr refuses to start with it.
    Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c, topology_sysfs_get_node_props.
    """
    for name in (f"HSA_OVERRIDE_GFX_VERSION_{node}", "HSA_OVERRIDE_GFX_VERSION"):
        if name in environ:
            found = re.fullmatch(r"\s*([0-9]{1,2})\.([0-9]{1,3})\.([0-9]{1,3})", environ[name], re.ASCII)
            return (gfx_name(*map(int, found.groups())) if found else None), name
    return None, None
