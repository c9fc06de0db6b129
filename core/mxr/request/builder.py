"""Builds a request from options and host facts, with notes about where each fact comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from mxr import consumers
from mxr.artifact import target
from mxr.artifact.attributes import COUNTS, HARDWARE, Constraints, Request
from mxr.artifact.compile_settings import VARIABLES, unread
from mxr.artifact.partial import PartialRequest
from mxr.artifact.target import GfxArch, Inputs, pair_warnings, refuse_rocm_number
from mxr.consumers import Consumer
from mxr.consumers.python import PYTHON
from mxr.errors import UsageError
from mxr.facts import FACTS, FLAG, all_stated, stated
from mxr.host_facts import Hardware, Host, HostTarget, HostToolchain, describe
from mxr.util.frozen import dataclass

from .model import ModelReference


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of a request, as on the command line. None means not given.

    Raises `UsageError` for a number of ROCm as the version of MIGraphX. `follow_links`: follow external data that is a
    symbolic link, wherever it leads.
    """

    arch: str | None = None
    vendor: str | None = None
    kind: str | None = None
    num_cu: int | None = None
    chiplets: int | None = None
    real_arch: str | None = None
    rocm: str | None = None
    migraphx: str | None = None
    batch: int | None = None
    inputs: Inputs = ()
    precision: str | None = None
    calibration: Path | None = None
    offload_copy: bool | None = None
    fast_math: bool | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    tuning: str | None = None
    consumer: str | None = None
    exact: bool = False
    allow: tuple[str, ...] = ()
    follow_links: bool = False

    def __post_init__(self) -> None:
        if self.migraphx is not None and self.vendor != "hygon":
            refuse_rocm_number(self.migraphx)


