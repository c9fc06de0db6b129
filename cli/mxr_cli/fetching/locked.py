"""`mxr fetch --locked`: exactly the artifacts that a lock file names, for one request or for all entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import consumers
from mxr.artifact.key import MODEL_PREFIX, OLD_MODEL
from mxr.errors import MismatchError, UsageError
from mxr.lockfiles import pins
from mxr.lockfiles.lockfile import FILE_NAME, LockEntry, LockFile, load
from mxr.request.builder import BuiltRequest, Options
from mxr.util import disk
from mxr_cli.output import note, transfer_progress

if TYPE_CHECKING:
    from mxr.install.placement import OutputRequest, Placement
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Connect, Fetched
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch_locked(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch what a lock names for MODEL and its options, or all of its entries. Returns the JSON document."""
    if options.on_miss.compiles:
        raise UsageError("--locked fetches what the lock names and never compiles.", hint="Leave --on-miss out.")
    file, model = lock_and_model(options.locked or "", options.model)
    lock = load(file)
    if model is None:
        return _fetch_all(session, options, lock, file)
    options = replace(options, model=model)
    if options.batches:
        from .variant_set import fetch_set

        return fetch_set(session, options, lock)
    return _fetch_one(session, options, lock, model)


def lock_and_model(value: str, model: str | None) -> tuple[Path, str | None]:
    """The lock file and the model, from the value of `--locked` and MODEL.

    FILE is optional, so that the value is MODEL in `mxr fetch --locked MODEL`. A lock starts with a brace; no ONNX file
    does.
    """
    if value and model is None and not _is_lock(value):
        return Path(FILE_NAME), value
    return Path(value or FILE_NAME), model


def _is_lock(value: str) -> bool:
    if value.startswith((MODEL_PREFIX, OLD_MODEL)):
        return False
    path = Path(value)
    if not path.is_file():
        return path.suffix != ".onnx"
    with disk.faults(path, "read"), path.open("rb") as stream:
        return stream.read(1) == b"{"


def _fetch_one(session: Session, options: FetchOptions, lock: LockFile, model: str) -> dict[str, Any]:
    from mxr.request import model as models

    from .program import deliver

    cache, connect, request = session.cache(), session.connect(offline=options.offline), options.request
    subject = models.find(model, cache, connect, follow_links=request.follow_links)
    asked = pins.ask(lock, request, subject, session.host(request))
    for line in asked.notes:
        note(f"mxr: {line}")
    output = options.output_request(asked, subject)
    fetched = pins.fetch(lock, asked.request, cache, connect, watch=transfer_progress("fetching"))
    return deliver(session, output, fetched, asked, subject, connect)


def _fetch_all(session: Session, options: FetchOptions, lock: LockFile, file: Path) -> dict[str, Any]:
    """Fetch all entries into the cache, then write them where `--output` says."""
    if options.batches or options.request != Options(
        consumer=options.request.consumer, follow_links=options.request.follow_links
    ):
        raise UsageError(
            "The options of a request need a MODEL; without one, --locked fetches all entries of the lock.",
            hint="Give MODEL as well, or leave the options out.",
        )
    if options.name:
        raise UsageError("--name needs a MODEL.", hint="Give MODEL as well, or leave --name out.")
    from mxr.install.placement import place_files

    cache, connect = session.cache(), session.connect(offline=options.offline)
    names = lock.file_names(placing=True) if options.output is not None else ()
    layouts = _check_layouts(session, options, lock, file) if options.output is not None else {}
    fetched = [pins.fetch_entry(entry, cache, connect, watch=transfer_progress("fetching")) for entry in lock.entries]
    for line in (line for each in fetched for line in each.warnings):
        note(f"mxr: warning: {line}")
    rows = [_row(entry, each) for entry, each in zip(lock.entries, fetched, strict=True)]
    if options.output is not None:
        for index, placed in _place_layouts(session, layouts, fetched, connect).items():
            rows[index]["path"] = str(placed.path)
            rows[index]["settings"] = list(placed.settings)
        folder = Path(options.output)
        plain = {
            name: (each.answer.artifact, entry.request.key, entry.consumer)
            for entry, name, each in zip(lock.entries, names, fetched, strict=True)
            if name is not None
        }
        if plain:
            models = [file.parent / entry.model for entry in lock.entries]
            place_files(
                folder, plain, session.cache(), link=options.link, force=options.force, model_files=[*models, file]
            )
        for row, name in zip(rows, names, strict=True):
            if name is not None:
                row["path"] = str(folder / name)
    return {"lock": str(file), "entries": rows}


def _check_layouts(
    session: Session, options: FetchOptions, lock: LockFile, file: Path
) -> dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]]:
    """The entries for consumers with a layout of several files, by index, checked before anything is fetched."""
    from mxr.request import model as models

    connect = session.connect(offline=options.offline)
    found: dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]] = {}
    for index, entry in enumerate(lock.entries):
        asked = BuiltRequest(entry.request, consumers.find(entry.consumer), ())
        if asked.consumer.name_file is not None:
            continue
        locked = entry.request.key.model
        model = file.parent / entry.model
        subject = models.find(
            str(model) if model.is_file() else locked,
            session.cache(),
            connect,
            follow_links=options.request.follow_links,
        )
        if subject.model != locked:
            raise MismatchError(
                f"{model} is not the model that was locked.",
                hint="Restore the locked model, or run mxr lock again.",
                detail={"differences": [{"field": "model", "asked": locked, "found": subject.model}]},
            )
        output = options.output_request(asked, subject)
        assert output is not None
        found[index] = (asked, subject, output)
    return found


def _place_layouts(
    session: Session,
    layouts: dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]],
    fetched: list[Fetched],
    connect: Connect | None,
) -> dict[int, Placement]:
    """Write the layouts, after checking that no two entries need different files of one name."""
    from mxr.install import placement

    cache = session.cache()
    plans = {index: placement.plan(fetched[index], cache, *each, connect) for index, each in layouts.items()}
    digests: dict[str, str] = {}
    for each in plans.values():
        for piece in each.layout.pieces:
            if digests.setdefault(piece.name, piece.sha256) != piece.sha256:
                raise UsageError(
                    f"Two entries of the lock need a different file {piece.name} in one folder ({each.consumer}).",
                    hint="Fetch them one by one: mxr fetch MODEL ... --locked --name NAME -o FOLDER/.",
                )
    return {index: placement.put(each, cache, layouts[index][2], layouts[index][1]) for index, each in plans.items()}


def _row(entry: LockEntry, fetched: Fetched) -> dict[str, Any]:
    return entry.to_json() | {"path": str(fetched.path), "source": fetched.source}
