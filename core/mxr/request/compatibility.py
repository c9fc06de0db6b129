"""Will this program load here? Each requirement as needed by the file and as found on the host or in the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mxr import consumers
from mxr.artifact import program_evidence, target
from mxr.host_facts import HostToolchain

from .builder import Hardware, Options

Description = Mapping[str, Any]

FILE_VERSIONS: Mapping[str, int] = (
    {f"2.{minor}": 5 for minor in range(7)} | {"2.7": 6} | {f"2.{minor}": 7 for minor in range(8, 16)} | {"2.16": 8}
)
"""The file version that each MIGraphX reads; it must be equal. Source: MIGraphX, src/program.cpp, by release tag."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement. `ok` is None where it cannot be told, `why` a sentence for the person."""

    field: str
    needed: Any
    found: Any
    ok: bool | None
    why: str


def check(description: Description, hardware: Hardware, toolchain: HostToolchain) -> tuple[Requirement, ...]:
    """Each requirement of a program against a target and a toolchain; what is not known there cannot be told."""
    rows = [_compiled(description), _kind(description, hardware)]
    rows += _versions(description, toolchain)
    if hardware.kind == "gpu":
        rows += [_vendor(description, hardware), *_archs(description, hardware), _counts(hardware)]
    rows += _libraries(description, toolchain)
    return tuple(rows)


def fits(requirements: tuple[Requirement, ...]) -> bool:
    """Whether nothing stands against loading the program."""
    return all(row.ok is not False for row in requirements)


def to_json(requirements: tuple[Requirement, ...]) -> dict[str, Any]:
    """The document of `mxr check --json`."""
    return {"ok": fits(requirements), "requirements": [asdict(row) for row in requirements]}


def _compiled(description: Description) -> Requirement:
    compiled = description.get("compiled")
    return Requirement("compiled", True, compiled, compiled, "a program saved before compiling runs on no GPU")


def _kind(description: Description, hardware: Hardware) -> Requirement:
    targets = list(description.get("targets") or ())
    needed = "+".join(targets) or None
    ok = None if not targets else all(kind in (hardware.kind, "ref") for kind in targets)
    return Requirement("kind", needed, hardware.kind, ok, "the library of each target must be there (libmigraphx_*.so)")


def _versions(description: Description, toolchain: HostToolchain) -> list[Requirement]:
    made, here = description.get("migraphx"), toolchain.migraphx
    if description.get("flavour") == "hygon":
        return [Requirement("migraphx", made, here, _same_minor(made, here), "Hygon's MIGraphX numbers its own way")]
    version, reads = description.get("file_version"), FILE_VERSIONS.get(_minor(here) or "")
    same = None if version is None or reads is None else version == reads
    return [
        Requirement("file_version", version, reads, same, "MIGraphX refuses any other file version"),
        Requirement(
            "migraphx", made, here, _same_minor(made, here), _changed(made, here) or "operators change between releases"
        ),
    ]


def _minor(version: str | None) -> str | None:
    return ".".join(version.split(".")[:2]) if version else None


def _same_minor(made: str | None, here: str | None) -> bool | None:
    return None if not made or not here else _minor(made) == _minor(here)


FIELD_CHANGES: tuple[tuple[int, str], ...] = (
    (9, "gpu::gemm and gpu::convolution lost int8_x4_format in 2.9"),
    (10, "pooling gained count_include_pad in 2.10"),
    (11, "loop gained scan_output_directions in 2.11"),
    (12, "gpu::code_object gained output_arg in 2.12"),
    (15, "group_query_attention went in 2.15"),
)
"""Releases 2.N at which a field changed under one file version. Source: MIGraphX, reflect() of operators by release."""


def _changed(made: str | None, here: str | None) -> str | None:
    """Which known change lies between two releases."""
    try:
        first, second = sorted(int((version or "").split(".")[1]) for version in (made, here))
    except (ValueError, IndexError):
        return None
    changes = [text for minor, text in FIELD_CHANGES if first < minor <= second]
    return "; ".join(changes) or None


def _vendor(description: Description, hardware: Hardware) -> Requirement:
    flavour = description.get("flavour")
    needed = None if flavour is None else "hygon" if flavour == "hygon" else "amd"
    ok = None if needed is None else needed == hardware.vendor
    return Requirement("vendor", needed, hardware.vendor, ok, "Hygon's files and AMD's do not load on one another")


