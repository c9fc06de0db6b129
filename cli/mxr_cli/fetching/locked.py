"""`mxr fetch --locked` and `--tag`: exactly the artifacts that a lock names, for one request or for all entries."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import consumers
from mxr.artifact.key import MODEL_PREFIX
from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans import drift, pins
from mxr.plans.lockfile import FILE_NAME, LockEntry, LockFile, load_lock
from mxr.plans.plan import PlannedProgram
from mxr.request import model as models
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.model import ModelReference
from mxr.util import disk
from mxr_cli.output import note

from .programs import fetch_programs, obtain_programs

if TYPE_CHECKING:
    from mxr.install.placement import Placement
    from mxr.workflows.fetch import Connect, Fetched
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions, OrtOptions


def fetch_locked(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch what a lock names for MODEL and its options, or all of its entries. Returns the JSON document."""
    if options.on_miss.compiles:
        raise UsageError("--locked fetches what the lock names and never compiles.", hint="Omit --on-miss.")
    file, model = lock_and_model(options.locked or "", options.model)
    lock = load_lock(file)
    if model is None:
        return _fetch_all(session, options, lock, file)
    return fetch_programs(session, replace(options, model=model), lock)


def fetch_tagged(session: Session, options: FetchOptions, name: str) -> dict[str, Any]:
    """Fetch what a tag names for MODEL and its options, or all that this host needs. Returns the JSON document."""
    from mxr.plans import tags

    if options.on_miss.compiles:
        raise UsageError("A tag names programs that exist, and nothing is compiled for it.", hint="Omit --on-miss.")
    tagged = tags.find_tag(name, session.cache(), session.connect(offline=options.offline))
    for line in tagged.warnings:
        note(f"mxr: warning: {line}")
    note(f"mxr: {tagged.title}")
    if options.model is None:
        found = _fetch_all(session, options, tagged.lock, None)
    else:
        model, stem = tags.model_in(tagged, options.model)
        placed = options.name or (stem if options.output is not None else None)
        found = fetch_programs(session, replace(options, model=model, name=placed), tagged.lock)
    return {"tag": tagged.name, "revision": tagged.revision, **found}


def write_locked(session: Session, lock: LockFile, file: Path, folder: Path, ort: OrtOptions) -> list[str]:
    """Write all entries of a lock to a folder, as `mxr fetch --locked -o`; returns the settings of their consumers.

    `file`: the lock, beside which the models may lie.
    """
    from mxr.plans.plan import OnMiss

    from .fetch_options import FetchOptions

    # Entries for several GPUs are wanted, and not only those for this host.
    arch = next((entry.request.key.arch for entry in lock.entries if entry.request.key.arch), None)
    options = FetchOptions(RequestOptions(arch=arch), (), OnMiss(), ort, output=f"{folder}/")
    found = _fetch_all(session, options, lock, file)
    return [line for row in found["entries"] for line in row.get("settings", ())]


def lock_and_model(value: str, model: str | None) -> tuple[Path, str | None]:
    """The lock file and the model, from the value of `--locked` and MODEL.

    FILE is optional, so that the value is MODEL in `mxr fetch --locked MODEL`. A lock starts with a brace, perhaps
    after a byte order mark and blanks; no ONNX file does.
    """
    if value and model is None and not _is_lock(value):
        return Path(FILE_NAME), value
    return Path(value or FILE_NAME), model


def _is_lock(value: str) -> bool:
    if value.startswith(MODEL_PREFIX):
        return False
    path = Path(value)
    if not path.is_file():
        return path.suffix != ".onnx"
    with disk.faults(path, "read"), path.open("rb") as stream:
        return stream.read(64).removeprefix(BOM_UTF8).lstrip()[:1] == b"{"


def _fetch_all(session: Session, options: FetchOptions, lock: LockFile, file: Path | None) -> dict[str, Any]:
    """Fetch the entries of a lock into the cache, then write them where `--output` says.

    `file`: the lock, beside which the models may lie; None: it is that of a tag.
    """
    request = options.request
    allowed = RequestOptions(arch=request.arch, consumer=request.consumer, follow_links=request.follow_links)
    if options.batches or request != allowed:
        raise UsageError(
            "The options of a request need a MODEL; without one, all entries of the lock are fetched.",
            hint="Give MODEL as well, or omit the options. --arch alone chooses the entries for one GPU.",
        )
    if options.name:
        raise UsageError("--name needs a MODEL.", hint="Give MODEL as well, or omit --name.")
    lock = _needed(session, options, lock, tagged=file is None)
    base = None if file is None else file.parent
    if base is not None:
        drift.refuse_replaced_models(lock, base, session.cache().memo)
    folders = _folders(options, lock) if options.output is not None else {}
    plan = [_plan_entry(session, options, entry, base) for entry in lock.entries]
    fetched = obtain_programs(session, options, plan)
    for line in (line for each in fetched for line in each.warnings):
        note(f"mxr: warning: {line}")
    rows = [_row(entry, each) for entry, each in zip(lock.entries, fetched, strict=True)]
    for index, placed in _place_layouts(session, plan, fetched, session.connect(offline=options.offline)).items():
        rows[index]["path"] = str(placed.path)
        rows[index]["settings"] = list(placed.settings)
    models_of_lock = [] if file is None else [file, *(file.parent / entry.model for entry in lock.entries)]
    for folder, names in folders.items():
        for index, path in _place_plain(session, options, lock, fetched, Path(folder), names, models_of_lock).items():
            rows[index]["path"] = str(path)
    return {"lock": None if file is None else str(file), "entries": rows}


