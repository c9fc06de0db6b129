"""What the kernel driver (KFD) and `rocminfo` say of the GPUs of a host.

sramecc, xnack, MIGraphX's count of CUs and the overridden arch follow from kernel data and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mxr.artifact.target import BASE_ARCH, capable
from mxr.util.frozen import dataclass

from .root import Root, properties

ISA = re.compile(r"amdgcn-amd-amdhsa--(gfx[0-9a-f]+)((?::(?:sramecc|xnack)[+-])*)")


@dataclass(frozen=True, slots=True)
class Agent:
    """One GPU agent. `compute_units` is rocminfo's count; `unique_id` has 16 hex digits."""

    arch: str
    sramecc: str | None = None
    xnack: str | None = None
    compute_units: int | None = None
    name: str | None = None
    node: int | None = None
    unique_id: str | None = None


def parse_rocminfo(text: str) -> list[Agent]:
    """Return the GPU agents in the output of rocminfo, in its order. Agents that cannot be parsed are ignored.

    Only the ISA lines contain the features. ROCm 6.4 and later list `-generic` ISAs in addition to the GPU's own; they
    are ignored.
    """
    blocks = re.split(r"(?m)^\s*Agent\s+[0-9]+\s*$", text)[1:]
    return [agent for block in blocks if (agent := _agent(block))]


def _agent(block: str) -> Agent | None:
    head, *isas = re.split(r"(?m)^\s*ISA\s+[0-9]+\s*$", block)
    arch = _word(head, "Name")
    if _word(head, "Device Type") != "GPU" or not arch or not BASE_ARCH.fullmatch(arch):
        return None
    features = _features(arch, isas)
    uuid = re.fullmatch(r"GPU-([0-9a-f]{16})", (_word(head, "Uuid") or "").replace("gpu-", "GPU-"))
    return Agent(
        arch,
        sramecc=features.get("sramecc"),
        xnack=features.get("xnack"),
        compute_units=_number(head, "Compute Unit"),
        name=_word(head, "Marketing Name"),
        node=_number(head, "Internal Node ID", "Node"),
        unique_id=uuid[1] if uuid else None,
    )


def _features(arch: str, isas: list[str]) -> dict[str, str]:
    for isa in isas:
        found = ISA.fullmatch(_word(isa, "Name") or "")
        if found and found[1] == arch:
            return {part[:-1]: part[-1] for part in found[2].split(":") if part}
    return {}


def _word(block: str, label: str) -> str | None:
    found = re.search(rf"(?m)^[ \t]*{label}:[ \t]*(\S.*?)[ \t\r]*$", block)
    return found[1] if found and found[1].isprintable() else None


def _number(block: str, *labels: str) -> int | None:
    for label in labels:
        found = re.match(r"[0-9]{1,9}\b", _word(block, label) or "")
        if found:
            return int(found[0])
    return None


NODES = "/sys/class/kfd/kfd/topology/nodes"
SRAM_ECC = 1 << 26
"""The bit of `capability` for SRAM ECC. Bit 19 had this meaning before; current kernels leave it 0.
Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.h, HSA_CAP_SRAM_EDCSUPPORTED."""

IDS: Mapping[str, tuple[int, ...]] = {
    "gfx900": (*range(0x6860, 0x6865), *range(0x6867, 0x686F), 0x687F),
    "gfx902": (0x15D8, 0x15DD),
    "gfx904": (*range(0x69A0, 0x69A4), 0x69AF),
    "gfx906": (*range(0x66A0, 0x66A5), 0x66A7, 0x66AF),
    "gfx908": (0x7388, 0x738C, 0x738E, 0x7390),
    "gfx90a": (0x7408, 0x740C, 0x740F, 0x7410),
    "gfx90c": (0x15E7, 0x1636, 0x1638, 0x164C),
}
ARCH_OF_ID: Mapping[int, str] = {number: arch for arch, numbers in IDS.items() for number in numbers}
"""PCI device ids of the gfx9 GPUs that kernels without `gfx_target_version` (before about 5.16) support.
Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c, the table of device ids."""


