"""Models: which ONNX model a hash stands for, on a publisher's word or because its bytes are here and were checked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import xxhash
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact.manifest import File, Manifest
from mxr.errors import Conflict, Damaged, NoSuchBlob, NoSuchModel, Usage
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.protocol.artifacts import RegisterModel, check_model, model_identity
from mxr.util.codec import canonical, encode
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ModelBlobRow, ModelRow
from mxr_registry.storage.store import Store

from . import blobs
from .inspection import Description

MOST_LISTED = 1_000
TRIES = 3

Look = Callable[[File], Description | None]

TURNS = tuple(threading.Lock() for _ in range(64))


def register(db: Database, store: Store, look: Look, namespace: str, statement: RegisterModel) -> str:
    """Write down a model, after checking its hash over its bytes where they were sent; its JSON.

    `look` tells what the ONNX file says of itself, or None. Raises `NoSuchBlob`, `Damaged` where the bytes give another
    hash, `Conflict` where it names another model.
    """
    if statement.manifest is None:
        return _write(db, namespace, statement, None)
    # One request at a time reads a model: a fleet that asks for it at once sends it as often.
    with TURNS[hash(statement.model) % len(TURNS)]:
        with db.reading() as session:
            row = _find(session, namespace, statement.model)
        # What is here whole had its bytes checked when they came.
        whole = row is not None and row.complete and row.sha256 == statement.sha256
        verify(db, store, namespace, statement, reading=not whole)
        told = None
        if row is None or row.graph is None:
            told = look(next(file for file in statement.manifest.files if file.name == statement.onnx))
        return _write(db, namespace, statement, told)


def _write(db: Database, namespace: str, statement: RegisterModel, told: Description | None) -> str:
    for _ in range(TRIES):
        try:
            with db.writing() as session:
                state(session, namespace, statement)
                if told is not None:
                    _note(session, namespace, statement.model, dict(told))
                return show(session, namespace, statement.model)
        except IntegrityError:
            # Another registered it at this moment, and the next look finds that.
            continue
    raise NoSuchBlob("A blob of this model was swept meanwhile.")


def _note(session: Session, namespace: str, model: str, told: dict[str, Any]) -> None:
    values = {"graph": told.pop("graph"), "told_json": canonical(told)}
    session.execute(update(ModelRow).where(ModelRow.namespace == namespace, ModelRow.model == model).values(values))


def verify(db: Database, store: Store, namespace: str, statement: RegisterModel, *, reading: bool = True) -> None:
    """Check a statement that came with a manifest, `reading` all of the model. Raises `NoSuchBlob` and `Damaged`."""
    if statement.manifest is None:
        return
    files = {file.name: file for file in statement.manifest.files}
    if statement.onnx not in files:
        raise Usage(f"onnx: there is no file {statement.onnx!r} in the manifest.", hint="Name the ONNX file.")
    blobs.demand(db, store, namespace, statement.manifest)
    identity = model_identity(
        files[statement.onnx].sha256, {name: file.sha256 for name, file in files.items() if name != statement.onnx}
    )
    if identity != statement.sha256:
        raise _wrong("sha256", statement.sha256, identity)
    found = hash_of(store, statement.manifest, statement.onnx) if reading else statement.model
    if found != statement.model:
        raise _wrong("model", statement.model, found)


def _wrong(field: str, asked: str, found: str) -> Damaged:
    return Damaged(
        f"The files of this model give the {field} {found}, not {asked}.",
        hint="Push the model again; it changed while it was read.",
        detail={"differences": [{"field": field, "asked": asked, "found": found}]},
    )


def hash_of(store: Store, manifest: Manifest, onnx: str) -> str:
    """The model's hash: XXH3-128 over the ONNX bytes, then each external file with its name and size before it."""
    found = xxhash.xxh3_128(seed=0)
    external = sorted((file for file in manifest.files if file.name != onnx), key=lambda file: file.name.encode())
    for file in (*(file for file in manifest.files if file.name == onnx), *external):
        if file.name != onnx:
            name = file.name.encode()
            found.update(len(name).to_bytes(4, "little") + name + file.size.to_bytes(8, "little"))
        for data in blobs.contents(store, file):
            found.update(data)
    return f"xxh3:{found.hexdigest()}"


