"""Installs artifacts for ONNX Runtime: recorded file sets first, then one program under a predicted name.

A recorded set holds the files that ONNX Runtime's provider itself wrote while it ran the model, as one artifact. It
outranks a prediction: it has a file for every partition of the graph, under the names the provider chose. The `form` in
its key differs from that of other artifacts, because a set is valid only for one naming contract, one version of ONNX
Runtime, one optimization level, and one file name of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.target import FEATURES, capable
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.consumers.file_change import FileChange
from mxr.consumers.layout import Delivery, Layout, LayoutFile, full_arch, written
from mxr.consumers.ort import layout as ort_layout
from mxr.consumers.ort import recording, verification
from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.hashes import FIELDS
from mxr.consumers.ort.options import OrtSessionOptions
from mxr.consumers.ort.prediction import Unpredictable, predict, unknown_names
from mxr.consumers.ort.recording_form import (
    BY_WORKERS,
    check_recording,
    check_weights,
    form_of,
    is_recording,
    level_in,
    runtime_in,
)
from mxr.consumers.ort.requirements import FREEZE
from mxr.display.text import counted, shell_quoted
from mxr.errors import MxrError, NoSuchArtifactError, UnreachableError, UsageError
from mxr.facts import stated
from mxr.protocol import artifacts as artifact_protocol
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.model import ModelReference
from mxr.util.codec import canonical
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched
from mxr.workflows.push import label_program, refuse_contradictions, split_program

from . import consumer_folder
from .installer import Installer, RecordingRequest
from .placement import Destination, Placement


class OrtInstaller(Installer):
    """Prefers a recorded file set; otherwise places the program under its predicted name."""

    record_folder = ort_layout.RECORDS

    def find_recorded(
        self,
        prepared: PreparedRequest,
        output: Destination,
        cache: Cache,
        connect: Connect | None,
    ) -> Fetched | None:
        """The recorded set for this request, in the cache; None if none was recorded or the registry is unreachable."""
        try:
            request = _recorded_request(prepared, output)[0].request
        except UsageError:
            return None
        try:
            # This looks the set up by digest: a resolve would count as a miss, although this is only an attempt.
            if connect is not None and not connect().artifacts(digest=request.key.digest, limit=1).items:
                return None
            return fetch_workflow.fetch(request, cache, connect)
        except UnreachableError:
            return None

    def recording_request(self, prepared: PreparedRequest, output: Destination) -> RecordingRequest | None:
        """The recorded set to request from a worker if the name cannot be predicted.

        None if the name can be predicted, or if no worker can record it. Raises `UsageError` for a model with open dims
        and for what workers do not record.
        """
        options = OrtSessionOptions.read(output.consumer_options)
        contract = options.contract()
        if prepared.model.path is None or contract.generation not in BY_WORKERS:
            return None
        if any(not isinstance(dim, int) for item in prepared.model.onnx.inputs for dim in item.dims or ()):
            raise UsageError(
                f"{prepared.model.path.name} has open dims, so all its shapes share one file name.", hint=FREEZE
            )
        key = prepared.request.key
        arch = full_arch(key, prepared.request.constraints, None)
        if arch is None:
            return None
        stem = output.stem(prepared.model)
        name = predict(
            ort_layout.prediction_request(prepared.model.path, stem, arch, contract=contract, options=options)
        )
        if not isinstance(name, Unpredictable):
            return None
        wanted, file_name = _recorded_request(prepared, output)
        check_recording(wanted.request.key, file_name)
        check_weights(file_name, 1 + len(prepared.model.external))
        reason = f"the file name cannot be predicted ({name.reason}): a worker's ONNX Runtime has to run the model"
        return RecordingRequest(wanted, file_name, reason)

    def lockable(self, prepared: PreparedRequest, options: Mapping[str, str], connect: Connect) -> PreparedRequest:
        """The request for the recorded set if the registry has one, else the one for a program with a predicted name.

        Raises `NoSuchArtifactError` if no name can be predicted and workers can record the set, but none has.
        """
        output = Destination("./", consumer_options=options)
        try:
            recorded = _recorded_request(prepared, output)[0]
        except UsageError:
            return prepared  # which ONNX Runtime will serve is not known here
        if connect().artifacts(digest=recorded.request.key.digest, limit=1).items:
            return recorded
        try:
            needed = self.recording_request(prepared, output)
        except UsageError:
            return prepared
        if needed is None:
            return prepared
        model = shell_quoted(prepared.model.path or prepared.model.identity)
        raise NoSuchArtifactError(
            f"The files of ONNX Runtime for {model} are not recorded: {needed.reason}.",
            hint=f"Have a worker record them: `mxr fetch {model} --on-miss wait -o FOLDER/` with the same options.",
            context={"unrecorded": recorded.request.key.form},
        )

    def locked_form(self, model: ModelReference, name: str | None, options: Mapping[str, str]) -> str | None:
        """The form of the set that was recorded for this model and this ONNX Runtime; None if the latter is unknown."""
        session = OrtSessionOptions.read(options)
        try:
            return form_of(session.contract(), _file_name(model, session, name), session.level)
        except UsageError:
            return None

    def options_in(self, key: Key) -> Mapping[str, str] | None:
        """The ONNX Runtime for which a set was recorded."""
        if not is_recording(key):
            return None
        generation = runtime_in(key.form).partition(":")[0].replace("1", "'")
        return {"ort": generation, "ort_level": level_in(key.form)}

    def check_unrecorded(self, prepared: PreparedRequest, output: Destination) -> None:
        """Raise `UsageError` for a generation whose file names nobody can predict."""
        options = OrtSessionOptions.read(output.consumer_options)
        try:
            contract = options.contract()
        except UsageError:
            return  # `deliver` reports it, after a miss was reported
        if unknown := unknown_names(contract):
            model = prepared.model.path.name if prepared.model.path else prepared.model.stem
            raise ort_layout.unpredictable(model, unknown, contract)

    def deliver(
        self,
        fetched: Fetched,
        cache: Cache,
        prepared: PreparedRequest,
        output: Destination,
        connect: Connect | None = None,
    ) -> Placement:
        """Place a recorded set with the provider's names, any other artifact under its predicted name."""
        if is_recording(fetched.answer.artifact.key):
            return _place_recorded(fetched, cache, prepared, output)
        return super().deliver(fetched, cache, prepared, output, connect)

    def verify(self, folder: Path) -> tuple[FileChange, ...]:
        """The files that the provider added or rewrote in `folder`, and those that are missing."""
        return verification.verify_ort_folders(folder)