def _archs(description: Description, hardware: Hardware) -> list[Requirement]:
    archs = program_evidence.archs_of(description)
    if not archs:
        return [Requirement("arch", None, hardware.arch, None, "the file has no code object that tells its arch")]
    here = {hardware.arch, target.FAMILY_OF.get(hardware.arch or "")}
    needed = "+".join(sorted({arch.base for arch in archs}))
    ok = None if hardware.arch is None else all(arch.base in here for arch in archs)
    rows = [Requirement("arch", needed, hardware.arch, ok, "HIP loads a code object on the arch it was built for only")]
    for name in target.FEATURES:
        built = program_evidence.strictest({getattr(arch, name) or "any" for arch in archs})
        if built == "any":
            continue
        found = getattr(hardware, name)
        fine = False if built is None else None if found is None else found == built
        needed = built or "+ and -"
        rows.append(Requirement(name, needed, found, fine, f"a kernel built for {name} {needed} needs it so"))
    return rows


def _counts(hardware: Hardware) -> Requirement:
    """No file tells it, so it cannot stand against loading; but a person should know that it was not checked."""
    why = "no file tells for how many CUs it was tuned; `mxr show ID` does, where that was stated"
    return Requirement("num_cu", None, hardware.num_cu, None, why)


def _libraries(description: Description, toolchain: HostToolchain) -> list[Requirement]:
    names = list(description.get("libraries") or ())
    if not names:
        return []
    why = "solutions of these libraries are tied to the ROCm that made them, which the file does not tell"
    return [Requirement("libraries", "+".join(names), toolchain.rocm, None, why)]


def said(
    description: Description, options: Options, hardware: Hardware, toolchain: HostToolchain
) -> tuple[Requirement, ...]:
    """What a request says beside target and toolchain against what the program was compiled for. Raises `Usage`."""
    rows = [*_batch(description, options.batch), *_shapes(description, options.inputs)]
    rows += _precision(description, options.precision, hardware.kind)
    rows += _flags(description, options, hardware.kind)
    if hardware.kind == "gpu" and toolchain.rocm is not None:
        rows.append(_untold("rocm", toolchain.rocm))
    return tuple(rows)


def _told(description: Description) -> dict[str, list[Any]]:
    return {name: [target.dim_to_json(dim) for dim in shape] for name, shape in program_evidence.inputs_of(description)}


def _untold(field: str, found: Any) -> Requirement:
    return Requirement(field, None, found, None, "the file does not tell it; `mxr show ID` has what its publisher said")


def _batch(description: Description, batch: int | None) -> list[Requirement]:
    shapes = [dims for dims in _told(description).values() if dims]
    if batch is None:
        return []
    fit = [_takes(dims[0], batch) for dims in shapes]
    ok = None if any(fit) != all(fit) or not fit else fit[0]
    needed = [dims[0] for dims in shapes]
    return [Requirement("batch", needed[0] if len(needed) == 1 else needed, batch, ok, "its input shapes are fixed")]


def _shapes(description: Description, inputs: target.Inputs) -> list[Requirement]:
    rows, told = description.get("inputs") or {}, _told(description)
    found = []
    for name, shape in inputs:
        asked: list[Any] = [target.dim_to_json(dim) for dim in shape]
        needed = told.get(name)
        ok = None
        if needed is not None:
            same = len(needed) == len(asked) and all(map(_takes, needed, asked))
            ok = same or program_evidence.is_scalar(asked, needed)
        why = "its input shapes are fixed" if name in rows else "it has no such input: an unused one is dropped"
        found.append(Requirement(f"inputs.{name}", needed, asked, ok, why))
    return found


def _takes(built: Any, asked: Any) -> bool:
    """Whether a dim that a program was built for, fixed or `[min,max,[optimals]]`, takes this one."""
    least, most = built[:2] if isinstance(built, list) else (built, built)
    low, high = asked[:2] if isinstance(asked, list) else (asked, asked)
    return bool(least <= low and high <= most)


def _precision(description: Description, text: str | None, kind: str) -> list[Requirement]:
    if text is None:
        return []
    words, seen = target.parse_precision(text), description.get("precisions") or ()
    shown = "+".join(seen) or None
    if program_evidence.absent_precisions(kind, words, description):
        return [Requirement("precision", shown, text, False, "a precision that was asked for would show")]
    ok = True if set(words or ("fp32",)) == {*seen} else None
    return [Requirement("precision", shown, text, ok, "the file shows what it computes in, not what was asked for")]


def _flags(description: Description, options: Options, kind: str) -> list[Requirement]:
    consumer = consumers.find(options.consumer) if options.consumer else None
    copies, fast = options.offload_copy, options.fast_math
    if consumer is not None:
        copies = consumer.offload_copy if copies is None else copies
        fast = consumer.fast_math if fast is None else fast
    rows = []
    if copies is not None:
        built = description.get("offload_copy") if kind == "gpu" else None
        why = "the caller and the program must agree on who copies the buffers"
        rows.append(Requirement("offload_copy", built, copies, None if built is None else built == copies, why))
    return rows + ([_untold("fast_math", fast)] if fast is not None else [])
