"""Checks whether a program can be loaded: each requirement of the file against the target and the toolchain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mxr import consumers
from mxr.artifact import program_evidence, target
from mxr.host_facts import Hardware, HostToolchain

from .builder import RequestOptions

Description = Mapping[str, Any]

FILE_VERSIONS: Mapping[str, int] = (
    {f"2.{minor}": 5 for minor in range(7)} | {"2.7": 6} | {f"2.{minor}": 7 for minor in range(8, 16)} | {"2.16": 8}
)
"""The only file version that each MIGraphX release reads; unknown for others. Source: MIGraphX, src/program.cpp, by
release tag; the public source that mxr's authors could read ends at 2.16."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: the needed and the found value. `ok` is None if unknown. `why`: an explanation for people."""

    field: str
    needed: Any
    found: Any
    ok: bool | None
    why: str


def check_compatibility(
    description: Description, hardware: Hardware, toolchain: HostToolchain
) -> tuple[Requirement, ...]:
    """Return the requirements of a program, checked against a target and a toolchain."""
    rows = [_compiled(description), _kind(description, hardware)]
    rows += _versions(description, toolchain)
    if hardware.kind == "gpu":
        rows += [
            _vendor(description, hardware),
            *_archs(description, hardware),
            *_override(hardware),
            _counts(hardware),
        ]
    rows += _libraries(description, toolchain)
    return tuple(rows)


def fits(requirements: tuple[Requirement, ...]) -> bool:
    """Return whether no requirement is violated."""
    return all(row.ok is not False for row in requirements)


def to_json(requirements: tuple[Requirement, ...]) -> dict[str, Any]:
    """Return the document of `mxr check --json`."""
    return {"ok": fits(requirements), "requirements": [asdict(row) for row in requirements]}


def _compiled(description: Description) -> Requirement:
    compiled = description.get("compiled")
    return Requirement(
        "compiled", True, compiled, compiled, "a program that was saved before it was compiled cannot run"
    )


def _kind(description: Description, hardware: Hardware) -> Requirement:
    targets = list(description.get("targets") or ())
    needed = "+".join(targets) or None
    ok = None if not targets else all(kind in (hardware.kind, "ref") for kind in targets)
    return Requirement(
        "kind", needed, hardware.kind, ok, "the library of each target must be installed (libmigraphx_*.so)"
    )


def _versions(description: Description, toolchain: HostToolchain) -> list[Requirement]:
    made, here = description.get("migraphx"), toolchain.migraphx
    if description.get("flavour") == "hygon":
        return [
            Requirement("migraphx", made, here, _same_minor(made, here), "Hygon's MIGraphX has its own version numbers")
        ]
    version, reads = description.get("file_version"), FILE_VERSIONS.get(_minor(here) or "")
    same = None if version is None or reads is None else version == reads
    why = "MIGraphX reads exactly one file version"
    if here and reads is None:
        why += f"; that of MIGraphX {_minor(here)} is not known to mxr"
    return [
        Requirement("file_version", version, reads, same, why),
        Requirement("migraphx", made, here, _same_minor(made, here), _changed(description, made, here)),
    ]


def _minor(version: str | None) -> str | None:
    return ".".join(version.split(".")[:2]) if version else None


def _same_minor(made: str | None, here: str | None) -> bool | None:
    return None if not made or not here else _minor(made) == _minor(here)


FIELD_CHANGES: tuple[tuple[int, tuple[str, ...], str], ...] = (
    (9, ("gemm", "convolution"), "gpu::gemm and gpu::convolution lost int8_x4_format in 2.9"),
    (10, ("pooling",), "pooling gained count_include_pad in 2.10"),
    (11, ("loop",), "loop gained scan_output_directions in 2.11"),
    (12, ("code_object",), "gpu::code_object gained output_arg in 2.12"),
    (15, ("group_query_attention",), "group_query_attention was removed in 2.15"),
)
"""Releases 2.N in which operators changed without a new file version. Source: MIGraphX, reflect() by release."""


