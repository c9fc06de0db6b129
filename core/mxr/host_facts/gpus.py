"""Determines the GPUs that a program on this host sees, from the topology, rocminfo and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mxr.artifact.attributes import HARDWARE
from mxr.facts import stated

from .host import HostTarget
from .kfd import (
    NODES,
    Agent,
    TopologyNode,
    chiplets_of,
    migraphx_cus,
    overridden,
    parse_rocminfo,
    read_nodes,
    sign,
    xnack_found_by,
    xnack_mode,
)
from .root import Root, Run

HYGON_PCI = 0x1D94
"""PCI vendor id of Hygon. Source: the public PCI ID list."""

BY_ROCMINFO = dict.fromkeys(("arch", *HARDWARE), "rocminfo")

TIMEOUT = 5.0
"""Timeout of one tool in seconds."""


@dataclass(slots=True)
class Gpus:
    """The GPUs found so far, the sources of their facts, and notes for the user.

    `sources[i]` has the source of each fact of `targets[i]`.
    """

    targets: list[HostTarget] = field(default_factory=list)
    sources: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note_hidden(self, count: int, variables: Sequence[str]) -> None:
        """Add a note if environment variables hide GPUs; `count` is their number."""
        if count and variables:
            verb = "hides" if len(variables) == 1 else "hide"
            self.notes.append(f"{' and '.join(variables)} {verb} {count} of the GPUs of this host.")

    def found_by(self) -> dict[str, str]:
        """Return the source of each fact with its nodes, such as `kfd topology nodes 1-8`."""
        sources: dict[str, dict[str, list[int | None]]] = {}
        for target, facts in zip(self.targets, self.sources, strict=True):
            for fact, source in facts.items():
                if getattr(target, fact) is None:
                    continue
                sources.setdefault(fact, {}).setdefault(source, []).append(target.node)
        return {fact: "; ".join(_with_nodes(*each) for each in rows.items()) for fact, rows in sources.items()}


def find_gpus(root: Root, environ: Mapping[str, str], run: Run | None, *, hygon: bool, whole_node: bool) -> Gpus:
    """Return the GPUs that this process may use; with `whole_node`, all GPUs of the node."""
    nodes, closed = read_nodes(root)
    gpus = Gpus(notes=[_closed_note(number) for number in closed])
    usable = [node for node in nodes if not node.gpu or whole_node or _usable(root, node, gpus.notes)]
    incomplete = not any(node.gpu for node in nodes) or any(node.gpu and not node.arch for node in usable)
    has_device = root.exists("/dev/kfd") or root.exists("/dev/dxg")
    agents = parse_rocminfo(run(["rocminfo"], TIMEOUT) or "") if run and incomplete and has_device else []
    if any(node.gpu for node in usable):
        _from_nodes(gpus, usable, environ, agents, root.line("/sys/module/amdgpu/parameters/noretry"))
    else:
        _from_agents(gpus, agents, environ)
    if hygon:
        gpus.targets = [replace(target, vendor="hygon") for target in gpus.targets]
    _note_environment(gpus, root, environ, bool(nodes))
    return gpus


def _usable(root: Root, node: TopologyNode, notes: list[str]) -> bool:
    """Whether the render device of a node exists and can be opened. (/sys lists all GPUs of the host.)"""
    minor = node.render_minor
    if minor is None:
        notes.append(f"Node {node.number} is a GPU ({_model(node)}) without a render device; no program can use it.")
        return False
    device = f"/dev/dri/renderD{minor}"
    if not root.exists(device):
        notes.append(f"Node {node.number} is a GPU ({_model(node)}) and is ignored: {device} does not exist.")
        return False
    if not root.usable(device):
        notes.append(
            f"Node {node.number} is a GPU ({_model(node)}) and is ignored: this user has no permission to open "
            f"{device}. Add the user to the group that owns it (often `render`)."
        )
        return False
    return True


def _model(node: TopologyNode) -> str:
    return node.arch or f"PCI device {node.facts.get('device_id', 0):04x}"


def _from_nodes(
    gpus: Gpus, nodes: list[TopologyNode], environ: Mapping[str, str], agents: list[Agent], noretry: str | None
) -> None:
    archs = [node.arch for node in nodes if node.gpu and node.arch]
    asked = environ.get("HSA_XNACK")
    on = xnack_mode(archs, asked, noretry)
    # ROCr and the per-node override number all usable nodes, including CPUs. The variables that hide GPUs count only
    # GPUs, including those that mxr does not know.
    numbered = [(number, node) for number, node in enumerate(nodes) if node.gpu]
    order, variables = visible(environ, [node.unique_id for _, node in numbered])
    gpus.note_hidden(len(numbered) - len(order), variables)
    for number, node in (numbered[index] for index in order):
        agent = next((agent for agent in agents if agent.node == node.number), None)
        arch, name = overridden(environ, number)
        if name and not arch:
            gpus.notes.append(f"{name} is {environ[name]!r}; the form is 11.0.0. ROCm does not start with this value.")
        if node.arch:
            gpus.targets.append(_target(node, node.arch, arch or node.arch, on))
            gpus.sources.append(_sources(node, name if arch else None, xnack_found_by(on, asked)))
        elif agent:
            gpus.targets.append(_agent_target(agent, node))
            gpus.sources.append(dict(BY_ROCMINFO))
        else:
            gpus.notes.append(
                f"Node {node.number} is an unknown GPU ({_model(node)}): set its arch with {stated('arch')}."
            )


def _target(node: TopologyNode, real: str, arch: str, xnack: bool) -> HostTarget:
    found = HostTarget(
        arch,
        sign(arch, "sramecc", node.sram_ecc),
        sign(arch, "xnack", xnack),
        migraphx_cus(node.compute_units, arch),
        real_arch=real if real != arch else None,
        name=node.product or node.name,
        node=node.number,
        unique_id=node.unique_id,
    )
    return _with_node(found, node, real)


def _with_node(found: HostTarget, node: TopologyNode, real: str) -> HostTarget:
    return replace(
        found,
        chiplets=chiplets_of(node.chiplets, real),
        vendor="hygon" if node.facts.get("vendor_id") == HYGON_PCI else "amd",
        render_minor=node.render_minor,
        partition=node.partition,
        vram=node.vram,
    )


def _sources(node: TopologyNode, override: str | None, xnack: str) -> dict[str, str]:
    arch = "kfd topology" if node.facts.get("gfx_target_version") else "PCI device id in kfd topology"
    return dict.fromkeys(BY_ROCMINFO, "kfd topology") | {"arch": override or arch, "xnack": xnack}


def _from_agents(gpus: Gpus, agents: list[Agent], environ: Mapping[str, str]) -> None:
    # rocminfo ran in this environment, so ROCr's variables have already been applied to its output.
    order, variables = hip_layer(environ, [agent.unique_id for agent in agents])
    gpus.note_hidden(len(agents) - len(order), variables)
    gpus.targets = [_agent_target(agents[index], None) for index in order]
    gpus.sources = [dict(BY_ROCMINFO) for _ in order]


def _agent_target(agent: Agent, node: TopologyNode | None) -> HostTarget:
    found = HostTarget(
        agent.arch,
        agent.sramecc,
        agent.xnack,
        migraphx_cus(agent.compute_units, agent.arch),
        chiplets_of(None, agent.arch),
        name=agent.name,
        node=agent.node,
        unique_id=agent.unique_id,
    )
    return found if node is None else _with_node(found, node, agent.arch)


def _note_environment(gpus: Gpus, root: Root, environ: Mapping[str, str], topology: bool) -> None:
    if not topology and not gpus.targets:
        gpus.notes.append(f"This host has no AMD GPU: {NODES} lists none.")
    elif not root.exists("/dev/kfd") and not root.exists("/dev/dxg"):
        gpus.notes.append("/dev/kfd does not exist: GPU programs cannot run. In a container, use --device=/dev/kfd.")
    elif root.exists("/dev/kfd") and not root.usable("/dev/kfd"):
        gpus.notes.append(
            "This user has no permission to open /dev/kfd: add it to the group that owns it (often `render`)."
        )
    if "GPU_DEVICE_ORDINAL" in environ and gpus.targets:
        gpus.notes.append("GPU_DEVICE_ORDINAL hides GPUs only from OpenCL; MIGraphX ignores it.")


def _closed_note(number: int) -> str:
    return f"Node {number} is not readable: this container does not have access to that GPU."


def _with_nodes(source: str, nodes: list[int | None]) -> str:
    numbers = sorted({number for number in nodes if number is not None})
    if not source.endswith("topology") or not numbers:
        return source
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{source} {'node' if len(numbers) == 1 else 'nodes'} {shown}"


Uuids = Sequence[str | None]
"""The unique id of each GPU (16 hex digits), or None."""


def visible(environ: Mapping[str, str], uuids: Uuids) -> tuple[list[int], list[str]]:
    """Return the indexes of the GPUs that a HIP program sees, in its order, and the variables that apply.

    An empty variable hides all GPUs. Both layers ignore the rest of the list after the first invalid entry.
    GPU_DEVICE_ORDINAL applies only to OpenCL.
    Source: ROCm/ROCR-Runtime, amd_filter_device.cpp; ROCm/clr, rocclr/device/rocm/rocdevice.cpp, Device::init.
    """
    order, variables = list(range(len(uuids))), []
    if "ROCR_VISIBLE_DEVICES" in environ:
        variables.append("ROCR_VISIBLE_DEVICES")
        order = rocr_visible(environ["ROCR_VISIBLE_DEVICES"], uuids)
    chosen, hip = hip_layer(environ, [uuids[index] for index in order])
    return [order[index] for index in chosen], variables + hip


def hip_layer(environ: Mapping[str, str], uuids: Uuids) -> tuple[list[int], list[str]]:
    """Do the same for HIP, given the GPUs that ROCr reports. HIP_VISIBLE_DEVICES overrides CUDA_VISIBLE_DEVICES."""
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in environ:
            return hip_visible(environ[name], uuids), [name]
    return list(range(len(uuids))), []


def rocr_visible(text: str, uuids: Uuids) -> list[int]:
    """Parse ROCR_VISIBLE_DEVICES: indexes or prefixes of `GPU-<uuid>`. A repeated GPU ends the list."""
    chosen: list[int] = []
    for word in text.split(","):
        index = _rocr_index(word.strip().upper(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _rocr_index(word: str, uuids: Uuids) -> int | None:
    if word.startswith("G"):
        if not 5 <= len(word) <= 20:
            return None
        found = [index for index, uuid in enumerate(uuids) if uuid and f"GPU-{uuid.upper()}".startswith(word)]
        return found[0] if len(found) == 1 else None
    # Like C's strtol with base 0: decimal, hexadecimal (0x) or octal (0).
    if not re.fullmatch(r"0X[0-9A-F]{1,8}|0[0-7]{0,8}|[1-9][0-9]{0,8}", word):
        return None
    index = int(word, 16) if "X" in word else int(word, 8 if word.startswith("0") else 10)
    return index if index < len(uuids) else None


def hip_visible(text: str, uuids: Uuids) -> list[int]:
    """Parse HIP_VISIBLE_DEVICES: plain indexes or `GPU-<uuid>`. A repeated GPU counts once."""
    chosen: list[int] = []
    for word in text.split(","):
        index = _hip_index(word, uuids)
        if index is None:
            break
        if index not in chosen:
            chosen.append(index)
    return chosen


def _hip_index(word: str, uuids: Uuids) -> int | None:
    if "GPU-" in word:
        found = [index for index, uuid in enumerate(uuids) if uuid and word in f"GPU-{uuid}"]
        return found[0] if found else None
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", word) or int(word) >= len(uuids):
        return None
    return int(word)
