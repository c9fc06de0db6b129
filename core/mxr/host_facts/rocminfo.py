"""Parses the output of `rocminfo`: the GPUs as ROCr sees them, for what the KFD topology does not contain."""

from __future__ import annotations

import re

from mxr.artifact.target import BASE_ARCH
from mxr.util.frozen import dataclass

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