class OptionArguments(TypedDict, total=False):
    """The fields of `RequestOptions` except `inputs`, as keyword arguments of `mxr.fetch` and its like."""

    arch: str | None
    vendor: str | None
    kind: str | None
    num_cu: int | None
    chiplets: int | None
    real_arch: str | None
    rocm: str | None
    migraphx: str | None
    batch: int | None
    precision: str | None
    calibration: str | PathLike[str] | None
    offload_copy: bool | None
    fast_math: bool | None
    env: Mapping[str, str]
    options: Mapping[str, str]
    tuning: str | None
    consumer: str | None
    exact: bool
    allow: Sequence[str]
    follow_links: bool


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What is known of a request.

    `known`: the facts. `named`: the consumer, if somebody named one. `notes`: where the facts come from. `options`:
    what options and defaults state. `assumed`: the facts that were taken from the only program that fits, by name;
    `stating`: the words of a command that state them.
    `found`: the `LookupResult` for it, where the cache completed it because the registry could not be asked.
    """

    known: PartialRequest
    model: ModelReference
    named: Consumer | None = None
    notes: tuple[str, ...] = ()
    options: RequestOptions = RequestOptions()
    assumed: Mapping[str, Any] = field(default_factory=dict)
    stating: tuple[tuple[str, ...], ...] = ()
    found: Any = None

    @classmethod
    def of(cls, request: Request, model: ModelReference, consumer: Consumer) -> PreparedRequest:
        """Return a request that leaves nothing open, for a consumer."""
        return cls(PartialRequest.of(request), model, consumer)

    @cached_property
    def request(self) -> Request:
        """The request with its key. Raises `UsageError` if a fact is open."""
        return self.known.determined

    @property
    def consumer(self) -> Consumer:
        """The consumer, or the default one."""
        return self.named or consumers.DEFAULT

    def with_form(self, form: str) -> PreparedRequest:
        """Return the same request for artifacts of another form."""
        return replace(self, known=replace(self.known, form=form))


FLAGS = tuple(fact.name for fact in FACTS if fact.kind == FLAG)

Toolchains = Callable[[str, str | None], list[str]]
"""Returns the toolchains for which the registry has programs of a model and an arch, for an error message."""


def build_request(
    options: RequestOptions,
    model: ModelReference,
    host: Host,
    toolchains: Toolchains | None = None,
    sha256_of: Callable[[Path | None], str | None] | None = None,
) -> PreparedRequest:
    """Build the request. Raises `UsageError` for contradictory facts, and for all missing ones at once, with the
    options.

    `sha256_of` hashes calibration data; a caller that builds many requests can pass a function with a cache.
    """
    return settle(gather(options, model, host, sha256_of), host, toolchains)


def settle(built: PreparedRequest, host: Host, toolchains: Toolchains | None = None) -> PreparedRequest:
    """Return a gathered request with the flags of its consumer and all dims. Raises as `build_request` does."""
    missing = _missing(built, host, toolchains)
    if missing is not None:
        raise missing
    flags, notes = choose_flags(built.options, built.consumer), built.notes
    if built.named is None and None in (getattr(built.options, name) for name in flags):
        how = ", ".join(f"{name} {'on' if flag else 'off'}" for name, flag in flags.items())
        notes += (f"no {stated('consumer')} given, using {built.consumer.name} ({how})",)
    inputs = built.model.bind(built.options.batch, built.options.inputs)
    return replace(built, known=replace(built.known, inputs=inputs, **flags), notes=notes)


def gather(
    options: RequestOptions,
    model: ModelReference,
    host: Host,
    sha256_of: Callable[[Path | None], str | None] | None = None,
) -> PreparedRequest:
    """Gather what options and host tell of a request, and leaves the rest open.

    Raises `UsageError` for contradictions.
    """
    notes: list[str] = []
    found, toolchain = _find_hardware(options, host, notes)
    hardware = found or _stated_hardware(options)
    consumer = consumers.find_consumer(options.consumer) if options.consumer else None
    toolchain = choose_toolchain(options, toolchain)
    zeros = hardware.vendor == "hygon"
    migraphx, migraphx_patch = _split(toolchain.migraphx, "migraphx", zeros=zeros)
    rocm, rocm_patch = _split(toolchain.rocm if hardware.kind != "ref" else None, "rocm", zeros=zeros)
    # Who allows another release of ROCm does not mean the patch that this host happens to have.
    loose = options.rocm is None and "rocm" in options.allow
    constraints = replace(
        _constraints(options, hardware),
        rocm_patch=None if loose else rocm_patch,
        migraphx_patch=migraphx_patch,
        build=toolchain.migraphx_build,
    )
    where: dict[str, Any] = {name: getattr(hardware, name) or None for name in ("kind", "vendor", "arch")}
    partial = PartialRequest(
        model=model.identity,
        inputs=model.bind_known(options.batch, options.inputs),
        **where,
        migraphx=migraphx,
        rocm=rocm,
        **_stated_flags(options, consumer),
        constraints=constraints,
        **fixed_facts(options, sha256_of),
    )
    notes += [
        f"{symbol} has several sizes: the dims of each input are taken by its name"
        for symbol in model.differing_symbols(options.inputs)
    ]
    return PreparedRequest(partial, model, consumer, (*notes, *_doubts(options, partial)), options)


def _doubts(options: RequestOptions, partial: PartialRequest) -> Iterator[str]:
    """Yield what is odd about the toolchain: versions that do not go together, and variables that it does not read."""
    if partial.vendor == "amd" and (options.rocm or options.migraphx):
        yield from pair_warnings(partial.migraphx, partial.rocm)
    if partial.migraphx is not None:
        yield from filter(None, (unread(name, VARIABLES[name], partial.migraphx) for name, _ in partial.env))


def _stated_hardware(options: RequestOptions) -> Hardware:
    """Return what options alone tell of a target whose arch is unknown."""
    stated = {name: getattr(options, name) for name in (*COUNTS, "real_arch")}
    return Hardware(kind=options.kind or "", vendor=options.vendor, **stated)


def _constraints(options: RequestOptions, hardware: Hardware) -> Constraints:
    """Return the constraints of options and hardware, without those of the toolchain."""
    target_facts: dict[str, Any] = {name: getattr(hardware, name) for name in (*HARDWARE, "real_arch")}
    return Constraints(**target_facts, tuning=options.tuning, exact=options.exact, allow=options.allow)


def _stated_flags(options: RequestOptions, consumer: Consumer | None) -> dict[str, Any]:
    """Return offload_copy and fast_math; both are open if neither a flag nor a consumer is given."""
    if consumer is None and all(getattr(options, name) is None for name in FLAGS):
        return {}
    return choose_flags(options, consumer or consumers.DEFAULT)


def _split(version: str | None, name: str, *, zeros: bool) -> tuple[str | None, str | None]:
    return target.split_version(version, name, zeros=zeros) if version else (None, None)


def choose_toolchain(options: RequestOptions, toolchain: HostToolchain) -> HostToolchain:
    """Return the toolchain in the options, else that of the host. The host's build applies to its MIGraphX only."""
    return HostToolchain(
        rocm=options.rocm or toolchain.rocm,
        migraphx=options.migraphx or toolchain.migraphx,
        migraphx_build=toolchain.migraphx_build if options.migraphx is None else None,
        vendor=toolchain.vendor,
    )


