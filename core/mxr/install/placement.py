"""Places an artifact at the output path: as one plain file, or in the layout that its consumer reads."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from mxr import onnxfile
from mxr.artifact.attributes import Request
from mxr.artifact.manifest import check_name
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.consumers.layout import Delivery, Layout
from mxr.errors import NoSuchModelError, UsageError, WouldOverwriteError
from mxr.onnxfile import OnnxModel
from mxr.request.builder import PreparedRequest
from mxr.request.model import ModelReference
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import remember_written
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Connect, Fetched

from . import consumer_folder, ledger, overwriting
from .ledger import LedgerSlot


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how to place an artifact.

    `path` is a file, or a folder for the consumer's layout. `link` makes a hard link instead of a copy. `force`
    replaces files that mxr did not place. `name` replaces the model's stem. `consumer_options` are the options that
    apply to one consumer only, by their names.
    """

    path: str | os.PathLike[str]
    link: bool = False
    force: bool = False
    name: str | None = None
    consumer_options: Mapping[str, str] = field(default_factory=dict)

    def stem(self, model: ModelReference) -> str:
        """The name of the model in the folder."""
        return self.name or model.stem


@dataclass(frozen=True, slots=True)
class Placement:
    """What was placed: the path to report, all files, the settings that make the consumer use them, and notes."""

    path: Path
    files: tuple[Path, ...]
    settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A layout that is complete but not written yet, with the delivery that it was made from."""

    layout: Layout
    delivery: Delivery
    consumer: str
    model_files: tuple[Path, ...] = ()


def check_output(prepared: PreparedRequest, output: Destination, *, offline: bool = False) -> None:
    """Check that the output can be written, before anything is downloaded. Raises `UsageError`."""
    consumer = prepared.consumer
    if not os.fspath(output.path):
        raise UsageError("The output path is empty.", hint="Give -o PATH, or omit it.")
    if not has_layout(prepared, output):
        final = Path(output.path)
        if output.name is not None:
            check_stem(output.name)
        if is_folder(output.path):
            final /= consumer.file_name(output.stem(prepared.model), prepared.request.key)
        overwriting.refuse_models([final], prepared.model.files)
        return
    if Path(output.path).exists() and not Path(output.path).is_dir():
        raise UsageError(f"{consumer.name} needs a folder, and {output.path} is a file.", hint="Give -o FOLDER/.")
    check_stem(output.stem(prepared.model))
    consumer.check(output.stem(prepared.model), prepared.request.key)
    if consumer.needs_model and prepared.model.path is None and offline:
        raise UsageError(f"{consumer.name} needs the model itself.", hint="Give the ONNX file instead of its hash.")


def check_stem(stem: str) -> str:
    """Return `stem` if it can name a model in a folder. Raises `UsageError`."""
    consumer_folder.check_part(stem)
    if "/" in check_name(stem):
        raise UsageError(f"{stem!r} cannot name a model: it contains a slash.", hint="Give --name without a slash.")
    return stem


def place_artifact(
    fetched: Fetched,
    cache: Cache,
    prepared: PreparedRequest,
    output: Destination,
    connect: Connect | None = None,
) -> Placement:
    """Place an artifact in the layout of its consumer. Raises `UsageError`, `NotAllowedError`, or a disk fault."""
    if has_layout(prepared, output):
        return write_plan(plan_layout(fetched, cache, prepared, output, connect), cache, output)
    path = _place_file(fetched, cache, prepared, output)
    tell = prepared.consumer.tell
    return Placement(path, (path,), tell(path.absolute(), prepared.request.key) if tell else ())


def plan_layout(
    fetched: Fetched,
    cache: Cache,
    prepared: PreparedRequest,
    output: Destination,
    connect: Connect | None = None,
) -> PlacementPlan:
    """Compute the layout of an artifact for its consumer; writes nothing. Raises `UsageError`."""
    consumer = prepared.consumer
    assert consumer.lay_out is not None
    if len(fetch_workflow.files_of(fetched.answer)) != 1:
        raise UsageError(f"This artifact has several files, which {consumer.name} cannot use.", hint="Omit -o.")
    onnx = prepared.model.onnx
    if consumer.needs_model and prepared.model.path is None:
        onnx = _onnx_from_registry(prepared.model.identity, cache, connect)
    delivery = Delivery(
        stem=output.stem(prepared.model),
        key=prepared.request.key,
        constraints=prepared.request.constraints,
        artifact=fetched.answer.artifact,
        inputs=onnx.inputs,
        outputs=onnx.outputs,
        folder=Path(output.path).absolute(),
        model=prepared.model.path,
        consumer_options=output.consumer_options,
    )
    return PlacementPlan(consumer.lay_out(delivery), delivery, consumer.name, prepared.model.files)


def write_plan(planned: PlacementPlan, cache: Cache, output: Destination) -> Placement:
    """Write a planned layout. Raises `WouldOverwriteError` for files that may not be replaced, or a disk fault."""
    layout, folder = planned.layout, Path(output.path)
    consumer_folder.write_layout(
        layout,
        planned.delivery,
        planned.consumer,
        cache,
        link=output.link,
        force=output.force,
        model_files=planned.model_files,
    )
    files = tuple(folder / piece.name for piece in layout.pieces)
    return Placement(folder / layout.path, files, layout.settings, layout.notes)


def has_layout(prepared: PreparedRequest, output: Destination) -> bool:
    """Whether to write the consumer's own layout.

    A consumer that reads one plain file gets that file if the path is not a folder.
    """
    consumer = prepared.consumer
    if consumer.lay_out is None:
        return False
    return consumer.name_file is None or is_folder(output.path)


def is_folder(output: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder or ends in a slash (`Path` drops the slash, so pass the string as it was given)."""
    return os.fspath(output).endswith("/") or Path(output).is_dir()


