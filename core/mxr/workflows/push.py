"""Publishing a program: what the file tells is taken from it, the rest must be said, contradictions are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from mxr import consumers
from mxr.artifact import model_evidence, program_evidence, target
from mxr.artifact.key import Difference, Key
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.artifact.qualities import Qualities
from mxr.artifact.target import GfxArch, Inputs
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.errors import Mismatch, Usage
from mxr.protocol import artifacts as artifact_protocol
from mxr.request.builder import Options, calibration_sha256
from mxr.request.model import ModelReference
from mxr.util import disk

Watch = Callable[[int], transfer.Progress]


@dataclass(frozen=True, slots=True)
class PublicationLabel:
    """The key and the qualities that a program is published under."""

    key: Key
    qualities: Qualities


def label(options: Options, subject: ModelReference, description: Mapping[str, Any]) -> PublicationLabel:
    """The label of a program: from its file what that tells, from the options the rest.

    Raises `Usage` naming all that neither tells, `Mismatch` listing each field that the file contradicts.
    """
    kind = options.kind or _only(description.get("targets")) or "gpu"
    if description.get("compiled") is False:
        raise Mismatch(
            "This program was saved before it was compiled.",
            hint="Call program.compile(...) before migraphx.save, then push that file.",
            detail={"differences": [Difference("compiled", True, False).to_json()]},
        )
    _refuse_mixed(description)
    arch = _labelled_arch(options, description)
    offload_copy, fast_math = _flags(options, description, kind)
    migraphx = options.migraphx or description.get("migraphx")
    _demand_rest(
        options, description, kind, arch, {"fast_math": fast_math, "offload_copy": offload_copy, "migraphx": migraphx}
    )
    assert migraphx is not None and offload_copy is not None and fast_math is not None
    vendor = options.vendor or ("hygon" if description.get("flavour") == "hygon" else "amd")
    zeros = vendor == "hygon"
    migraphx_short, _ = target.split_version(migraphx, "migraphx", zeros=zeros)
    rocm_short, rocm_patch = target.split_version(options.rocm, "rocm", zeros=zeros) if options.rocm else (None, None)
    gpu = kind == "gpu"
    key = Key(
        model=subject.model,
        kind=kind,
        vendor=vendor if gpu else None,
        arch=arch.base if arch and gpu else None,
        migraphx=migraphx_short,
        rocm=rocm_short if gpu else None,
        inputs=_inputs(options, subject, description),
        precision=target.parse_precision(options.precision) if options.precision else (),
        calibration=calibration_sha256(options.calibration),
        offload_copy=offload_copy,
        fast_math=fast_math,
        env=tuple(options.env.items()),
    )
    qualities = Qualities(
        sramecc=(arch and gpu and arch.sramecc) or "any",
        xnack=(arch and gpu and arch.xnack) or "any",
        num_cu=options.num_cu if gpu else None,
        chiplets=options.chiplets if gpu else None,
        rocm_patch=rocm_patch if gpu else None,
        migraphx_patch=_patch(options, description, migraphx_short, zeros=zeros),
        tuning=options.tuning or "default",
        real_arch=options.real_arch if gpu and arch and options.real_arch != arch.base else None,
        libraries=tuple(description.get("libraries") or ()) if gpu else (),
    )
    refuse_contradictions(key, qualities, description)
    if foreign := model_evidence.contradictions(key, subject.onnx, description):
        raise contradicted(foreign)
    return PublicationLabel(key, qualities)


def refuse_contradictions(key: Key, qualities: Qualities, description: Mapping[str, Any]) -> None:
    """Raises `Mismatch`, each field as asked and as found, when the file says otherwise than its label."""
    differences = program_evidence.contradictions(key, qualities, description)
    if differences:
        raise contradicted(differences)


def contradicted(differences: tuple[Difference, ...]) -> Mismatch:
    """The error for a label that the file contradicts."""
    listed = "; ".join(
        f"{each.field} is said to be {_words(each.asked)}, the file says {_words(each.found)}" for each in differences
    )
    return Mismatch(
        f"The file contradicts its label: {listed}.",
        hint="Correct the options, or push another file; `mxr inspect FILE` shows what it says.",
        detail={"differences": [each.to_json() for each in differences]},
    )


def cut(path: Path, name: str) -> File:
    """The manifest entry of the file at `path`: cut into blobs, each hashed, and the whole in the same pass."""
    from mxr.program import FileSource, cut_points

    with disk.faults(path, "read"):
        with FileSource(path) as source:
            points = cut_points(source)
        whole, blobs = sha256(), []
        with path.open("rb") as file:
            for start, end in pairwise(points):
                part = sha256()
                for at in range(start, end, 1 << 20):
                    block = file.read(min(1 << 20, end - at))
                    part.update(block)
                    whole.update(block)
                blobs.append(Blob(part.hexdigest(), end - start))
            if file.read(1):
                raise Usage(f"{path} grew while it was read.", hint="Wait until it is written, then push it.")
    return File(name, points[-1], whole.hexdigest(), tuple(blobs))


def push(
    path: Path,
    subject: ModelReference,
    found: PublicationLabel,
    client: Client,
    provenance: Mapping[str, Any],
    watch: Watch,
) -> artifact_protocol.Artifact:
    """Publishes the program at `path` under its label: asks what is missing, sends that, publishes the manifest.

    Interrupted, it is simply run again. Raises `Mismatch` or `Conflict` as the registry says, `Unreachable`.
    """
    file = cut(path, "model.mxr")
    stated = artifact_protocol.Publish(
        key=found.key,
        manifest=Manifest((file,)),
        qualities=found.qualities,
        provenance={"file": path.name, **provenance},
        model=subject.statement(),
    )
    return transfer.settle(
        lambda: transfer.upload(client, path, file, watch(file.size)), lambda: client.publish(stated)
    )


def _only(targets: Any) -> str | None:
    """The target kind of a file; a program for several goes to the check, which refuses it."""
    return targets[0] if targets and targets[0] in target.KINDS else None


def _arch_of(description: Mapping[str, Any]) -> GfxArch | None:
    """The one arch of the file's code objects, with the strictest features; None where they do not agree on one."""
    archs = program_evidence.archs_of(description)
    if len({arch.base for arch in archs}) != 1:
        return None
    signs = [program_evidence.strictest({getattr(arch, name) or "any" for arch in archs}) for name in target.FEATURES]
    return GfxArch(archs[0].base, *(None if sign == "any" else sign for sign in signs))


