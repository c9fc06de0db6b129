"""`mxr fetch --locked`: exactly what a lock names, for one request or for all of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import consumers
from mxr.errors import Mismatch, Usage
from mxr.lockfiles import pins
from mxr.lockfiles.lockfile import FILE_NAME, LockEntry, LockFile, load
from mxr.request.builder import BuiltRequest, Options
from mxr.util import disk
from mxr.workflows.fetch import Connect, Fetched

from .options import Session
from .output import note, watch

if TYPE_CHECKING:
    from mxr.install.placement import OutputRequest, Placement
    from mxr.request.model import ModelReference

    from .call import FetchCall


def fetch_locked(session: Session, call: FetchCall) -> dict[str, Any]:
    """What the lock names, for MODEL and its options, or for all entries; the document."""
    if call.compiles:
        raise Usage("--locked takes what is in the lock; nothing is compiled for it.", hint="Leave --on-miss out.")
    file, model = lock_and_model(call.locked or "", call.model)
    lock = load(file)
    if model is None:
        return _all(session, call, lock, file)
    if call.batches:
        from .sets import fetch_set

        return fetch_set(session, call, lock, model)
    return _one(session, call, lock, model)


def lock_and_model(said: str, model: str | None) -> tuple[Path, str | None]:
    """Which word is the lock and which the model: after `--locked` may stand FILE, or MODEL already.

    A lock begins with a brace, and no ONNX file does.
    """
    if said and model is None and not _is_lock(said):
        return Path(FILE_NAME), said
    return Path(said or FILE_NAME), model


def _is_lock(said: str) -> bool:
    if said.startswith("xxh3:"):
        return False
    path = Path(said)
    if not path.is_file():
        return path.suffix != ".onnx"
    with disk.faults(path, "read"), path.open("rb") as stream:
        return stream.read(1) == b"{"


def _one(session: Session, call: FetchCall, lock: LockFile, model: str) -> dict[str, Any]:
    from mxr.api import prepare

    from .call import handed_out

    cache = session.cache()
    connect = None if call.flags["offline"] else session.client
    subject, asked = prepare(call.options, model, cache, connect, session.host(call.options))
    for line in asked.notes:
        note(f"mxr: {line}")
    wish = call.wish(asked, subject)
    found = pins.fetch(lock, asked.request, cache, connect, watch=watch("fetching"))
    return handed_out(session, wish, found, asked, subject, connect)


def _all(session: Session, call: FetchCall, lock: LockFile, file: Path) -> dict[str, Any]:
    """All entries into the cache, and from there into the folder of `-o`; nothing is put there before all are here."""
    if call.batches or call.options != Options(consumer=call.options.consumer):
        raise Usage(
            "Options of a request go with a MODEL; without one --locked takes all of the lock.",
            hint="Give MODEL too, or leave the options out.",
        )
    if call.flags["name"]:
        raise Usage("--name is for one model.", hint="Give MODEL too, or leave --name out.")
    names = lock.file_names() if call.output is not None else ()
    connect = None if call.flags["offline"] else session.client
    cache = session.cache()
    asked = _layouts(session, call, lock, file) if call.output is not None else {}
    found = [pins.fetch_entry(entry, cache, connect, watch=watch("fetching")) for entry in lock.entries]
    rows = [_row(entry, each) for entry, each in zip(lock.entries, found, strict=True)]
    if call.output is not None:
        for at, placed in _laid(session, asked, found, connect).items():
            rows[at]["path"] = str(placed.path)
            rows[at]["settings"] = list(placed.settings)
        folder = Path(call.output)
        copy = disk.link_whole if call.flags["link"] else disk.copy_whole
        for row, name, each in zip(rows, names, found, strict=True):
            if name is not None:
                copy(each.path, folder / name)
                row["path"] = str(folder / name)
    return {"lock": str(file), "entries": rows}


def _layouts(
    session: Session, call: FetchCall, lock: LockFile, file: Path
) -> dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]]:
    """What is asked of the entries whose consumers take a layout of their own, checked before anything moves."""
    from mxr.request import model as subjects

    connect = None if call.flags["offline"] else session.client
    found: dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]] = {}
    for at, entry in enumerate(lock.entries):
        asked = BuiltRequest(entry.request, consumers.find(entry.consumer), ())
        if asked.consumer.name_file is not None:
            continue
        model = file.parent / entry.model
        subject = subjects.find(str(model) if model.is_file() else entry.request.key.model, session.cache(), connect)
        if subject.model != entry.request.key.model:
            raise Mismatch(
                f"{model} is not the model that was locked.",
                hint="Bring back the model of the lock, or lock anew.",
                detail={"differences": [{"field": "model", "asked": entry.request.key.model, "found": subject.model}]},
            )
        wish = call.wish(asked, subject)
        assert wish is not None
        found[at] = (asked, subject, wish)
    return found


def _laid(
    session: Session,
    asked: dict[int, tuple[BuiltRequest, ModelReference, OutputRequest]],
    found: list[Fetched],
    connect: Connect | None,
) -> dict[int, Placement]:
    """Lays out all of these, once it is known that none would take the place of another."""
    from mxr.install import placement

    cache = session.cache()
    plans = {at: placement.plan(found[at], cache, *each, connect) for at, each in asked.items()}
    owners: dict[str, str] = {}
    for each in plans.values():
        for piece in each.layout.pieces:
            if owners.setdefault(piece.name, piece.sha256) != piece.sha256:
                raise Usage(
                    f"Two entries of the lock would be {piece.name} in one folder ({each.consumer}).",
                    hint="Fetch them one by one: mxr fetch MODEL ... --locked --name NAME -o FOLDER/.",
                )
    return {at: placement.put(each, cache, asked[at][2]) for at, each in plans.items()}


def _row(entry: LockEntry, found: Fetched) -> dict[str, Any]:
    return entry.to_json() | {"path": str(found.path), "source": found.source}