def _place_file(fetched: Fetched, cache: Cache, prepared: PreparedRequest, output: Destination) -> Path:
    """Place a program at the path itself, or in that folder under the name that the consumer reads.

    It places a reflink or a copy, so that a program that writes to it cannot damage the cache, unless a hard link is
    requested.
    """
    count = len(fetch_workflow.files_of(fetched.answer))
    if count != 1:
        raise UsageError(f"This artifact has {count} files, and the output path can take one.", hint="Omit -o.")
    final = Path(output.path)
    if is_folder(output.path):
        final /= prepared.consumer.file_name(check_stem(output.stem(prepared.model)), prepared.request.key)
    row = (fetched.answer.artifact, prepared.request, prepared.consumer.name)
    files = prepared.model.files
    place_files(final.parent, {final.name: row}, cache, link=output.link, force=output.force, model_files=files)
    return final


def place_files(
    folder: Path,
    rows: Mapping[str, tuple[Artifact, Request, str]],
    cache: Cache,
    *,
    documents: Mapping[str, bytes] = MappingProxyType({}),
    check_documents: Callable[[], None] = lambda: None,
    link: bool = False,
    force: bool = False,
    model_files: Sequence[Path] = (),
) -> None:
    """Place programs with one file each as plain files in a folder, and record them in its ledger: all or none.

    `rows`: the artifact, the request, and the consumer, by file name. `documents`: the content of other files, which
    are placed last; `check_documents` raises if they may not be replaced.

    A new folder appears complete, by one rename. In an existing one every file that differs is first written to a
    folder inside it, then each is renamed into place. Raises `WouldOverwriteError` if one of them may not be replaced,
    or a disk fault.
    """
    if folder.resolve().is_relative_to(cache.root.resolve()):
        raise WouldOverwriteError(f"{folder} is inside the cache.", hint="Give another path with -o.")
    slots = {
        name: consumer_folder.plain_slot(consumer, name, each, request)
        for name, (each, request, consumer) in rows.items()
    }
    programs = {name: artifact.sha256 for name, (artifact, _, _) in rows.items()}
    if not os.path.lexists(folder) and _place_new(folder, slots, programs, documents, cache, link=link):
        return
    overwriting.refuse_models([folder / name for name in documents], model_files)
    check_documents()
    claim = consumer_folder.record_under_lock(folder, slots, cache, link=link, force=force, model_files=model_files)
    with claim as (before, differing):
        before |= {name: disk.FileState.of(folder / name) for name in documents}
        # Once more under the lock: another host may have placed its set meanwhile.
        check_documents()
        needed = {name: programs[name] for name in differing}
        if not (needed or documents):
            return
        with _staged(folder, "", needed, documents, cache, link=link) as (stage, written), disk.faults(folder):
            for place in before.values():
                place.check()
            for name in (*needed, *documents):
                before[name].replace_by(stage / name)
            disk.sync_folder(folder)
        _remember(folder, slots, written, cache)