def _changed(description: Description, made: str | None, here: str | None) -> str:
    """Return what is known to have changed between two releases in the operators of a program."""
    usual = "operators change between releases"
    try:
        first, second = sorted(int((version or "").split(".")[1]) for version in (made, here))
    except (ValueError, IndexError):
        return usual
    present = description.get("operators")
    own = None if not present else {name.rpartition("::")[2] for name in present}
    changes = [
        text
        for minor, names, text in FIELD_CHANGES
        if first < minor <= second and (own is None or not own.isdisjoint(names))
    ]
    if own is not None and not changes:
        return f"{usual}; no change is known in those of this file, and MIGraphX warns when it loads it"
    return "; ".join(changes) or usual


def _vendor(description: Description, hardware: Hardware) -> Requirement:
    flavour = description.get("flavour")
    needed = None if flavour is None else "hygon" if flavour == "hygon" else "amd"
    ok = None if needed is None or hardware.vendor is None else needed == hardware.vendor
    return Requirement(
        "vendor", needed, hardware.vendor, ok, "AMD's MIGraphX cannot load files of Hygon's, and vice versa"
    )


def _archs(description: Description, hardware: Hardware) -> list[Requirement]:
    archs = program_evidence.archs_of(description)
    if not archs:
        return [Requirement("arch", None, hardware.arch, None, "the file contains no code object with an arch")]
    here = {hardware.arch, target.FAMILY_OF.get(hardware.arch or "")}
    needed = "+".join(sorted({arch.base for arch in archs}))
    ok = None if hardware.arch is None else all(arch.base in here for arch in archs)
    rows = [Requirement("arch", needed, hardware.arch, ok, _arch_reason(archs, hardware))]
    for name in target.FEATURES:
        built = program_evidence.strictest({getattr(arch, name) or "any" for arch in archs})
        if built == "any":
            continue
        found = getattr(hardware, name)
        fine = False if built is None else None if found is None else found == built
        needed = built or "+ and -"
        rows.append(Requirement(name, needed, found, fine, f"a kernel built for {name} {needed} needs this setting"))
    return rows


def _arch_reason(archs: Sequence[target.GfxArch], hardware: Hardware) -> str:
    """Why the arch matters, with the variable that makes ROCm's runtime take one arch of RDNA for another."""
    usual, here = "HIP loads a code object on no other arch", hardware.arch or ""
    value = next((OVERRIDES[arch.base] for arch in archs if arch.base in OVERRIDES), None)
    if value is None or {arch.base[:5] for arch in archs} != {here[:5]} or here == archs[0].base:
        return usual
    return (
        f"{usual}. HSA_OVERRIDE_GFX_VERSION={value} makes a {here} count as {archs[0].base}, which AMD does not "
        "support: set it where you serve and where you run mxr"
    )


def _override(hardware: Hardware) -> list[Requirement]:
    """Report an override of the arch on this host: no file shows whether it was compiled under one."""
    if not hardware.real_arch or hardware.real_arch == hardware.arch:
        return []
    why = (
        f"HSA_OVERRIDE_GFX_VERSION makes this {hardware.real_arch} count as {hardware.arch}: a program that was "
        f"compiled on a true {hardware.arch} loads, and can fail when it runs"
    )
    return [Requirement("real_arch", None, hardware.real_arch, None, why)]


OVERRIDES: Mapping[str, str] = {"gfx1030": "10.3.0", "gfx1100": "11.0.0", "gfx1200": "12.0.0", "gfx1201": "12.0.1"}
"""The values of HSA_OVERRIDE_GFX_VERSION for the archs of RDNA that MIGraphX's builds contain, for others of the same
family. Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c; MIGraphX, CMakeLists.txt, GPU_TARGETS of its CI."""


def _counts(hardware: Hardware) -> Requirement:
    """Report that the CU count was not checked: no file contains it, so it cannot prevent loading."""
    why = (
        "a file does not contain the CU count that it was tuned for; `mxr show ID` shows it if its publisher stated it"
    )
    return Requirement("num_cu", None, hardware.num_cu, None, why)


