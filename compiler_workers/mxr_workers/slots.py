"""What this host offers: a slot for each physical GPU, one for the reference target; one compile at a time in each."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from mxr.errors import NoWorker
from mxr.host_facts import Host, HostTarget, HostToolchain
from mxr.protocol.jobs import WorkerCapabilities
from mxr.util.codec import canonical, encode
from mxr_workers.interpreter import Interpreter, InterpreterInfo

REF = HostTarget(arch="ref", kind="ref")


@dataclass(frozen=True, slots=True)
class CompileSlot:
    """A place where one compile runs at a time.

    `devices`: for each target of `can`, its index among the GPUs that this process sees; None for the reference target.
    `hardware`: the same targets with what does not matter to a program, for its provenance: name, partition mode.
    """

    name: str
    can: WorkerCapabilities
    devices: tuple[int | None, ...]
    hardware: tuple[HostTarget, ...] = ()

    @property
    def kind(self) -> str:
        """`gpu` or `ref`."""
        return self.can.targets[0].kind

    def interpreter(self, usual: Interpreter, target: int, count: int) -> Interpreter:
        """The interpreter whose children see the chosen GPU alone; `count` GPUs are seen without that."""
        index = self.devices[target]
        if index is None or count < 2:
            return usual
        seen = [word for word in usual.outer.get("HIP_VISIBLE_DEVICES", "").split(",") if word.strip()]
        chosen = seen[index] if index < len(seen) else str(index)
        return replace(usual, outer={**usual.outer, "HIP_VISIBLE_DEVICES": chosen})

    def problem_cache(self, spool: Path, target: int) -> Path | None:
        """The tuning record of this device and toolchain build, which no other device may ever share."""
        if self.kind != "gpu":
            return None
        device = replace(self.can.targets[target].choice(), name=None)
        text = canonical([encode(device), encode(self.can.toolchain)])
        return spool / "problems" / f"{device.arch}-{sha256(text.encode()).hexdigest()[:16]}.json"


def find_slots(host: Host, about: InterpreterInfo, kinds: tuple[str, ...], name: str) -> tuple[CompileSlot, ...]:
    """The slots of a host whose interpreter offers `about`. Raises `NoWorker` where nothing can be compiled here."""
    toolchain, cross = toolchain_of(host, about), about.features.get("cross_compile", False)
    found: list[CompileSlot] = []
    if "gpu" in about.targets and "gpu" not in _left_out(kinds) and toolchain.rocm:
        places = {id(target): index for index, target in enumerate(host.targets)}
        for number, group in enumerate(host.physical()):
            # A program for one of several equal partitions serves them all.
            chosen = {target.choice(): target for target in reversed(group)}
            devices = tuple(places[id(target)] for target in chosen.values())
            label = group[0].unique_id or f"gpu{number}"
            can = WorkerCapabilities(tuple(chosen), toolchain, cross, about.ort)
            found.append(CompileSlot(f"{name}/{label}", can, devices, tuple(chosen.values())))
    if "ref" in about.targets and "ref" not in _left_out(kinds):
        found.append(CompileSlot(f"{name}/ref", WorkerCapabilities((REF,), toolchain), (None,), (REF,)))
    if found and toolchain.migraphx is None:
        raise NoWorker(
            "The version of this MIGraphX is not known: neither its module nor its files tell, nor is it in ROCm's.",
            hint="Name the toolchain in a recorded set of host facts (MXR_HOST), as `mxr host --json` writes one.",
        )
    if not found:
        raise NoWorker(
            f"This host can compile nothing: its MIGraphX offers {', '.join(about.targets) or 'no target'}, and it has "
            f"{len(host.targets)} GPUs, ROCm {toolchain.rocm or 'not found'}.",
            hint="`mxr host` and `mxr-worker host` show what was found, and how.",
            detail={"refusals": dict(about.refusals), "notes": list(host.notes)},
        )
    return tuple(found)


def _left_out(kinds: tuple[str, ...]) -> set[str]:
    return {"gpu", "ref"} - set(kinds) if kinds else set()


def toolchain_of(host: Host, about: InterpreterInfo) -> HostToolchain:
    """The toolchain that compiles: what the interpreter's own module says of itself goes before what the host shows."""
    own, found = about.migraphx, host.toolchain
    if own is None or own == found.migraphx:
        return replace(found, migraphx=own or found.migraphx)
    build = re.sub(r"^[0-9.]*\.?(dev\+)?", "", about.build) or None
    return replace(found, migraphx=own, migraphx_build=build)


@contextmanager
def held(folder: Path, blocking: bool = False) -> Iterator[bool]:
    """Whether this process alone works in the folder of a slot, which keeps a GPU to one compile at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            taken = True
        except BlockingIOError:
            taken = False
        yield taken
    finally:
        os.close(descriptor)


def shown(slots: tuple[CompileSlot, ...], about: InterpreterInfo) -> Mapping[str, object]:
    """The document of `mxr-worker host`."""
    return {
        "slots": [{"name": slot.name, "can": encode(slot.can)} for slot in slots],
        "interpreter": encode(about),
    }
