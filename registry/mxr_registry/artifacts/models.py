"""Models: the ONNX models that hashes stand for, either declared by a publisher or verified from their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import xxhash
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact.manifest import File, Manifest
from mxr.errors import Conflict, Damaged, NoSuchBlob, NoSuchModel, Usage
from mxr.onnxfile import OnnxInput, OnnxModel, OutputDim
from mxr.protocol.artifacts import RegisterModel, check_model, model_identity
from mxr.util.codec import canonical, encode
from mxr.util.hashing import external_header, hash_chunks
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ModelBlobRow, ModelRow
from mxr_registry.storage.store import Store

from . import blobs
from .inspection import Description

MOST_LISTED = 1_000
ATTEMPTS = 3

DescribeModel = Callable[[File], Description | None]


def register(db: Database, store: Store, describe_model: DescribeModel, namespace: str, declared: RegisterModel) -> str:
    """Register a model and return its JSON. With a manifest, verify its hash over its bytes first.

    `describe_model` returns the description of an ONNX file, or None. Raises `NoSuchBlob`, `Damaged` if the bytes have
    another hash, and `Conflict` if the hash already belongs to another model. Call it for one model at a time.
    """
    if declared.manifest is None:
        return _write(db, namespace, declared, None)
    with db.reading() as session:
        row = _find(session, namespace, declared.model)
    # The bytes of a complete model were verified when it was registered.
    verified = row is not None and row.complete and row.sha256 == declared.sha256
    verify(db, store, namespace, declared, read_bytes=not verified)
    description = None
    if row is None or row.graph is None or not _is_whole(json.loads(row.told_json or "{}")):
        description = describe_model(next(file for file in declared.manifest.files if file.name == declared.onnx))
    return _write(db, namespace, declared, description)


def _write(db: Database, namespace: str, declared: RegisterModel, description: Description | None) -> str:
    for _ in range(ATTEMPTS):
        try:
            with db.writing() as session:
                save(session, namespace, declared)
                if description is not None:
                    _save_description(session, namespace, declared.model, dict(description))
                return show(session, namespace, declared.model)
        except IntegrityError:
            # Another request registered the model at the same time; the next attempt finds it.
            continue
    raise NoSuchBlob("A blob of this model has just been swept.")


def _save_description(session: Session, namespace: str, model: str, description: dict[str, Any]) -> None:
    values = {"graph": description.pop("graph"), "told_json": canonical(description)}
    session.execute(update(ModelRow).where(ModelRow.namespace == namespace, ModelRow.model == model).values(values))


def verify(db: Database, store: Store, namespace: str, declared: RegisterModel, *, read_bytes: bool = True) -> None:
    """Verify a declared model with a manifest. `read_bytes`: also hash all of its bytes.

    Raises `NoSuchBlob` and `Damaged`.
    """
    if declared.manifest is None:
        return
    files = {file.name: file for file in declared.manifest.files}
    if declared.onnx not in files:
        raise Usage(
            f"onnx: there is no file {declared.onnx!r} in the manifest.", hint="Give the name of the ONNX file."
        )
    blobs.require_all(db, store, namespace, declared.manifest)
    identity = model_identity(
        files[declared.onnx].sha256, {name: file.sha256 for name, file in files.items() if name != declared.onnx}
    )
    if identity != declared.sha256:
        raise _wrong_hash("sha256", declared.sha256, identity)
    found = hash_of(store, declared.manifest, declared.onnx) if read_bytes else declared.model
    if found != declared.model:
        raise _wrong_hash("model", declared.model, found)


def _wrong_hash(field: str, declared: str, found: str) -> Damaged:
    return Damaged(
        f"The files of this model have the {field} {found}, not {declared}.",
        hint="Push the model again. It may have changed while it was read.",
        detail={"differences": [{"field": field, "asked": declared, "found": found}]},
    )


def hash_of(store: Store, manifest: Manifest, onnx: str) -> str:
    """Return the model's hash: XXH3-128 over the ONNX bytes, then for each external file its name, size and bytes."""
    found = xxhash.xxh3_128(seed=0)
    external = sorted((file for file in manifest.files if file.name != onnx), key=lambda file: file.name.encode())
    for file in (*(file for file in manifest.files if file.name == onnx), *external):
        if file.name != onnx:
            found.update(external_header(file.name, file.size))
        hash_chunks(blobs.contents(store, file), found)
    return f"xxh3:{found.hexdigest()}"


