"""The true set of ONNX Runtime's files, from a host that ran the model: recorded as one artifact, laid out again.

A set outranks a prediction: it has every partition, and was named by the provider itself. Its key has a form of its
own, since it holds for one contract, one version, one level and one file name of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.manifest import Manifest
from mxr.artifact.qualities import Request
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.consumers import Delivery, Layout, LayoutFile
from mxr.consumers.layout import full_arch, written
from mxr.consumers.ort import contract, laying, recording
from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.fields import FIELDS
from mxr.consumers.ort.form import BY_WORKERS, check_recording, check_weights, form_of
from mxr.consumers.ort.generation_b import FREEZE
from mxr.consumers.ort.prediction import predict
from mxr.consumers.ort.unpredictable import Unpredictable
from mxr.errors import MxrError, Unreachable, Usage
from mxr.protocol import artifacts as artifact_protocol
from mxr.request.builder import BuiltRequest, Options
from mxr.request.model import ModelReference
from mxr.util.codec import canonical
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched
from mxr.workflows.push import cut, label, refuse_contradictions

from . import consumer_folder

if TYPE_CHECKING:
    from .placement import OutputRequest, Placement

Watch = Callable[[int], transfer.Progress]


def record(
    folder: Path, options: Options, subject: ModelReference, said: Mapping[str, str], client: Client, watch: Watch
) -> artifact_protocol.Artifact:
    """Publishes what ONNX Runtime's provider wrote to `folder` for this model on this kind of host, as one artifact.

    `said` are the options of `mxr fetch --ort...`. Files of another arch stay out. Raises `Usage` where nothing is
    to be recorded, or the request is not said in full; `Mismatch` where a file contradicts it.
    """
    found = contract.choose(said.get("ort"), said.get("ort_migraphx"))
    paths = _files(folder, options)
    form = form_of(found, _file_name(subject, said, None), said.get("ort_level") or "all")
    stated = _label(paths, replace(options, consumer="ort"), subject, form)
    files = tuple(cut(path, path.name) for path in paths)
    progress = watch(sum(file.size for file in files))
    wanted = artifact_protocol.Publish(
        key=stated[0],
        manifest=Manifest(files),
        qualities=stated[1],
        provenance={"tool": "mxr import --ort-cache", "onnxruntime": found.version or "", "file": subject.stem},
        model=subject.statement(),
    )

    def send() -> None:
        for path, file in zip(paths, files, strict=True):
            transfer.upload(client, path, file, progress)

    return transfer.settle(send, lambda: client.publish(wanted))


def _files(folder: Path, options: Options) -> list[Path]:
    paths = recording.named(folder)
    if not paths:
        raise Usage(
            f"{folder} has no file that ONNX Runtime's provider names.",
            hint="Give the folder of migraphx_model_cache_dir, after the model has run once.",
        )
    fits = recording.of_arch(paths, options.arch) if options.arch else paths
    if not fits:
        raise Usage(
            f"No file in {folder} is for {options.arch}.",
            hint="Say --arch in full, as HIP has it: gfx942:sramecc+:xnack-.",
        )
    if any(map(recording.for_any_shape, fits)):
        raise Usage(
            "A file ends in -0.mxr: it belongs to a model with open dims, and would be loaded for any shape.",
            hint="Freeze the model first: mxr freeze MODEL --batch 1,4,8 -o FOLDER, and run that.",
        )
    return fits


def _label(paths: list[Path], options: Options, subject: ModelReference, form: str) -> tuple[Any, Any]:
    """Key and qualities of a set. Inputs are the model's: those of a partition are values inside of it."""
    from mxr.program import describe_file

    descriptions = [describe_file(path).to_json() for path in paths]
    first = {**descriptions[0], "inputs": {}, "outputs": []}
    found = label(options, subject, first)
    key = replace(found.key, form=form)
    for each in descriptions:
        refuse_contradictions(key, found.qualities, each)
    return key, found.qualities


def as_set(asked: BuiltRequest, subject: ModelReference, wish: OutputRequest) -> tuple[BuiltRequest, str | None]:
    """The same request for the recorded set, and the model's file name in it. Raises `Usage`."""
    found = contract.choose(wish.said.get("ort"), wish.said.get("ort_migraphx"))
    name = _file_name(subject, wish.said, wish.name)
    key = replace(asked.request.key, form=form_of(found, name, wish.said.get("ort_level") or "all"))
    return replace(asked, request=Request(key, asked.request.demands)), name


