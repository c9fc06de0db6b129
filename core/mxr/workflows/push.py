"""Publish a program: its label comes from the file where possible, otherwise from the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxr import consumers
from mxr.artifact import compile_support, model_evidence, program_evidence, target
from mxr.artifact.attributes import COUNTS, Attributes
from mxr.artifact.key import Difference, Key, value_text
from mxr.artifact.manifest import File, Manifest, split_file
from mxr.artifact.target import GfxArch, Inputs
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.errors import MismatchError, UsageError
from mxr.facts import stated
from mxr.onnxfile import OnnxModel, read_model
from mxr.onnxfile.weights import weight_digests
from mxr.protocol import artifacts as artifact_protocol
from mxr.request import calibration
from mxr.request.builder import FLAGS, RequestOptions, choose_flags, fixed_facts
from mxr.request.model import ModelReference
from mxr.util import disk

LEAST_WEIGHT = 64 << 10
"""Bytes from which a weight is a blob of its own, see `mxr.program.cuts`."""

LEAST_WEIGHTS = 2
"""Weights that are compared at least."""


@dataclass(frozen=True, slots=True)
class PublicationLabel:
    """The key and the attributes under which a program is published.

    `warnings`: sentences about facts of the label that the file makes doubtful. `notes`: what was taken to be so.
    """

    key: Key
    attributes: Attributes
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def label_program(options: RequestOptions, model: ModelReference, description: Mapping[str, Any]) -> PublicationLabel:
    """Return the label of a program: facts from its file, and the options for everything else.

    `description` is the JSON form of `mxr.describe_file`. Raises `UsageError` listing all facts that neither gives, and
    `MismatchError` listing each field in which the file contradicts the options.
    """
    onnx = _refuse_unpublishable(model, description)
    kind = options.kind or _only(description.get("targets")) or "gpu"
    arch = _labelled_arch(options, description)
    flags = _flags(options, description, kind)
    migraphx = options.migraphx or description.get("migraphx")
    reduced = [precision for precision in description.get("precisions") or () if precision != "fp32"]
    own = options.precision is None and bool(reduced) and model_evidence.has_own_precisions(onnx, reduced)
    unexplained = reduced if options.precision is None and not own else []
    _require_rest(options, description, kind, arch, {**flags, "migraphx": migraphx}, unexplained)
    assert migraphx is not None
    vendor = options.vendor or ("hygon" if description.get("flavour") == "hygon" else "amd")
    versions, patches = _versions(options, description, migraphx, vendor)
    arch = arch if kind == "gpu" else None
    where: dict[str, Any] = {"vendor": vendor, "rocm": versions[1], "arch": arch and arch.base} if kind == "gpu" else {}
    inputs = _inputs(options, model, description)
    key = Key(model.identity, kind, versions[0], inputs, **where, **flags, **fixed_facts(options))
    attributes = _attributes(options, description, patches, arch)
    refuse_contradictions(key, attributes, description)
    if against := model_evidence.contradictions(key, onnx, description):
        raise contradicted(against)
    if options.calibration is not None:
        calibration.check_calibration(options.calibration, onnx.inputs, key.inputs)
    doubts = program_evidence.warnings(key, description) + model_evidence.warnings(onnx, description)
    joined = "+".join(reduced)
    notes = (
        (
            f"the program computes in {joined}, as the model itself does: taken as compiled with nothing requested "
            f"(otherwise {stated('precision', joined)})",
        )
        if own
        else ()
    )
    return PublicationLabel(key, attributes, doubts + compile_support.uncalibrated_warnings(key), notes)


def _versions(
    options: RequestOptions, description: Mapping[str, Any], migraphx: str, vendor: str
) -> tuple[tuple[str, str | None], tuple[str | None, str | None]]:
    """Return MIGraphX and ROCm: MAJOR.MINOR for the key, and full versions for the attributes."""
    zeros = vendor == "hygon"
    short, _ = target.split_version(migraphx, "migraphx", zeros=zeros)
    rocm, rocm_patch = target.split_version(options.rocm, "rocm", zeros=zeros) if options.rocm else (None, None)
    return (short, rocm), (_patch(options, description, short, zeros=zeros), rocm_patch)


def _attributes(
    options: RequestOptions, description: Mapping[str, Any], patches: tuple[str | None, ...], arch: GfxArch | None
) -> Attributes:
    """Return the attributes of a program; `arch` is None for the reference target."""
    more: dict[str, Any] = {}
    if arch is not None:
        more = {name: getattr(arch, name) or "any" for name in target.FEATURES}
        more |= {name: getattr(options, name) for name in COUNTS}
        more |= {
            "rocm_patch": patches[1],
            "real_arch": options.real_arch if options.real_arch != arch.base else None,
            "libraries": tuple(description.get("libraries") or ()),
        }
    return Attributes(migraphx_patch=patches[0], tuning=options.tuning or "default", **more)


def _refuse_unpublishable(model: ModelReference, description: Mapping[str, Any]) -> OnnxModel:
    """Return the model with what its weights tell.

    Raises `MismatchError` for a program that is not compiled, has code for several archs, or was compiled from another
    model. This comes first: who names the wrong model corrects nothing with other options.
    """
    if description.get("compiled") is False:
        raise MismatchError(
            "This program was saved before it was compiled.",
            hint="Call program.compile(...) before migraphx.save, and push that file.",
            context={"differences": [Difference("compiled", True, False).to_json()]},
        )
    _reject_mixed_archs(description)
    onnx = read_model(model.path, weight_dims=True) if model.path else model.onnx
    if foreign := model_evidence.of_program(onnx, description):
        raise _not_compiled_from(model, foreign)
    return onnx


def refuse_contradictions(key: Key, attributes: Attributes, description: Mapping[str, Any]) -> None:
    """Raise `MismatchError`, with both values of each field, when the file contradicts its label."""
    differences = program_evidence.contradictions(key, attributes, description)
    if differences:
        raise contradicted(differences)


def contradicted(differences: tuple[Difference, ...]) -> MismatchError:
    """Return the error for a label that the file contradicts."""
    listed = "; ".join(
        f"{row.field} is {value_text(row.asked)} in the label and {value_text(row.found)} in the file"
        for row in differences
    )
    return MismatchError(
        f"The file contradicts its label: {listed}.",
        hint="Correct the options, or push another file. `mxr inspect FILE` shows the facts in a file.",
        context={"differences": [difference.to_json() for difference in differences]},
    )


def _not_compiled_from(model: ModelReference, differences: tuple[Difference, ...]) -> MismatchError:
    name = model.path.name if model.path else model.identity[:19]
    return MismatchError(
        f"This program was not compiled from {name}: {'; '.join(map(_against_model, differences[:3]))}.",
        hint="Push it with the model that it was compiled from. `mxr inspect FILE --model MODEL` compares them.",
        context={"differences": [difference.to_json() for difference in differences]},
    )


def _against_model(found: Difference) -> str:
    what, _, name = found.field.partition(".")
    if found.field == "inputs":
        return str(found.found).rstrip(".")
    if what == "inputs":
        return f"the program has an input {name}, the model does not"
    return f"{found.field} is {value_text(found.asked)} in the model and {value_text(found.found)} in the program"


def split_program(path: Path, name: str) -> File:
    """Return the manifest entry of the program at `path`, named `name` and split into blobs at its cut points.

    Raises `UsageError` when the file changes during the reading, `DamagedError` for a file that is not a program, and a
    disk error as `disk.faults` does.
    """
    from mxr.program import FileSource, cut_points

    with disk.faults(path, "read"), FileSource(path) as source:
        points = cut_points(source)
    return split_file(path, name, points)


def push(
    path: Path,
    model: ModelReference,
    found: PublicationLabel,
    client: Client,
    provenance: Mapping[str, Any],
    intent: artifact_protocol.PublicationIntent | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> artifact_protocol.Artifact:
    """Upload the blobs of the program at `path` that the registry lacks, and publish it under its label.

    `warn` is called with a doubt about the weights in the program. After an interruption, call it again. Raises
    `UnreachableError`, and `MismatchError`, `ConflictError` or `NotAllowedError` as the registry answers.
    """
    file = split_program(path, "model.mxr")
    if doubt := other_weights(file, found.key, model):
        warn(doubt)
        provenance = {**provenance, "warnings": [*provenance.get("warnings", ()), doubt]}
    publication = artifact_protocol.Publish(
        key=found.key,
        manifest=Manifest((file,)),
        attributes=found.attributes,
        provenance={"file": path.name, **provenance},
        model=model.claim(),
        intent=intent or artifact_protocol.PublicationIntent(),
    )
    return transfer.upload_and_publish(lambda: transfer.upload(client, path, file), lambda: client.publish(publication))


def other_weights(file: File, key: Key, model: ModelReference) -> str:
    """Return a sentence if a program has weights as large as those of the model, and none of them; else nothing.

    It is a doubt and no proof: MIGraphX folds constants into weights, and changes their layouts. But it rarely changes
    all of them in fp32, while a model that was replaced by a newer one of the same graph has none left.
    """
    if key.precision or model.path is None:
        return ""
    sizes = {blob.size for blob in file.blobs if blob.size >= LEAST_WEIGHT}
    with disk.faults(model.path, "read"):
        weights = weight_digests(model.path, dict(model.external), sizes) if sizes else []
    if len(weights) < LEAST_WEIGHTS or {blob.sha256 for blob in file.blobs}.intersection(weights):
        return ""
    return (
        f"the program holds none of the {len(weights)} weights of {model.path.name} for which it has one of the same "
        "size: check that it was compiled from this model, and not from an older one of the same graph"
    )


def _only(targets: Any) -> str | None:
    """Return the target kind in the file. For several targets, the later comparison with the label fails."""
    return targets[0] if targets and targets[0] in target.KINDS else None


def _arch_of(description: Mapping[str, Any]) -> GfxArch | None:
    """Return the common arch of all code objects, with their strictest features; None where their archs differ."""
    archs = program_evidence.archs_of(description)
    if len({arch.base for arch in archs}) != 1:
        return None
    signs = [program_evidence.strictest({getattr(arch, name) or "any" for arch in archs}) for name in target.FEATURES]
    return GfxArch(archs[0].base, *(None if sign == "any" else sign for sign in signs))


def _reject_mixed_archs(description: Mapping[str, Any]) -> None:
    bases = sorted({arch.base for arch in program_evidence.archs_of(description)})
    if len(bases) > 1:
        raise MismatchError(
            f"This program has code for several archs ({', '.join(bases)}), so it cannot run on any of them.",
            hint="Compile it again on one GPU, and push that file.",
            context={"differences": [Difference("arch", None, "+".join(bases)).to_json()]},
        )


def _labelled_arch(options: RequestOptions, description: Mapping[str, Any]) -> GfxArch | None:
    """Return the arch in the options, else the one in the file.

    A feature for which the file was built for any setting stays open, whatever the options say.
    """
    in_file = _arch_of(description)
    if options.arch is None:
        return in_file
    given = GfxArch.parse(options.arch)
    if in_file is None or in_file.base != given.base:
        return given
    return GfxArch(
        given.base,
        *(getattr(in_file, name) and (getattr(given, name) or getattr(in_file, name)) for name in target.FEATURES),
    )


def _flags(options: RequestOptions, description: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return offload_copy and fast_math; None for one that nothing tells."""
    if options.consumer:
        return choose_flags(options, consumers.find_consumer(options.consumer))
    in_file = {"offload_copy": description.get("offload_copy")} if kind == "gpu" else {}
    stated = {name: getattr(options, name) for name in FLAGS}
    return {name: in_file.get(name) if value is None else value for name, value in stated.items()}