def publish_recording(
    folder: Path, options: RequestOptions, model: ModelReference, ort: Mapping[str, str], client: Client
) -> artifact_protocol.Artifact:
    """Publish the files that ONNX Runtime's provider wrote to `folder` for this model, as one artifact.

    `options` describe the host that ran the model, `ort` the ONNX Runtime, by the names of the options of `mxr fetch
    --ort...`. Files for another arch are left out. Raises `UsageError` if there is no file to publish or the request is
    incomplete; `MismatchError` if a file contradicts the request.
    """
    ort_options = OrtSessionOptions.read(ort)
    contract = ort_options.contract()
    paths = _files(folder, options)
    form = form_of(contract, _file_name(model, ort_options, None), ort_options.level)
    key, attributes = _label(paths, replace(options, consumer="ort"), model, form)
    files = tuple(split_program(path, path.name) for path in paths)
    message = artifact_protocol.Publish(
        key=key,
        manifest=Manifest(files),
        attributes=attributes,
        provenance={"tool": "mxr import --ort-cache", "onnxruntime": contract.version or "", "file": model.stem},
        model=model.claim(),
    )

    def send() -> None:
        for path, file in zip(paths, files, strict=True):
            transfer.upload(client, path, file)

    return transfer.upload_and_publish(send, lambda: client.publish(message))


def _files(folder: Path, options: RequestOptions) -> list[Path]:
    paths = recording.named(folder)
    if not paths:
        raise UsageError(
            f"{folder} holds no file with a name of ONNX Runtime's provider.",
            hint="Give the folder of migraphx_model_cache_dir, after the model has run once.",
        )
    fits = recording.of_arch(paths, options.arch) if options.arch else paths
    if not fits:
        assert options.arch is not None
        base = options.arch.partition(":")[0]
        signs = "".join(f":{name}+" for name in FEATURES if capable(base, name))
        full = (
            f" Give the full name of the GPU, as HIP has it, such as {stated('arch', f'{base}{signs}')}."
            if signs
            else ""
        )
        raise UsageError(
            f"No file in {folder} is for {options.arch}.",
            hint=f"A file name of ONNX Runtime holds the GPU that compiled it: check {stated('arch')}, and that the "
            f"model ran on that GPU.{full}",
        )
    if any(map(recording.for_any_shape, fits)):
        raise UsageError(
            "A file name ends in -0.mxr: it belongs to a model with open dims, and would be loaded for any shape.",
            hint="Freeze the model first: mxr freeze MODEL --batch 1,4,8 -o FOLDER, and run the frozen model.",
        )
    return fits