def _refuse_mixed(description: Mapping[str, Any]) -> None:
    bases = sorted({arch.base for arch in program_evidence.archs_of(description)})
    if len(bases) > 1:
        raise Mismatch(
            f"This program has code for several archs ({', '.join(bases)}), and runs whole on none.",
            hint="Compile it again on one GPU, and push that file.",
            detail={"differences": [Difference("arch", None, "+".join(bases)).to_json()]},
        )


def _labelled_arch(options: Options, description: Mapping[str, Any]) -> GfxArch | None:
    """The arch as said, else as the file tells. What was built for any setting of a feature stays so."""
    told = _arch_of(description)
    if options.arch is None:
        return told
    said = GfxArch.parse(options.arch)
    if told is None or told.base != said.base:
        return said
    return GfxArch(
        said.base,
        *(getattr(told, name) and (getattr(said, name) or getattr(told, name)) for name in target.FEATURES),
    )


def _flags(options: Options, description: Mapping[str, Any], kind: str) -> tuple[bool | None, bool | None]:
    consumer = consumers.find(options.consumer) if options.consumer else None
    told = description.get("offload_copy") if kind == "gpu" else None
    offload_copy = consumer.offload_copy if consumer else told
    fast_math = consumer.fast_math if consumer else None
    return (
        offload_copy if options.offload_copy is None else options.offload_copy,
        fast_math if options.fast_math is None else options.fast_math,
    )


