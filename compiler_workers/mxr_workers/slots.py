"""The slots of a host: one for each physical GPU, and one for the reference target. Each runs one compile at a time."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from mxr.artifact.target import userland
from mxr.errors import NoWorkerError
from mxr.host_facts import Host, HostTarget, HostToolchain
from mxr.protocol.jobs import WorkerCapabilities
from mxr.util.codec import canonical, encode
from mxr_workers.interpreter import Interpreter, InterpreterInfo

REF = HostTarget(arch="ref", kind="ref")


@dataclass(frozen=True, slots=True)
class CompileSlot:
    """One slot. That of a host without a GPU has no targets, and cross-compiles.

    `devices`: for each target of `can`, its index among the GPUs that this process sees; None for the reference target.
    `hardware`: the same targets with facts that do not affect a program, for its provenance: name, partition mode.
    """

    name: str
    can: WorkerCapabilities
    devices: tuple[int | None, ...]
    hardware: tuple[HostTarget, ...] = ()

    @property
    def kind(self) -> str:
        """`gpu` or `ref`."""
        return self.can.targets[0].kind if self.can.targets else "gpu"

    def interpreter(self, base: Interpreter, target: int, count: int) -> Interpreter:
        """The interpreter whose children see only the chosen GPU; `count` is the number of GPUs that `base` sees."""
        index = self.devices[target] if self.devices else None
        if index is None:
            return base
        if base.policy is not None:
            base = replace(base, policy=base.policy.more(devices=gpu_devices(self.can.targets[target])))
        if count < 2:
            return base
        visible = [word for word in base.environ.get("HIP_VISIBLE_DEVICES", "").split(",") if word.strip()]
        chosen = visible[index] if index < len(visible) else str(index)
        return replace(base, environ={**base.environ, "HIP_VISIBLE_DEVICES": chosen})

    def problem_cache(self, spool: Path, target: int) -> Path | None:
        """The tuning cache of this device and toolchain build, which must not be shared with any other device."""
        if self.kind != "gpu":
            return None
        device = replace(self.can.targets[target].choice(), name=None)
        text = canonical([encode(device), encode(self.can.toolchain)])
        return spool / "problems" / f"{device.arch}-{sha256(text.encode()).hexdigest()[:16]}.json"


def gpu_devices(target: HostTarget) -> list[str]:
    """The devices by which a process uses a GPU: that of amdkfd, and its own render node, or all if that is unknown."""
    minor = "*" if target.render_minor is None else target.render_minor
    return ["/dev/kfd", *map(str, sorted(Path("/dev/dri").glob(f"renderD{minor}")))]


def find_slots(
    host: Host, info: InterpreterInfo, kinds: tuple[str, ...], name: str, crossed: tuple[str, ...] = ()
) -> tuple[CompileSlot, ...]:
    """The slots of a host with this interpreter. `crossed`: the archs for which it shall cross-compile.

    Raises `NoWorkerError` where nothing can be compiled, or not what shall be.
    """
    toolchain, cross = toolchain_of(host, info), info.features.get("cross_compile", False)
    eager = info.features.get("compile_mode", False)
    found: list[CompileSlot] = []
    if crossed and not (cross and "gpu" in info.targets and toolchain.rocm):
        raise NoWorkerError(
            f"This host cannot cross-compile for {', '.join(crossed)}: its MIGraphX "
            + ("is none of ROCm." if cross else "compiles only for the GPUs of its own host."),
            hint="Cross-compiling needs a MIGraphX whose `migraphx.get_target` takes the arch of a GPU, and its ROCm.",
            context={"refusals": dict(info.refusals), "notes": list(host.notes)},
        )
    if "gpu" in info.targets and "gpu" not in _excluded_kinds(kinds) and toolchain.rocm:
        places = {id(target): index for index, target in enumerate(host.targets)}
        for number, group in enumerate(host.physical()):
            # A program for one of several identical partitions works on all of them.
            chosen = {target.choice(): target for target in reversed(group)}
            devices = tuple(places[id(target)] for target in chosen.values())
            label = group[0].unique_id or f"gpu{number}"
            can = WorkerCapabilities(tuple(chosen), toolchain, cross, info.ort, eager, cross_for=crossed)
            found.append(CompileSlot(f"{name}/{label}", can, devices, tuple(chosen.values())))
    if crossed and not found:
        can = WorkerCapabilities((), toolchain, cross=True, cross_for=crossed)
        found.append(CompileSlot(f"{name}/cross", can, ()))
    if "ref" in info.targets and "ref" not in _excluded_kinds(kinds):
        found.append(CompileSlot(f"{name}/ref", WorkerCapabilities((REF,), toolchain, eager=eager), (None,), (REF,)))
    if found and toolchain.migraphx is None:
        raise NoWorkerError(
            "The MIGraphX version is unknown: neither the module, nor its files, nor the ROCm installation contain it.",
            hint="Set MXR_HOST to a file of host facts that names the toolchain; `mxr host --json` writes one.",
        )
    if not found:
        raise NoWorkerError(
            f"This host cannot compile anything: MIGraphX targets: {', '.join(info.targets) or 'none'}; "
            f"{len(host.targets)} GPUs; {userland(toolchain.vendor)} {toolchain.rocm or 'not found'}.",
            hint="`mxr host` and `mxr-worker host` show what was detected.",
            context={"refusals": dict(info.refusals), "notes": list(host.notes)},
        )
    return tuple(found)


def _excluded_kinds(kinds: tuple[str, ...]) -> set[str]:
    return {"gpu", "ref"} - set(kinds) if kinds else set()


def toolchain_of(host: Host, info: InterpreterInfo) -> HostToolchain:
    """The toolchain that compiles. The version that the interpreter's module reports overrides the host's."""
    version = info.migraphx
    found = next(
        (installation.toolchain for installation in host.installations if installation.toolchain.migraphx == version),
        host.toolchain,
    )
    if version is None or version == found.migraphx:
        return replace(found, migraphx=version or found.migraphx)
    build = re.sub(r"^[0-9.]*\.?(dev\+)?", "", info.build) or None
    return replace(found, migraphx=version, migraphx_build=build)


@contextmanager
def locked(folder: Path, blocking: bool = False) -> Iterator[bool]:
    """Lock the folder of a slot, so that only one compile runs on its GPU. Yields whether the lock was acquired."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            acquired = True
        except BlockingIOError:
            acquired = False
        yield acquired
    finally:
        os.close(descriptor)


def host_document(slots: tuple[CompileSlot, ...], info: InterpreterInfo) -> Mapping[str, object]:
    """The output of `mxr-worker host`."""
    return {
        "slots": [{"name": slot.name, "can": encode(slot.can)} for slot in slots],
        "interpreter": encode(info),
    }
