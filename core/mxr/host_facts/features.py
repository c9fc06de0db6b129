"""Derives sramecc, xnack, MIGraphX's count of CUs and the overridden arch from kernel data and the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mxr.artifact.target import capable

from .kfd import gfx_name

PER_PROCESS = frozenset({"gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
"""Archs with an xnack mode per process. Source: Linux, amdkfd/kfd_priv.h, KFD_SUPPORT_XNACK_PER_PROCESS."""

RETRYING = frozenset({"gfx902", "gfx904", "gfx909"})
"""gfx9 archs that retry page faults by default. Source: Linux, amdgpu/amdgpu_gmc.c, noretry_default."""

CHIPLETS = frozenset({"gfx940", "gfx941", "gfx942", "gfx950"})
"""Archs with several compute dies: if the kernel does not report num_xcc, the count is unknown."""

MAX_CUS = 100_000
"""A larger number of compute units is invalid."""


def xnack_mode(archs: Iterable[str], asked: str | None, noretry: str | None) -> bool:
    """Return whether xnack is on in a process that opens GPUs of these (real) archs. All its GPUs have the same mode.

    `asked` is HSA_XNACK, `noretry` the module parameter of amdgpu ("-1" lets the driver decide). Only gfx9 supports
    retries, so one newer GPU turns xnack off for all. MI200 and later follow HSA_XNACK; older gfx9 GPUs use the mode
    that the driver was loaded with. Source: Linux, amdkfd/kfd_process.c, kfd_process_xnack_mode. Not detected, because
    no file shows it: virtual functions on a host that forbids xnack.
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
    """Return the source of the xnack mode, for `found_by`."""
    if asked is None:
        return "noretry parameter of amdgpu, HSA_XNACK not set" if on else "default, HSA_XNACK not set"
    return f"HSA_XNACK={asked}" if on or asked != "1" else "HSA_XNACK=1, which these GPUs do not support"


def sign(arch: str, feature: str, on: bool | None) -> str | None:
    """Return `+` or `-`; None if the arch does not have the feature or its setting is unknown."""
    if on is None or not capable(arch, feature):
        return None
    return "+" if on else "-"


def migraphx_cus(compute_units: int | None, arch: str) -> int | None:
    """Return the CU count that MIGraphX compiles for; None if it is unknown.

    This is HIP's multiProcessorCount, which from gfx10 on counts work-group processors of two CUs. It is unknown for
    gfx125x, for which no source was found.

    Source: ROCm/clr, rocdevice.cpp (enableWgpMode_ halves maxComputeUnits_); AMDMIGraphX, gpu/context.hpp.
    """
    if compute_units is None or not 0 < compute_units < MAX_CUS or arch.startswith("gfx125"):
        return None
    return (compute_units // 2 or None) if re.fullmatch("gfx1[0-9]..", arch) else compute_units


def chiplets_of(num_xcc: int | None, arch: str) -> int | None:
    """Return the number of chiplets of a node; None if it is unknown.

    Kernels that do not report num_xcc support only GPUs with one die, except for the MI300 family.

    Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c (absent is 1); AMDMIGraphX, gpu/hsa_chiplet.cpp.
    """
    return num_xcc or (None if arch in CHIPLETS else 1)


def overridden(environ: Mapping[str, str], node: int) -> tuple[str | None, str | None]:
    """Return the arch that HSA_OVERRIDE_GFX_VERSION sets in place of the real one, and the name of the variable.

    `node` is ROCr's number of the node: ROCr counts the nodes that the process may use, including CPUs, from 0. The
    variable with the number of the node takes precedence. A value that is not `major.minor.stepping` gives
    (None, name), because ROCr does not start with it.
    Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c, topology_sysfs_get_node_props.
    """
    for name in (f"HSA_OVERRIDE_GFX_VERSION_{node}", "HSA_OVERRIDE_GFX_VERSION"):
        if name in environ:
            found = re.fullmatch(r"\s*([0-9]{1,2})\.([0-9]{1,3})\.([0-9]{1,3})", environ[name], re.ASCII)
            return (gfx_name(*map(int, found.groups())) if found else None), name
    return None, None