def decode_gfx_target_version(version: int) -> str | None:
    """Return the arch for the kernel's number: 90010 is gfx90a. None for 0 (a CPU) and for invalid numbers.

    The number is major * 10000 + minor * 100 + stepping; the name has minor and stepping as one hex digit each.
    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_device.c.
    """
    major, rest = divmod(version, 10000)
    return gfx_name(major, rest // 100, rest % 100)


def gfx_name(major: int, minor: int, stepping: int) -> str | None:
    """Return the name of an arch, such as `gfx90a` for 9, 0, 10; None if the numbers are invalid."""
    name = f"gfx{major}{minor:x}{stepping:x}"
    return name if minor < 16 and stepping < 16 and BASE_ARCH.fullmatch(name) else None


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """One node of the topology. `facts` are all numbers of its `properties` file, including unknown ones."""

    number: int
    facts: Mapping[str, int]
    name: str | None = None
    vram: int | None = None
    product: str | None = None
    partition: str | None = None

    @property
    def gpu(self) -> bool:
        """Whether the node is a GPU. A CPU node has no SIMDs; the node of an APU can have CPU cores and SIMDs."""
        return self.facts.get("simd_count", 0) > 0

    @property
    def arch(self) -> str | None:
        """The arch that the kernel reports, or else that of the PCI device id."""
        reported = decode_gfx_target_version(self.facts.get("gfx_target_version", 0))
        return reported or ARCH_OF_ID.get(self.facts.get("device_id", 0))

    @property
    def render_minor(self) -> int | None:
        """The N of /dev/dri/renderD<N>."""
        minor = self.facts.get("drm_render_minor", 0)
        # A minor device number has 20 bits.
        return minor if 0 < minor < 2**20 else None

    @property
    def chiplets(self) -> int | None:
        """The number of XCCs of the node; None if the kernel does not report it."""
        count = self.facts.get("num_xcc", 0)
        return count if 0 < count < 1000 else None

    @property
    def unique_id(self) -> str | None:
        """16 hex digits, which follow `GPU-` in ROCr's uuid. Partitions of one GPU share it."""
        number = self.facts.get("unique_id", 0)
        return f"{number:016x}" if number else None

    @property
    def compute_units(self) -> int | None:
        """The number of CUs in the kernel's count: 2 SIMDs per CU on RDNA, 4 on GCN and CDNA."""
        per = self.facts.get("simd_per_cu", 0)
        return self.facts.get("simd_count", 0) // per or None if per else None

    @property
    def sram_ecc(self) -> bool | None:
        """Whether SRAM ECC is on; None if the kernel does not report it."""
        capability = self.facts.get("capability")
        return None if capability is None else bool(capability & SRAM_ECC)


def read_nodes(root: Root) -> tuple[list[TopologyNode], list[int]]:
    """Return the readable nodes, and the numbers of unreadable ones.

    In a container, the kernel denies access (EPERM) to the files of GPUs that are not in the container's device cgroup.
    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show.
    """
    nodes, closed = [], []
    for number in root.numbered(NODES):
        text = root.read(f"{NODES}/{number}/properties")
        if text is None:
            closed.append(number)
        else:
            nodes.append(_read_node(root, number, properties(text)))
    return nodes, closed


def _read_node(root: Root, number: int, facts: Mapping[str, int]) -> TopologyNode:
    node = TopologyNode(number, facts)
    if not node.gpu:
        return node
    name = root.line(f"{NODES}/{number}/name")
    product = root.line(f"/sys/class/drm/renderD{node.render_minor}/device/product_name")
    # Kernels that use the IP discovery table of a GPU have no code name for it.
    name = None if name == "ip discovery" else name
    return TopologyNode(number, facts, name, _vram(root, number), product, _partition(root, facts))


def _vram(root: Root, number: int) -> int | None:
    banks = f"{NODES}/{number}/mem_banks"
    total = 0
    for bank in root.numbered(banks):
        facts = properties(root.read(f"{banks}/{bank}/properties") or "")
        # Heaps 1 and 2 are the frame buffer, visible to the CPU or not. Others are system memory, LDS, GDS, scratch.
        if facts.get("heap_type", 1) in (1, 2):
            total += facts.get("size_in_bytes", 0)
    return total if 0 < total < 2**53 else None


def _partition(root: Root, facts: Mapping[str, int]) -> str | None:
    """The partition mode of the GPU, such as `cpx_nps4`, in the notation of AMD's Kubernetes device plugin."""
    place, domain = facts.get("location_id", 0), facts.get("domain", 0)
    bus, device, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
    # For some boards the kernel puts the partition number into the function bits, but the files belong to function 0.
    for address in (f"{domain:04x}:{bus:02x}:{device:02x}.{number}" for number in dict.fromkeys((function, 0))):
        compute = root.line(f"/sys/bus/pci/devices/{address}/current_compute_partition")
        memory = root.line(f"/sys/bus/pci/devices/{address}/current_memory_partition")
        if compute:
            return "_".join(part.lower() for part in (compute, memory) if part)
    return None


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