def _demand_rest(
    options: Options, description: Mapping[str, Any], kind: str, arch: GfxArch | None, flags: Mapping[str, Any]
) -> None:
    """Raises `Usage` naming at once everything that neither the file nor the options tell."""
    needs = []
    if kind == "gpu":
        needs += _demand_hardware(description, arch)
        if options.rocm is None:
            needs.append(("the ROCm version", "--rocm 7.2"))
    if flags["migraphx"] is None:
        needs.append(("the MIGraphX version", "--migraphx 2.15"))
    if flags["offload_copy"] is None or flags["fast_math"] is None:
        names = [name for name in ("offload_copy", "fast_math") if flags[name] is None]
        spelt = " and ".join(f"--{name}/--no-{name}" for name in names).replace("_", "-")
        needs.append((" and ".join(names), f"--for CONSUMER, or {spelt}"))
    seen = [word for word in description.get("precisions") or () if word != "fp32"]
    if options.precision is None and seen:
        words = "+".join(seen)
        needs.append(
            (f"the precision (it computes in {words})", f"--precision {words}, or fp32 if the model itself does")
        )
    if needs:
        raise Usage(
            "The file does not tell " + ", ".join(what for what, _ in needs) + ".",
            hint="Say it: " + "; ".join(how for _, how in needs) + ".",
            detail={"missing": [what for what, _ in needs]},
        )


def _demand_hardware(description: Mapping[str, Any], arch: GfxArch | None) -> list[tuple[str, str]]:
    if arch is None:
        return [("the GPU arch", "--arch gfx908:sramecc+:xnack-")]
    if program_evidence.archs_of(description):
        return []
    silent = [name for name in target.FEATURES if target.capable(arch.base, name) and getattr(arch, name) is None]
    return (
        [(" and ".join(silent), f"--arch {arch.base}" + "".join(f":{name}+" for name in silent) + " (or -)")]
        if silent
        else []
    )


def _inputs(options: Options, subject: ModelReference, description: Mapping[str, Any]) -> Inputs:
    """The inputs as said, else as the file's parameters have them.

    Raises `Mismatch` for another model's program, `Usage` where the file leaves a dim of the model open.
    """
    if options.batch is not None or options.inputs:
        return subject.bind(options.batch, options.inputs)
    rows = description.get("inputs") or {}
    scalars = {each.name for each in subject.onnx.inputs if each.dims == ()}
    found = program_evidence.inputs_of(description)
    told = tuple((name, () if name in scalars and shape == (1,) else shape) for name, shape in found)
    problem = _misfit(subject, rows, told)
    if problem is None:
        return subject.bind(None, told)
    raise Mismatch(
        f"This program does not fit the model: {problem}.",
        hint="Push it with the model that it was compiled from; `mxr inspect FILE` shows its inputs.",
        detail={
            "differences": [
                {"field": "inputs", "asked": [str(each) for each in subject.onnx.inputs], "found": sorted(rows)}
            ]
        },
    )


def _misfit(subject: ModelReference, rows: Mapping[str, Any], told: Inputs) -> str | None:
    """Why the file's inputs cannot be those of the model; None when they can, told or not."""
    foreign = [name for name in rows if name not in {each.name for each in subject.onnx.inputs}]
    if foreign:
        return f"it has an input {foreign[0]}, and the model has none of this name"
    names = {name for name, _ in told}
    inputs = tuple(each for each in subject.onnx.inputs if each.name in names)
    try:
        replace(subject, onnx=replace(subject.onnx, inputs=inputs)).bind(None, told)
    except Usage as misfit:
        return misfit.message.rstrip(".")
    return None


def _patch(options: Options, description: Mapping[str, Any], short: str, *, zeros: bool) -> str | None:
    for version in (options.migraphx, description.get("migraphx")):
        if version:
            found, patch = target.split_version(version, "migraphx", zeros=zeros)
            if patch and found == short:
                return patch
    return None


def _words(value: object) -> str:
    from mxr.artifact.key import show

    return show(value)