def to_record(
    asked: BuiltRequest, subject: ModelReference, wish: OutputRequest
) -> tuple[BuiltRequest, str | None, str] | None:
    """What to ask a worker for, and why, where no name can be told beforehand; None where there is one, or no way.

    The request is that of `as_set`. Raises `Usage` for a model with open dims, and for what workers do not record.
    """
    found = contract.choose(wish.said.get("ort"), wish.said.get("ort_migraphx"))
    if asked.consumer.name != "ort" or subject.path is None or found.generation not in BY_WORKERS:
        return None
    if any(not isinstance(dim, int) for each in subject.onnx.inputs for dim in each.dims or ()):
        raise Usage(f"{subject.path.name} has open dims, and one file name for all shapes.", hint=FREEZE)
    arch = full_arch(asked.request.key, asked.request.demands, None)
    if arch is None:
        return None
    name = predict(
        laying.question(subject.path, wish.stem(subject), asked.request.key, arch, contract=found, said=wish.said)
    )
    if not isinstance(name, Unpredictable):
        return None
    wanted, file_name = as_set(asked, subject, wish)
    check_recording(wanted.request.key, file_name)
    check_weights(file_name, 1 + len(subject.external))
    return wanted, file_name, name.reason


def fetch_recorded(
    asked: BuiltRequest, subject: ModelReference, wish: OutputRequest, cache: Cache, connect: Connect | None
) -> Fetched | None:
    """The recorded set for this request, in the cache; None where nobody has recorded one."""
    if asked.consumer.name != "ort":
        return None
    try:
        request = as_set(asked, subject, wish)[0].request
    except Usage:
        return None
    try:
        # Asked by digest: a question that is only tried must not count as a miss.
        if connect is not None and not connect().artifacts(digest=request.key.digest, limit=1).artifacts:
            return None
        return fetch_workflow.fetch(request, cache, connect)
    except Unreachable:
        return None


def recorded(
    asked: BuiltRequest, subject: ModelReference, wish: OutputRequest, cache: Cache, connect: Connect | None
) -> tuple[Fetched, Placement] | None:
    """The recorded set for this request, fetched and laid out where `wish` says; None where nobody has recorded one."""
    found = fetch_recorded(asked, subject, wish, cache, connect)
    return None if found is None else (found, place_recorded(found, cache, asked, subject, wish))


def place_recorded(
    fetched: Fetched, cache: Cache, asked: BuiltRequest, subject: ModelReference, wish: OutputRequest
) -> Placement:
    """Lays a recorded set out; what the prediction says otherwise stands in the notes."""
    from .placement import Placement

    artifact = fetched.answer.artifact
    folder = Path(wish.output)
    made = Delivery(
        stem=wish.stem(subject),
        key=asked.request.key,
        demands=asked.request.demands,
        artifact=artifact,
        inputs=subject.onnx.inputs,
        outputs=subject.onnx.outputs,
        folder=folder.absolute(),
        model=subject.path,
        said=wish.said,
    )
    found = contract.choose(wish.said.get("ort"), wish.said.get("ort_migraphx"))
    home = laying.folder_name(made.stem, made.key)
    files = fetch_workflow.files_of(fetched.answer)
    records = [
        written(f"{home}/{laying.RECORDS}/{file.name}.json", _record(file.name, file.sha256, found)) for file in files
    ]
    layout = Layout(
        pieces=(*records, *(LayoutFile(f"{home}/{file.name}", file.sha256) for file in files)),
        path=home,
        settings=laying.settings(found.generation, str(made.folder / home), made.key),
        notes=(*found.notes, f"{len(files)} files as a host has recorded them.", *_difference(made, found, files)),
    )
    consumer_folder.put(layout, made, asked.consumer.name, cache, link=wish.link, force=wish.force)
    return Placement(
        folder / home, tuple(folder / piece.name for piece in layout.pieces), layout.settings, layout.notes
    )


def _difference(made: Delivery, found: Contract, files: tuple[Any, ...]) -> tuple[str, ...]:
    """A note where the prediction names another file than was recorded."""
    if made.model is None:
        return ()
    try:
        name = predict(laying.question_of(made, found))
    except MxrError:
        return ()
    if isinstance(name, Unpredictable) or name.file in {file.name for file in files}:
        return ()
    return (f"The prediction would be {name.file}, which was not recorded: please report it.",)


def _record(name: str, sha: str, found: Contract) -> str:
    parts = name.removesuffix(".mxr").split("-")
    fields = dict(zip(FIELDS, parts, strict=False))
    return canonical(
        {
            "v": 1,
            "file": name,
            "sha256": sha,
            "generation": found.generation,
            "onnxruntime": found.version,
            "fields": fields,
            "meant": dict.fromkeys(fields, "what was recorded on a host that ran the model"),
        }
    )


def _file_name(subject: ModelReference, said: Mapping[str, str], name: str | None) -> str | None:
    """The model's file name where it is opened; None for a session from bytes."""
    if said.get("ort_bytes") or subject.path is None:
        return None
    return f"{name}{subject.path.suffix}" if name else subject.path.name
