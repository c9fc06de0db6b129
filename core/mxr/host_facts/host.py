"""Data types for the facts of a host: GPUs as MIGraphX sees them, toolchain, and the source of each fact."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any

from mxr.artifact import field_docs
from mxr.artifact.target import BASE_ARCH, VENDORS
from mxr.errors import DamagedError, UsageError
from mxr.util.codec import decode, encode, fields, parse, refuse, schema_of_form
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

VERSION = r"[0-9]{1,6}(\.[0-9]{1,6}){1,2}[0-9A-Za-z.+~-]{0,60}"
UNIQUE_ID = r"[0-9a-f]{16}"
MAX_RECORD_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a recorded file. That of a host with 64 partitions has less than 40 KB."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a program runs on, as far as it decides which program. None means unknown, or not applicable to the arch.

    `num_cu` is the count that MIGraphX compiles for (HIP's multiProcessorCount; on RDNA this is half of the compute
    units that the kernel and rocminfo report). `chiplets` is the number of XCCs of the node. `real_arch` is the arch of
    the hardware if HSA_OVERRIDE_GFX_VERSION makes ROCm report `arch` instead.
    """

    arch: Annotated[str | None, field_docs.ARCH] = None
    sramecc: Annotated[str | None, field_docs.SRAMECC] = None
    xnack: Annotated[str | None, field_docs.XNACK] = None
    num_cu: Annotated[int | None, field_docs.NUM_CU] = None
    chiplets: Annotated[int | None, field_docs.CHIPLETS] = None
    vendor: Annotated[str | None, field_docs.VENDOR] = None
    kind: Annotated[str, field_docs.KIND] = "gpu"
    real_arch: Annotated[str | None, field_docs.REAL_ARCH] = None


@dataclass(frozen=True, slots=True)
class HostTarget(Hardware):
    """One GPU of a host, or one partition of a GPU.

    `node` is the KFD node, `render_minor` the N of /dev/dri/renderD<N>, `unique_id` 16 hex digits that all partitions
    of a GPU share, `partition` a mode such as `cpx_nps4`, `vram` in bytes.
    """

    json_needed = ("arch",)
    __get_pydantic_core_schema__ = classmethod(schema_of_form)

    arch: Annotated[str, Doc("The GPU architecture; `ref` for the reference target.", examples=["gfx942"])]
    vendor: Annotated[str, field_docs.VENDOR] = "amd"
    name: Annotated[str | None, Doc("The name of the GPU.")] = None
    node: Annotated[int | None, Doc("The number of the GPU in the kernel's topology.", minimum=0)] = None
    render_minor: Annotated[int | None, Doc("The number of its device `/dev/dri/renderD...`.", minimum=0)] = None
    unique_id: Annotated[str | None, Doc("The id of the physical GPU; its partitions have the same.")] = None
    partition: Annotated[str | None, Doc("The partition mode of the GPU.")] = None
    vram: Annotated[int | None, Doc("The memory in bytes.", minimum=0)] = None

    def choice(self) -> HostTarget:
        """Return the fields that determine the choice of a program: not name, node, device, partition and memory."""
        return replace(self, name=None, node=None, render_minor=None, unique_id=None, partition=None, vram=None)


@dataclass(frozen=True, slots=True)
class HostToolchain:
    """The software that loads programs.

    `rocm` is the most complete version found, such as `7.2.1`, or the DTK version for vendor hygon. `migraphx` is a
    version such as `2.15.0`, `migraphx_build` its git description or package build.
    """

    rocm: Annotated[str | None, Doc("The full version of ROCm (or DTK).", examples=["7.2.1"])] = None
    migraphx: Annotated[str | None, Doc("The full version of MIGraphX.", examples=["2.15.0"])] = None
    migraphx_build: Annotated[str | None, Doc("The build of MIGraphX: a git hash or a package.")] = None
    vendor: Annotated[str, field_docs.VENDOR] = "amd"


@dataclass(frozen=True, slots=True)
class Installation:
    """A MIGraphX on a host, with the ROCm that it runs on. `where`: the file or package that tells its version.

    `named`: MIGRAPHX_PATH names it. `python`: it is in the active Python environment, whose programs load it.
    """

    toolchain: HostToolchain
    where: str
    named: bool = False
    python: bool = False

    def __str__(self) -> str:
        rocm = f" with ROCm {self.toolchain.rocm}" if self.toolchain.rocm else ""
        return f"{self.toolchain.migraphx}{rocm} ({self.where})"


def describe(installations: Sequence[Installation]) -> str:
    """Return the sentence that lists several installations."""
    shown = dict.fromkeys(map(str, installations))
    return f"This host has {len(shown)} installations of MIGraphX: {', '.join(shown)}."