def known_toolchain(options: RequestOptions, host: Host) -> tuple[str | None, str | None, HostToolchain]:
    """Return kind and vendor of the requested target, and the versions that options and host tell.

    Kind and vendor are None where the arch is unknown. Raises `UsageError` for contradictions.
    """
    hardware, toolchain = _find_hardware(options, host, [])
    if hardware is None:
        return None, None, choose_toolchain(options, toolchain)
    return hardware.kind, hardware.vendor, choose_toolchain(options, toolchain)


def choose_flags(options: RequestOptions, consumer: Consumer) -> dict[str, Any]:
    """Return offload_copy and fast_math: the values in the options, else those that the consumer needs."""
    stated = {name: getattr(options, name) for name in FLAGS}
    return {name: getattr(consumer, name) if value is None else value for name, value in stated.items()}


def fixed_facts(
    options: RequestOptions, sha256_of: Callable[[Path | None], str | None] | None = None
) -> dict[str, Any]:
    """Return the facts of a key that only options can state. `sha256_of` hashes calibration data."""
    return {
        "precision": target.parse_precision(options.precision) if options.precision else (),
        "calibration": (sha256_of or calibration_sha256)(options.calibration),
        **{name: tuple(getattr(options, name).items()) for name in ("env", "options")},
    }


def calibration_sha256(path: Path | None) -> str | None:
    """Return the sha256 of calibration data; None without any."""
    if path is None:
        return None
    from .calibration import sha256

    return sha256(path)


def choose_hardware(options: RequestOptions, host: Host, notes: list[str]) -> tuple[Hardware, HostToolchain]:
    """Return the requested target and the toolchain, both completed with host facts where they are those of the host.

    If vendor, kind or arch differ from the host, no other fact comes from the host. The reference target runs on every
    host. Raises `UsageError`.
    """
    hardware, toolchain = _find_hardware(options, host, notes)
    if hardware is None:
        raise _no_arch(host)
    return hardware, toolchain


def _no_arch(host: Host) -> UsageError:
    return UsageError(
        "This host shows no GPU, and no arch is given.",
        hint=f"Add {stated('arch', 'gfx908')} (and {stated('rocm')}, {stated('migraphx')}) or "
        f"{stated('host_file', 'FILE')}. `mxr host` shows what was detected.",
        context={"notes": list(host.notes)},
    )