def _libraries(description: Description, toolchain: HostToolchain) -> list[Requirement]:
    names = list(description.get("libraries") or ())
    if not names:
        return []
    why = "solutions of these libraries require the ROCm release that created them, which the file does not contain"
    return [Requirement("libraries", "+".join(names), toolchain.rocm, None, why)]


def check_options(
    description: Description, options: RequestOptions, hardware: Hardware, toolchain: HostToolchain
) -> tuple[Requirement, ...]:
    """Return the other options of a request, checked against what the program was compiled for.

    Raises `UsageError`.
    """
    rows = [*_batch(description, options.batch), *_shapes(description, options.inputs)]
    rows += _precision(description, options.precision, hardware.kind)
    rows += _flags(description, options, hardware.kind)
    if hardware.kind == "gpu" and toolchain.rocm is not None:
        rows.append(_not_in_file("rocm", toolchain.rocm))
    return tuple(rows)


def _inputs_in_file(description: Description) -> dict[str, list[Any]]:
    return {name: [target.dim_to_json(dim) for dim in shape] for name, shape in program_evidence.inputs_of(description)}


def _not_in_file(field: str, found: Any) -> Requirement:
    return Requirement(
        field, None, found, None, "the file does not contain it; `mxr show ID` shows what its publisher stated"
    )


def _batch(description: Description, batch: int | None) -> list[Requirement]:
    shapes = [dims for dims in _inputs_in_file(description).values() if dims]
    if batch is None:
        return []
    fit = [_takes(dims[0], batch) for dims in shapes]
    ok = None if any(fit) != all(fit) or not fit else fit[0]
    needed = [dims[0] for dims in shapes]
    return [Requirement("batch", needed[0] if len(needed) == 1 else needed, batch, ok, "its input shapes are fixed")]


def _shapes(description: Description, inputs: target.Inputs) -> list[Requirement]:
    rows, in_file = description.get("inputs") or {}, _inputs_in_file(description)
    found = []
    for name, shape in inputs:
        asked: list[Any] = [target.dim_to_json(dim) for dim in shape]
        needed = in_file.get(name)
        ok = None
        if needed is not None:
            same = len(needed) == len(asked) and all(map(_takes, needed, asked))
            ok = same or program_evidence.is_scalar(asked, needed)
        why = "its input shapes are fixed" if name in rows else "it has no such input: MIGraphX drops unused inputs"
        found.append(Requirement(f"inputs.{name}", needed, asked, ok, why))
    return found


def _takes(built: Any, asked: Any) -> bool:
    """Return whether a dim of a program, a size or `[min,max,[optimals]]`, accepts the requested one."""
    least, most = built[:2] if isinstance(built, list) else (built, built)
    low, high = asked[:2] if isinstance(asked, list) else (asked, asked)
    return bool(least <= low and high <= most)


def _precision(description: Description, text: str | None, kind: str) -> list[Requirement]:
    if text is None:
        return []
    words, seen = target.parse_precision(text), description.get("precisions") or ()
    shown = "+".join(seen) or None
    if program_evidence.absent_precisions(kind, words, description):
        return [Requirement("precision", shown, text, False, "the requested precision would be visible in the file")]
    ok = True if set(words or ("fp32",)) == {*seen} else None
    return [
        Requirement(
            "precision",
            shown,
            text,
            ok,
            "the file shows the types that it computes in, not the precision that was requested",
        )
    ]


def _flags(description: Description, options: RequestOptions, kind: str) -> list[Requirement]:
    consumer = consumers.find_consumer(options.consumer) if options.consumer else None
    copies, fast = options.offload_copy, options.fast_math
    if consumer is not None:
        copies = consumer.offload_copy if copies is None else copies
        fast = consumer.fast_math if fast is None else fast
    rows = []
    if copies is not None:
        built = description.get("offload_copy") if kind == "gpu" else None
        why = "the caller and the program must agree on who copies the buffers"
        rows.append(Requirement("offload_copy", built, copies, None if built is None else built == copies, why))
    return rows + ([_not_in_file("fast_math", fast)] if fast is not None else [])
