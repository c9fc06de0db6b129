"""From nodes and environment to the GPUs that a program started here would see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import features
from .facts import HostTarget
from .kfd import NODES, TopologyNode, read_nodes
from .rocminfo import Agent, parse_rocminfo
from .root import Root, Run
from .visible import hip_layer, visible

HYGON_PCI = 0x1D94
"""PCI vendor id of Hygon. Source: the public PCI ID list."""

BY_ROCMINFO = dict.fromkeys(("arch", "sramecc", "xnack", "num_cu", "chiplets"), "rocminfo")

TIMEOUT = 5.0
"""Seconds for one tool."""


@dataclass(slots=True)
class Gpus:
    """The GPUs found so far, how, and what a person should know. `hows[i]` belongs to `targets[i]`."""

    targets: list[HostTarget] = field(default_factory=list)
    hows: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note_hidden(self, count: int, said: Sequence[str]) -> None:
        """Say which variables hide how many GPUs, if any."""
        if count and said:
            self.notes.append(f"{' and '.join(said)} {'hides' if len(said) == 1 else 'hide'} {count} of the GPUs here.")

    def found_by(self) -> dict[str, str]:
        """For each fact where it is from, with the nodes that it is from: `kfd topology nodes 1-8`."""
        sources: dict[str, dict[str, list[int | None]]] = {}
        for target, how in zip(self.targets, self.hows, strict=True):
            for fact, source in how.items():
                if getattr(target, fact) is None:
                    continue
                sources.setdefault(fact, {}).setdefault(source, []).append(target.node)
        return {fact: "; ".join(_with_nodes(*each) for each in rows.items()) for fact, rows in sources.items()}


def find_gpus(root: Root, environ: Mapping[str, str], run: Run | None, *, hygon: bool, whole_node: bool) -> Gpus:
    """The GPUs that this process may use; with `whole_node` all that the node has, whoever may use them."""
    nodes, closed = read_nodes(root)
    gpus = Gpus(notes=[_closed_note(number) for number in closed])
    mine = [node for node in nodes if not node.gpu or whole_node or _usable(root, node, gpus.notes)]
    silent = not any(node.gpu for node in nodes) or any(node.gpu and not node.arch for node in mine)
    reachable = root.exists("/dev/kfd") or root.exists("/dev/dxg")
    agents = parse_rocminfo(run(["rocminfo"], TIMEOUT) or "") if run and silent and reachable else []
    if any(node.gpu for node in mine):
        _from_nodes(gpus, mine, environ, agents, root.line("/sys/module/amdgpu/parameters/noretry"))
    else:
        _from_agents(gpus, agents, environ)
    if hygon:
        gpus.targets = [replace(target, vendor="hygon") for target in gpus.targets]
    _note_surroundings(gpus, root, environ, bool(nodes))
    return gpus


def _usable(root: Root, node: TopologyNode, notes: list[str]) -> bool:
    """Whether the render device of a node is here and may be opened; /sys shows all GPUs of the machine."""
    minor = node.render_minor
    if minor is None:
        notes.append(f"Node {node.number} is a GPU ({_known(node)}) without a render device, which no program can use.")
        return False
    device = f"/dev/dri/renderD{minor}"
    if not root.exists(device):
        notes.append(f"Node {node.number} is a GPU ({_known(node)}), but {device} is not here: it is not counted.")
        return False
    if not root.usable(device):
        notes.append(
            f"Node {node.number} is a GPU ({_known(node)}), but this user may not open {device}: it is not counted."
            " Add the user to the group that owns it (often `render`)."
        )
        return False
    return True


def _known(node: TopologyNode) -> str:
    return node.arch or f"PCI device {node.facts.get('device_id', 0):04x}"


def _from_nodes(
    gpus: Gpus, nodes: list[TopologyNode], environ: Mapping[str, str], agents: list[Agent], noretry: str | None
) -> None:
    archs = [node.arch for node in nodes if node.gpu and node.arch]
    asked = environ.get("HSA_XNACK")
    on = features.xnack_mode(archs, asked, noretry)
    # ROCr numbers the nodes that it may use, CPUs too, and so does the per-node override; the variables that hide GPUs
    # count the GPUs alone, those that mxr does not know too.
    numbered = [(number, node) for number, node in enumerate(nodes) if node.gpu]
    order, said = visible(environ, [node.unique_id for _, node in numbered])
    gpus.note_hidden(len(numbered) - len(order), said)
    for number, node in (numbered[index] for index in order):
        agent = next((each for each in agents if each.node == node.number), None)
        arch, name = features.overridden(environ, number)
        if name and not arch:
            gpus.notes.append(f"{name} is {environ[name]!r}, which is not of the form 11.0.0: ROCm will not start.")
        if node.arch:
            gpus.targets.append(_target(node, node.arch, arch or node.arch, on))
            gpus.hows.append(_hows(node, name if arch else None, features.xnack_found_by(on, asked)))
        elif agent:
            gpus.targets.append(_agent_target(agent, node))
            gpus.hows.append(dict(BY_ROCMINFO))
        else:
            gpus.notes.append(f"Node {node.number} is a GPU that mxr does not know ({_known(node)}): say --arch.")


def _target(node: TopologyNode, real: str, arch: str, xnack: bool) -> HostTarget:
    return HostTarget(
        arch,
        sramecc=features.sign(arch, "sramecc", node.sram_ecc),
        xnack=features.sign(arch, "xnack", xnack),
        num_cu=features.migraphx_cus(node.compute_units, arch),
        chiplets=features.chiplets_of(node.chiplets, real),
        vendor="hygon" if node.facts.get("vendor_id") == HYGON_PCI else "amd",
        name=node.product or node.name,
        real_arch=real if real != arch else None,
        node=node.number,
        render_minor=node.render_minor,
        unique_id=node.unique_id,
        partition=node.partition,
        vram=node.vram,
    )


def _hows(node: TopologyNode, override: str | None, xnack: str) -> dict[str, str]:
    told = "kfd topology" if node.facts.get("gfx_target_version") else "PCI device id in kfd topology"
    return {"arch": override or told, "num_cu": "kfd topology", "chiplets": "kfd topology"} | (
        {"sramecc": "kfd topology", "xnack": xnack}
    )


def _from_agents(gpus: Gpus, agents: list[Agent], environ: Mapping[str, str]) -> None:
    # rocminfo ran in this environment: what ROCr hides and overrides is done already.
    order, said = hip_layer(environ, [agent.unique_id for agent in agents])
    gpus.note_hidden(len(agents) - len(order), said)
    gpus.targets = [_agent_target(agents[index], None) for index in order]
    gpus.hows = [dict(BY_ROCMINFO) for _ in order]


def _agent_target(agent: Agent, node: TopologyNode | None) -> HostTarget:
    return HostTarget(
        agent.arch,
        sramecc=agent.sramecc,
        xnack=agent.xnack,
        num_cu=features.migraphx_cus(agent.compute_units, agent.arch),
        chiplets=features.chiplets_of(node.chiplets if node else None, agent.arch),
        vendor="hygon" if node and node.facts.get("vendor_id") == HYGON_PCI else "amd",
        name=agent.name,
        node=agent.node,
        render_minor=node.render_minor if node else None,
        unique_id=agent.unique_id,
        partition=node.partition if node else None,
        vram=node.vram if node else None,
    )


def _note_surroundings(gpus: Gpus, root: Root, environ: Mapping[str, str], topology: bool) -> None:
    if not topology and not gpus.targets:
        gpus.notes.append(f"There is no AMD GPU here: {NODES} shows none.")
    elif not root.exists("/dev/kfd") and not root.exists("/dev/dxg"):
        gpus.notes.append("There is no /dev/kfd here: GPU programs cannot run (in a container: --device=/dev/kfd).")
    elif root.exists("/dev/kfd") and not root.usable("/dev/kfd"):
        gpus.notes.append("This user may not open /dev/kfd: add it to the group that owns it (often `render`).")
    if "GPU_DEVICE_ORDINAL" in environ and gpus.targets:
        gpus.notes.append("GPU_DEVICE_ORDINAL hides GPUs from OpenCL alone: MIGraphX does not follow it.")


def _closed_note(number: int) -> str:
    return f"Node {number} may not be read: the container was not given this GPU."


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