def _find_hardware(options: RequestOptions, host: Host, notes: list[str]) -> tuple[Hardware | None, HostToolchain]:
    """Return the target and the toolchain. The target is None if neither the options nor the host tell its arch."""
    arch = GfxArch.parse(options.arch) if options.arch else None
    if options.kind not in (None, *target.KINDS):
        raise UsageError(f"Unknown kind {options.kind!r}.", hint="Use gpu or ref.")
    if options.kind == "ref":
        migraphx = installed_toolchain(options, host).migraphx
        if options.migraphx is None and migraphx is not None:
            notes.append(f"MIGraphX {migraphx} is that of this host")
        return Hardware(kind="ref"), HostToolchain(migraphx=migraphx)
    own = _own_target(options, arch, host)
    if own is None:
        toolchain = _recorded_toolchain(options, host)
        if arch is None:
            return None, toolchain
        return _hardware(options, arch, None, toolchain.vendor), toolchain
    toolchain = installed_toolchain(options, host)
    toolchain_found = f"{target.userland(own.vendor)} {toolchain.rocm or '?'}"
    notes.append(f"facts of this host: {own.arch}, {own.num_cu or '?'} CUs, {toolchain_found}")
    if own.real_arch and options.real_arch is None:
        notes.append(
            f"this GPU is a {own.real_arch} with an override to {own.arch}: programs compiled on a true {own.arch} need"
            f" {stated('allow', 'spoof')}"
        )
    return _hardware(options, arch, own), toolchain


def installed_toolchain(options: RequestOptions, host: Host) -> HostToolchain:
    """Return the toolchain of the installation that will load the program.

    For `python`, that of the Python environment comes first. Raises `UsageError` where several differ, and neither
    MIGRAPHX_PATH nor the options choose one.
    """
    rows = host.installations
    if options.consumer == PYTHON.name:
        rows = tuple(row for row in rows if row.python) or rows
    rows = tuple(row for row in rows if row.named) or rows
    if len(rows) == 1:
        return rows[0].toolchain
    if len({row.toolchain.migraphx for row in rows}) <= 1:
        return host.toolchain
    fitting = [row for row in rows if _fits(options, row.toolchain)]
    if not fitting:
        # The facts of one installation say nothing about a version that is not installed.
        return HostToolchain(vendor=host.toolchain.vendor)
    if len({(each.toolchain.migraphx, each.toolchain.rocm) for each in fitting}) == 1:
        return fitting[0].toolchain
    if options.migraphx is not None and (options.rocm is not None or options.kind == "ref"):
        return host.toolchain
    raise UsageError(
        f"{describe(rows)} Which of them will load the program is not known.",
        hint=f"State {stated('migraphx')} and {stated('rocm')}, or name the folder in MIGRAPHX_PATH; "
        f"{stated('consumer', 'python')} means the Python environment.",
        context={"installations": [str(row) for row in rows]},
    )


def _fits(options: RequestOptions, toolchain: HostToolchain) -> bool:
    """Whether an installation has the versions that the options state."""
    pairs = ((options.migraphx, toolchain.migraphx), (options.rocm, toolchain.rocm))
    return all(asked is None or f"{found}.".startswith(f"{asked}.") for asked, found in pairs)


def _recorded_toolchain(options: RequestOptions, host: Host) -> HostToolchain:
    """Return the toolchain of recorded host facts without GPUs, which were recorded for this use; else an empty one.

    The toolchain of a host with other GPUs does not apply.
    """
    recorded = any(how.startswith("recorded") for how in host.found_by.values())
    fits = options.vendor in (None, host.toolchain.vendor)
    return installed_toolchain(options, host) if recorded and fits and not host.targets else HostToolchain()


def _own_target(options: RequestOptions, arch: GfxArch | None, host: Host) -> HostTarget | None:
    fits = [
        choice
        for choice in host.choices()
        if (arch is None or choice.arch == arch.base) and options.vendor in (None, choice.vendor)
    ]
    for source, name in ((options, "num_cu"), (options, "chiplets"), (arch, "sramecc"), (arch, "xnack")):
        wanted = getattr(source, name, None)
        if wanted is not None and len(fits) > 1:
            fits = [each for each in fits if getattr(each, name) == wanted] or fits
    if len(fits) > 1:
        shown = ", ".join(f"{GfxArch(each.arch, each.sramecc, each.xnack)} with {_counted(each)}" for each in fits)
        raise UsageError(
            f"This host has different GPUs: {shown}.",
            hint=f"Choose one with {stated('arch')}, {stated('num_cu')} and {stated('chiplets')}.",
        )
    return fits[0] if fits else None