def save(session: Session, namespace: str, declared: RegisterModel) -> None:
    """Save a model that `verify` accepted. A verified model replaces one that was only declared.

    Raises `Conflict` if the hash already belongs to another model.
    """
    complete = declared.manifest is not None
    row = session.execute(_select(namespace).where(ModelRow.model == declared.model).with_for_update()).one_or_none()
    if row is not None and row.sha256 != declared.sha256 and (row.complete or not complete):
        raise Conflict(
            f"{declared.model} already belongs to another model in this registry.",
            hint="Two models have the same hash. Change one of them, for example its doc string, and compile it again.",
            detail={"differences": [{"field": "sha256", "asked": declared.sha256, "found": row.sha256}]},
        )
    if row is not None and (row.complete or not complete):
        return
    values: dict[str, Any] = {
        "sha256": declared.sha256,
        "name": declared.name,
        "inputs_json": canonical(encode(declared.inputs)),
        "complete": complete,
        "onnx": declared.onnx,
        "manifest_json": canonical(declared.manifest.to_json()) if declared.manifest else None,
    }
    if row is None:
        values |= {"namespace": namespace, "model": declared.model, "created_at": now(session)}
        session.execute(insert(ModelRow).values(values))
        row = _find(session, namespace, declared.model)
        assert row is not None
    else:
        session.execute(update(ModelRow).where(ModelRow.seq == row.seq).values(values))
    if declared.manifest is not None:
        _bind(session, namespace, row.seq, (blob.sha256 for blob in declared.manifest.blobs()))


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


def description_of(session: Session, namespace: str, model: str) -> OnnxModel | None:
    """Return the saved description of a complete model's ONNX file, or None if there is none that is whole."""
    query = select(ModelRow.told_json).where(
        ModelRow.namespace == namespace, ModelRow.model == model, ModelRow.complete
    )
    text = session.execute(query).scalar()
    found = json.loads(text or "{}")
    if not _is_whole(found):
        return None
    inputs, outputs = (tuple(map(_onnx_value, found[name])) for name in ("inputs", "outputs"))
    types, operators = frozenset(found["types"]), frozenset(found["operators"])
    dims = tuple((name, OutputDim(*dim)) for name, dim in found["weight_dims"].items())
    return OnnxModel(Path(model), 0, inputs, outputs, (), None, 0, "", types, operators, dims)


def _is_whole(found: dict[str, Any]) -> bool:
    """Whether a description has all facts. A model with an older one is described again when it is registered again."""
    return {"inputs", "outputs", "types", "operators", "weight_dims"} <= found.keys()


def _onnx_value(found: dict[str, Any]) -> OnnxInput:
    dims = found["dims"]
    return OnnxInput(found["name"], found["elem_type"], None if dims is None else tuple(dims))


def known(session: Session, namespace: str, model: str) -> bool:
    """Whether the registry knows this model."""
    return _find(session, namespace, model) is not None


def show(session: Session, namespace: str, model: str) -> str:
    """Return the JSON of one model with its manifest. Raises `NoSuchModel`."""
    row = _find(session, namespace, check_model(model))
    if row is None:
        raise NoSuchModel(f"The registry does not know the model {model}.")
    return _to_json(row, row.manifest_json)


def listed(session: Session, namespace: str) -> str:
    """Return the JSON of the newest models without their manifests."""
    rows = session.execute(_select(namespace).order_by(ModelRow.seq.desc()).limit(MOST_LISTED))
    return '{"models":[' + ",".join(_to_json(row, None) for row in rows) + "]}"


def _to_json(row: Row, manifest: str | None) -> str:
    name, onnx, complete = (json.dumps(each) for each in (row.name, row.onnx, row.complete))
    return (
        f'{{"model":"{row.model}","sha256":"{row.sha256}","name":{name},"inputs":{row.inputs_json},'
        f'"complete":{complete},"onnx":{onnx},"manifest":{manifest or "null"}}}'
    )