def state(session: Session, namespace: str, statement: RegisterModel) -> None:
    """Write down a statement that was verified before. What was checked replaces what was only said.

    Raises `Conflict` where the hash already stands for another model.
    """
    complete = statement.manifest is not None
    row = session.execute(_select(namespace).where(ModelRow.model == statement.model).with_for_update()).one_or_none()
    if row is not None and row.sha256 != statement.sha256 and (row.complete or not complete):
        raise Conflict(
            f"{statement.model} already stands for another model here.",
            hint="Two models with one hash: change one of them (its doc string, say) and compile it again.",
            detail={"differences": [{"field": "sha256", "asked": statement.sha256, "found": row.sha256}]},
        )
    if row is not None and (row.complete or not complete):
        return
    values: dict[str, Any] = {
        "sha256": statement.sha256,
        "name": statement.name,
        "inputs_json": canonical(encode(statement.inputs)),
        "complete": complete,
        "onnx": statement.onnx,
        "manifest_json": canonical(statement.manifest.to_json()) if statement.manifest else None,
    }
    if row is None:
        values |= {"namespace": namespace, "model": statement.model, "created_at": now(session)}
        session.execute(insert(ModelRow).values(values))
        row = _find(session, namespace, statement.model)
        assert row is not None
    else:
        session.execute(update(ModelRow).where(ModelRow.seq == row.seq).values(values))
    if statement.manifest is not None:
        _bind(session, namespace, row.seq, (blob.sha256 for blob in statement.manifest.blobs()))


def _bind(session: Session, namespace: str, model: int, names: Iterable[str]) -> None:
    session.execute(delete(ModelBlobRow).where(ModelBlobRow.model == model))
    rows = [{"model": model, "namespace": namespace, "sha256": name} for name in names]
    if rows:
        session.execute(insert(ModelBlobRow), rows)


def _find(session: Session, namespace: str, model: str) -> Row | None:
    return session.execute(_select(namespace).where(ModelRow.model == model)).one_or_none()


def _select(namespace: str) -> Any:
    columns = ModelRow.__table__.c
    return select(*columns).where(ModelRow.namespace == namespace)


def told(session: Session, namespace: str, model: str) -> OnnxModel | None:
    """What the ONNX file of a complete model says of itself, as far as it is kept: its inputs, outputs and types."""
    asked = select(ModelRow.told_json).where(
        ModelRow.namespace == namespace, ModelRow.model == model, ModelRow.complete
    )
    text = session.execute(asked).scalar()
    if text is None:
        return None
    found = json.loads(text)
    inputs, outputs = (tuple(map(_end, found[name])) for name in ("inputs", "outputs"))
    return OnnxModel(Path(model), 0, inputs, outputs, (), None, 0, "", frozenset(found["types"]))


def _end(found: dict[str, Any]) -> OnnxInput:
    dims = found["dims"]
    return OnnxInput(found["name"], found["elem_type"], None if dims is None else tuple(dims))


def known(session: Session, namespace: str, model: str) -> bool:
    """Whether the registry knows this model."""
    return _find(session, namespace, model) is not None


def show(session: Session, namespace: str, model: str) -> str:
    """The JSON of one model, with its manifest. Raises `NoSuchModel`."""
    row = _find(session, namespace, check_model(model))
    if row is None:
        raise NoSuchModel(f"The registry does not know the model {model}.")
    return _written(row, row.manifest_json)


def listed(session: Session, namespace: str) -> str:
    """The JSON of the newest models, without their manifests."""
    rows = session.execute(_select(namespace).order_by(ModelRow.seq.desc()).limit(MOST_LISTED))
    return '{"models":[' + ",".join(_written(row, None) for row in rows) + "]}"


def _written(row: Row, manifest: str | None) -> str:
    name, onnx, complete = (json.dumps(each) for each in (row.name, row.onnx, row.complete))
    return (
        f'{{"model":"{row.model}","sha256":"{row.sha256}","name":{name},"inputs":{row.inputs_json},'
        f'"complete":{complete},"onnx":{onnx},"manifest":{manifest or "null"}}}'
    )