def _counted(gpu: HostTarget) -> str:
    chiplets = f" on {gpu.chiplets} chiplets" if (gpu.chiplets or 1) > 1 else ""
    return f"{gpu.num_cu or '?'} CUs{chiplets}"


def _hardware(options: RequestOptions, arch: GfxArch | None, own: HostTarget | None, vendor: str = "amd") -> Hardware:
    stated: dict[str, Any] = {name: arch and getattr(arch, name) for name in target.FEATURES}
    stated |= {name: getattr(options, name) for name in (*COUNTS, "real_arch")}
    found: dict[str, Any] = {
        name: getattr(own, name, None) if value is None else value for name, value in stated.items()
    }
    base = arch.base if arch else own.arch if own else None
    return Hardware(base, vendor=options.vendor or (own.vendor if own else vendor), **found)


def _missing(built: PreparedRequest, host: Host, toolchains: Toolchains | None) -> UsageError | None:
    """Return one error that names all that a request lacks, None if it is complete."""
    partial = built.known
    problems, words, flags = [], [], []
    if partial.arch is None and partial.kind != "ref":
        problems.append(_no_arch(host))
        words.append("the arch (this host shows no GPU)")
        flags.append(("arch", "gfx908"))
    versions = [name for name in ("rocm", "migraphx") if name in partial.open_facts]
    if versions:
        problems.append(_no_toolchain(partial, versions, toolchains))
        words.append(f"the version of {_version_names(partial, versions)}")
        flags += [(name, _examples(partial)[name]) for name in versions]
    try:
        built.model.bind(built.options.batch, built.options.inputs)
    except UsageError as unbound:
        problems.append(unbound)
        words.append("all dims of the inputs")
    if len(problems) < 2:
        return problems[0] if problems else None
    context: dict[str, Any] = {"open": list(partial.open_facts)}
    for problem in problems:
        context |= problem.context
    hint = f"Add {all_stated(flags)}, or {stated('host_file', 'FILE')}; `mxr host` shows what was detected."
    known = context.get("toolchains")
    hint += f" The registry has this model for: {'; '.join(known)}." if known else ""
    if "inputs" in context:
        hint += f" {problems[-1].hint}"
    return UsageError(f"The request does not tell {', '.join(words[:-1])} and {words[-1]}.", hint=hint, context=context)


VERSION_NAMES = {"rocm": "ROCm", "migraphx": "MIGraphX"}


def _version_names(partial: PartialRequest, versions: Sequence[str]) -> str:
    names = {**VERSION_NAMES, "rocm": target.userland(partial.vendor)}
    return " and ".join(names[name] for name in versions)


def _examples(partial: PartialRequest) -> dict[str, str]:
    """Versions that belong together, with those that are given."""
    if partial.vendor == "hygon":
        return {"rocm": "25.04", "migraphx": "4.0"}
    rocm = partial.rocm or target.ROCM_OF.get(partial.migraphx or "", "7.2")
    shipped = next((version for version, of in target.ROCM_OF.items() if of == rocm), "VERSION")
    return {"rocm": rocm, "migraphx": partial.migraphx or shipped}


def _no_toolchain(partial: PartialRequest, versions: Sequence[str], toolchains: Toolchains | None) -> UsageError:
    known = toolchains(partial.model, partial.arch) if toolchains else []
    unknown, examples = _version_names(partial, versions), _examples(partial)
    have = f"The registry has this model for: {'; '.join(known)}." if known else "`mxr host` shows where mxr looked."
    return UsageError(
        f"The version of {unknown} is not given, not recorded and was not found on this host.",
        hint=f"Add {stated('rocm')} and {stated('migraphx')}, for example {all_stated(examples.items())}, or "
        f"{stated('host_file', 'FILE')}. {have}",
        context={"toolchains": known},
    )