def _require_rest(
    options: RequestOptions,
    description: Mapping[str, Any],
    kind: str,
    arch: GfxArch | None,
    flags: Mapping[str, Any],
    unexplained: Sequence[str],
) -> None:
    """Raise `UsageError` listing everything that neither the file nor the options give.

    `unexplained`: the precisions of the program that neither the options nor the model explain.
    """
    missing = []
    if kind == "gpu":
        missing += _missing_hardware(description, arch)
        if options.rocm is None:
            hygon = options.vendor == "hygon" or description.get("flavour") == "hygon"
            name, example = ("DTK", "25.04") if hygon else ("ROCm", "7.2")
            missing.append((f"the {name} version", stated("rocm", example)))
    if flags["migraphx"] is None:
        missing.append(("the MIGraphX version", stated("migraphx", "VERSION")))
    names = [name for name in FLAGS if flags[name] is None]
    if names:
        flag_options = " and ".join(f"{stated(name, True)} (or {stated(name, False)})" for name in names)
        missing.append((" and ".join(names), f"{stated('consumer', 'CONSUMER')}, or {flag_options}"))
    if unexplained:
        joined = "+".join(unexplained)
        missing.append(
            (
                f"the precision (the program computes in {joined})",
                f"{stated('precision', joined)}, or {stated('precision', 'fp32')} if the compile requested none",
            )
        )
    if missing:
        raise UsageError(
            "The file does not contain " + ", ".join(what for what, _ in missing) + ".",
            hint="Add: " + "; ".join(how for _, how in missing) + ".",
            context={"missing": [what for what, _ in missing]},
        )


def _missing_hardware(description: Mapping[str, Any], arch: GfxArch | None) -> list[tuple[str, str]]:
    if arch is None:
        return [("the GPU arch", stated("arch", "gfx908:sramecc+:xnack-"))]
    if program_evidence.archs_of(description):
        return []
    unknown = [name for name in target.FEATURES if target.capable(arch.base, name) and getattr(arch, name) is None]
    if not unknown:
        return []
    return [(" and ".join(unknown), stated("arch", arch.base + "".join(f":{name}+" for name in unknown)) + " (or -)")]


def _inputs(options: RequestOptions, model: ModelReference, description: Mapping[str, Any]) -> Inputs:
    """Return the inputs in the options, else those in the parameters of the file.

    Raises `UsageError` where the file does not determine a dim of the model.
    """
    if options.batch is not None or options.inputs:
        return model.bind(options.batch, options.inputs)
    return model.bind(None, model_evidence.inputs_of_program(model.onnx, description))


def _patch(options: RequestOptions, description: Mapping[str, Any], short: str, *, zeros: bool) -> str | None:
    for version in (options.migraphx, description.get("migraphx")):
        if version:
            found, patch = target.split_version(version, "migraphx", zeros=zeros)
            if patch and found == short:
                return patch
    return None