@dataclass(frozen=True, slots=True)
class Host:
    """All facts of a host. `found_by` gives the source of each fact by its name; `notes` are sentences for the user.

    `toolchain` is empty where several `installations` differ and nothing on the host decides.
    """

    targets: tuple[HostTarget, ...] = ()
    toolchain: HostToolchain = field(default_factory=HostToolchain)
    found_by: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    installations: tuple[Installation, ...] = ()

    def choices(self) -> tuple[HostTarget, ...]:
        """The first of each group of GPUs that are equal for the choice of a program, in detection order."""
        first: dict[HostTarget, HostTarget] = {}
        for target in self.targets:
            first.setdefault(target.choice(), target)
        return tuple(first.values())

    def physical(self) -> tuple[tuple[HostTarget, ...], ...]:
        """The targets grouped by physical GPU. Partitions of one GPU have the same unique id."""
        groups: dict[str | int, list[HostTarget]] = {}
        for index, target in enumerate(self.targets):
            groups.setdefault(index if target.unique_id is None else target.unique_id, []).append(target)
        return tuple(tuple(group) for group in groups.values())

    def to_json(self) -> dict[str, Any]:
        """Return `{"targets":[...],"toolchain":{...},"found_by":{...},"notes":[...],"installations":[...]}`."""
        return {
            "targets": encode(self.targets),
            "toolchain": encode(self.toolchain),
            "found_by": dict(sorted(self.found_by.items())),
            "notes": list(self.notes),
            "installations": encode(self.installations),
        }

    @classmethod
    def from_json(cls, document: object, where: str = "") -> Host:
        """Read a document of `to_json`. Every field is optional. Raises `DamagedError` with the path of the field."""
        try:
            host = _decode_host(document, where)
        except UsageError as problem:
            raise DamagedError(
                f"The recorded host facts are invalid: {problem.message}",
                hint="Record them again with `mxr host --json` in the serving image. " + problem.hint,
            ) from None
        return host


def read_recorded(path: Path) -> Host:
    """Read host facts from the output of `mxr host --json`.

    Raises `DamagedError`, or `UsageError` if the file is unreadable.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise UsageError(
            f"{path} cannot be read: {reason}.", hint="Pass a file with the output of `mxr host --json`."
        ) from None
    if len(data) > MAX_RECORD_BYTES:
        raise DamagedError(
            f"{path} is too large for recorded host facts.", hint="Pass a file with the output of `mxr host --json`."
        )
    try:
        document = parse(data, str(path))
    except UsageError as problem:
        raise DamagedError(problem.message, hint="Pass a file with the output of `mxr host --json`.") from None
    return Host.from_json(document)


def combine(recorded: Host, local: Host) -> Host:
    """Return the recorded facts, with the GPUs of this node if the record contains none.

    The toolchain is always the recorded one, even if it is unknown, because facts of two images must not be mixed. If
    the record was made under Hygon's DTK, the local GPUs become Hygon's: a container without DTK cannot detect that.
    """
    if recorded.targets:
        return recorded
    targets = local.targets
    taken = {"rocm", "migraphx", "migraphx_build"}
    if recorded.toolchain.vendor != "amd":
        targets = tuple(replace(target, vendor=recorded.toolchain.vendor) for target in targets)
        taken.add("vendor")
    found_by = {fact: how for fact, how in local.found_by.items() if fact not in taken}
    found_by |= {fact: f"recorded: {how}" for fact, how in recorded.found_by.items() if fact in taken}
    return Host(targets, recorded.toolchain, found_by, recorded.notes + local.notes, recorded.installations)


def _decode_host(document: object, where: str) -> Host:
    parts: dict[str, Callable[[object, str], Any]] = {
        "targets": lambda value, at: tuple(_checked_target(each, f"{at}[{n}]") for n, each in _items(value, at)),
        "toolchain": _checked_toolchain,
        "found_by": lambda value, at: decode(Mapping[str, str], value, at),  # type: ignore[type-abstract]
        "notes": lambda value, at: decode(tuple[str, ...], value, at),
        "installations": lambda value, at: tuple(
            _checked_installation(each, f"{at}[{n}]") for n, each in _items(value, at)
        ),
    }
    found = {}
    for name, value in fields(document, where):
        at = f"{where}.{name}" if where else name
        if name not in parts:
            raise UsageError(f"{at}: unknown field.", hint=f"Known fields: {', '.join(parts)}.")
        found[name] = parts[name](value, at)
    return Host(**found)


def _items(value: object, where: str) -> list[tuple[int, object]]:
    if not isinstance(value, list):
        raise refuse(where, "a list", value)
    return list(enumerate(value))


def _checked_target(value: object, where: str) -> HostTarget:
    target = decode(HostTarget, value, where)
    _check(where, "arch", target.arch, BASE_ARCH.pattern, "an arch such as gfx908")
    _check(where, "real_arch", target.real_arch, BASE_ARCH.pattern, "an arch such as gfx908")
    _check(where, "unique_id", target.unique_id, UNIQUE_ID, "16 hex digits")
    for name in ("sramecc", "xnack"):
        _check(where, name, getattr(target, name), r"[+-]", '"+", "-" or null')
    _check(where, "vendor", target.vendor, "|".join(VENDORS), " or ".join(VENDORS))
    _check(where, "kind", target.kind, "gpu", "gpu")
    for name, least in (("num_cu", 1), ("chiplets", 1), ("node", 0), ("render_minor", 0), ("vram", 0)):
        number = getattr(target, name)
        if number is not None and number < least:
            raise refuse(f"{where}.{name}", f"a whole number from {least}", number)
    return target


def _checked_toolchain(value: object, where: str) -> HostToolchain:
    toolchain = decode(HostToolchain, value, where)
    _check(where, "rocm", toolchain.rocm, VERSION, "a version such as 7.2.1")
    _check(where, "migraphx", toolchain.migraphx, VERSION, "a version such as 2.15.0")
    _check(where, "vendor", toolchain.vendor, "|".join(VENDORS), " or ".join(VENDORS))
    return toolchain


def _checked_installation(value: object, where: str) -> Installation:
    installation = decode(Installation, value, where)
    _checked_toolchain(encode(installation.toolchain), f"{where}.toolchain")
    return installation


def _check(where: str, name: str, value: str | None, form: str, expected: str) -> None:
    if value is not None and not re.fullmatch(form, value):
        raise refuse(f"{where}.{name}", expected, value)