def _needed(session: Session, options: FetchOptions, lock: LockFile, *, tagged: bool) -> LockFile:
    """The entries to fetch: for `--arch`, of a tag, or in a folder that is not for all GPUs, what this host needs."""
    arch = options.request.arch
    if arch is None and (options.per_arch or (options.output is None and not tagged)):
        return lock
    found = pins.needed_entries(lock, session.host(options.request), arch)
    if left := len(lock.entries) - len(found.entries):
        more = "" if arch else "; --per-arch writes them as well, each GPU's to its own folder"
        note(f"mxr: left out {counted(left, 'entry', 'entries')} of the lock for other GPUs{more}")
    return found


def _folders(options: FetchOptions, lock: LockFile) -> dict[str, dict[int, str]]:
    """The names of the plain files by index of their entries, for each folder. Raises `UsageError` for a conflict."""
    found: dict[str, dict[int, str]] = {}
    grouped: dict[str, list[int]] = {}
    for index, entry in enumerate(lock.entries):
        grouped.setdefault(options.folder_of(entry.request.key), []).append(index)
    for folder, indexes in grouped.items():
        part = LockFile(tuple(lock.entries[index] for index in indexes))
        names = dict(zip(part.entries, part.file_names(placing=True), strict=True))
        plain = {index: name for index in indexes if (name := names[lock.entries[index]]) is not None}
        if plain:
            found[folder] = plain
    return found


def _place_plain(
    session: Session,
    options: FetchOptions,
    lock: LockFile,
    fetched: list[Fetched],
    folder: Path,
    names: dict[int, str],
    models: list[Path],
) -> dict[int, Path]:
    """Write the entries that are one plain file each. Returns the paths by index."""
    from mxr.install.placement import place_files

    rows = {
        name: (fetched[index].answer.artifact, lock.entries[index].request, lock.entries[index].consumer)
        for index, name in names.items()
    }
    place_files(folder, rows, session.cache(), link=options.link, force=options.force, model_files=models)
    return {index: folder / name for index, name in names.items()}


def _plan_entry(session: Session, options: FetchOptions, entry: LockEntry, base: Path | None) -> PlannedProgram:
    """The program of an entry. It has an output where its consumer has a layout of several files."""
    consumer, identity = consumers.find_consumer(entry.consumer), entry.request.key.model
    if options.output is None or consumer.name_file is not None:
        prepared = PreparedRequest.of(entry.request, ModelReference.of_identity(identity), consumer)
        return PlannedProgram(prepared, pinned=(entry,))
    from mxr.install.installer import installer_for

    path, connect = None if base is None else base / entry.model, session.connect(offline=options.offline)
    name = str(path) if path is not None and path.is_file() else identity
    model = models.find_model(name, session.cache(), connect, follow_links=options.request.follow_links)
    output = options.destination(entry.request.key)
    assert output is not None
    recorded = installer_for(consumer).options_in(entry.request.key) or {}
    output = replace(output, consumer_options={**output.consumer_options, **recorded})
    return PlannedProgram(PreparedRequest.of(entry.request, model, consumer), output, pinned=(entry,))


def _place_layouts(
    session: Session, plan: list[PlannedProgram], fetched: list[Fetched], connect: Connect | None
) -> dict[int, Placement]:
    """Write the layouts, after checking that no two entries need different files of one name."""
    from mxr.install import placement
    from mxr.install.installer import installer_for

    cache, layouts = session.cache(), {at: (each.prepared, each.output) for at, each in enumerate(plan) if each.output}
    recorded = {
        index: each
        for index, each in layouts.items()
        if installer_for(each[0].consumer).options_in(each[0].request.key) is not None
    }
    plans = {
        index: placement.plan_layout(fetched[index], cache, *each, connect)
        for index, each in layouts.items()
        if index not in recorded
    }
    digests: dict[tuple[Path, str], str] = {}
    for each in plans.values():
        for piece in each.layout.pieces:
            if digests.setdefault((each.delivery.folder, piece.name), piece.sha256) != piece.sha256:
                raise UsageError(
                    f"Two entries of the lock need a different file {piece.name} in one folder ({each.consumer}).",
                    hint="Choose a GPU with --arch ARCH, give each GPU a folder with --per-arch, or fetch them one "
                    "by one: mxr fetch MODEL ... --locked --name NAME -o FOLDER/.",
                )
    placed = {index: placement.write_plan(each, cache, layouts[index][1]) for index, each in plans.items()}
    for index, (prepared, output) in recorded.items():
        installer = installer_for(prepared.consumer)
        placed[index] = installer.deliver(fetched[index], cache, prepared, output, connect)
    return placed


def _row(entry: LockEntry, fetched: Fetched) -> dict[str, Any]:
    return entry.to_json() | {"path": str(fetched.path), "source": fetched.source}