def _label(paths: list[Path], options: RequestOptions, model: ModelReference, form: str) -> tuple[Key, Attributes]:
    """Key and attributes of a set.

    The inputs are those of the model. The inputs of one file are no guide: a partition's are values inside the graph.
    """
    from mxr.program import describe_file

    descriptions = [describe_file(path).to_json() for path in paths]
    first = {**descriptions[0], "inputs": {}, "outputs": []}
    found = label_program(options, model, first)
    key = replace(found.key, form=form)
    for description in descriptions:
        refuse_contradictions(key, found.attributes, description)
    return key, found.attributes


def _recorded_request(prepared: PreparedRequest, output: Destination) -> tuple[PreparedRequest, str | None]:
    """The same request for the recorded set, and the file name of the model in it. Raises `UsageError`."""
    options = OrtSessionOptions.read(output.consumer_options)
    name = _file_name(prepared.model, options, output.name)
    return prepared.with_form(form_of(options.contract(), name, options.level)), name


def _place_recorded(fetched: Fetched, cache: Cache, prepared: PreparedRequest, output: Destination) -> Placement:
    """Place a recorded set. A note says so if the prediction differs from what was recorded."""
    folder = Path(output.path)
    delivery = Delivery(
        stem=output.stem(prepared.model),
        key=prepared.request.key,
        constraints=prepared.request.constraints,
        artifact=fetched.answer.artifact,
        inputs=prepared.model.onnx.inputs,
        outputs=prepared.model.onnx.outputs,
        folder=folder.absolute(),
        model=prepared.model.path,
        consumer_options=output.consumer_options,
    )
    layout = _recorded_layout(delivery, fetch_workflow.files_of(fetched.answer))
    consumer_folder.write_layout(
        layout,
        delivery,
        prepared.consumer.name,
        cache,
        link=output.link,
        force=output.force,
        model_files=prepared.model.files,
    )
    paths = tuple(folder / piece.name for piece in layout.pieces)
    return Placement(folder / layout.path, paths, layout.settings, layout.notes)


def _recorded_layout(delivery: Delivery, files: tuple[File, ...]) -> Layout:
    """Lay out recorded files under the names that the provider gave them."""
    options = OrtSessionOptions.read(delivery.consumer_options)
    contract = options.contract()
    home = ort_layout.folder_name(delivery.stem, delivery.key)
    records = [
        written(f"{home}/{ort_layout.RECORDS}/{file.name}.json", _record(file.name, file.sha256, contract))
        for file in files
    ]
    return Layout(
        pieces=(*records, *(LayoutFile(f"{home}/{file.name}", file.sha256) for file in files)),
        path=home,
        settings=ort_layout.settings(contract.generation, str(delivery.folder / home), delivery.key),
        notes=(
            *contract.notes,
            f"Placed {counted(len(files), 'file')} recorded on a host that ran the model.",
            *_difference(delivery, contract, options, files),
        ),
    )


def _difference(
    delivery: Delivery, contract: Contract, options: OrtSessionOptions, files: tuple[File, ...]
) -> tuple[str, ...]:
    """A note if the prediction names a file that was not recorded."""
    if delivery.model is None:
        return ()
    try:
        name = predict(ort_layout.prediction_request_of(delivery, contract, options))
    except MxrError:
        return ()
    if isinstance(name, Unpredictable) or name.file in {file.name for file in files}:
        return ()
    return (f"The prediction is {name.file}, which was not recorded: please report this.",)


def _record(name: str, sha: str, contract: Contract) -> str:
    parts = name.removesuffix(".mxr").split("-")
    fields = dict(zip(FIELDS, parts, strict=False))
    return canonical(
        {
            "v": 1,
            "file": name,
            "sha256": sha,
            "generation": contract.generation,
            "onnxruntime": contract.version,
            "fields": fields,
            "meant": dict.fromkeys(fields, "what was recorded on a host that ran the model"),
        }
    )


def _file_name(model: ModelReference, options: OrtSessionOptions, name: str | None) -> str | None:
    """The file name under which the model is opened; None for a session from bytes."""
    if options.from_bytes or model.path is None:
        return None
    return f"{name}{model.path.suffix}" if name else model.path.name