def _place_new(
    folder: Path,
    slots: Mapping[str, LedgerSlot],
    programs: Mapping[str, str],
    documents: Mapping[str, bytes],
    cache: Cache,
    *,
    link: bool,
) -> bool:
    """Place files as a new folder. Returns false if another process created one meanwhile. Raises a disk fault."""
    with _staged(folder.parent, folder.name, programs, documents, cache, link=link) as (stage, written):
        ledger.write_ledger(stage, ledger.Ledger(slots))
        disk.sync_folder(stage)
        with disk.faults(folder):
            placed = _give_folder(stage, folder)
        if placed:
            _remember(folder, slots, written, cache)
        return placed


@contextmanager
def _staged(
    parent: Path, name: str, programs: Mapping[str, str], documents: Mapping[str, bytes], cache: Cache, *, link: bool
) -> Iterator[tuple[Path, Mapping[str, os.stat_result]]]:
    """Write all files to a temporary folder, for the time of the block. Raises a disk fault.

    Yields the folder, and the status of each copied program when its last byte was written.
    """
    stage = disk.partial_name(parent, name)
    written = {}
    try:
        with disk.faults(parent / name):
            stage.mkdir(parents=True)
        for file, sha in programs.items():
            if copied := cache.place(sha, stage / file, link=link):
                written[file] = copied
        for file, data in documents.items():
            disk.write_whole(stage / file, data)
        yield stage, written
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _remember(
    folder: Path, slots: Mapping[str, LedgerSlot], written: Mapping[str, os.stat_result], cache: Cache
) -> None:
    """Remember the digests of copies, so that the next fetch to this folder does not hash them."""
    for name, status in written.items():
        remember_written(folder / name, status, {"sha256": slots[name].files[0].sha256}, cache.memo)


def _give_folder(stage: Path, folder: Path) -> bool:
    """Give a folder its name. Returns false if another process created one meanwhile."""
    try:
        stage.rename(folder)
    except OSError as problem:
        if problem.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    disk.sync_folder(folder.parent)
    return True


def _onnx_from_registry(model: str, cache: Cache, connect: Connect | None) -> OnnxModel:
    """The ONNX description of a model that is known by its identity only, from the file that the registry stores.

    Raises `NoSuchModelError` if the registry does not store it, `UnreachableError` if it cannot be asked.
    """
    known = connect().model(model) if connect else None
    files = {file.name: file for file in known.manifest.files} if known and known.manifest else {}
    file = files.get((known and known.onnx) or "")
    if file is None or connect is None:
        raise NoSuchModelError(
            f"The ONNX file of {model} is needed, and the registry does not store it.",
            hint="Give the ONNX file itself instead of its hash.",
        )
    if not cache.intact_or_removed(file.sha256):
        fetch_workflow.download_file(file, cache, connect())
    return onnxfile.read_model(cache.access_path(file.sha256))
