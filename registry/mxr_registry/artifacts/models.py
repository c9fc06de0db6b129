"""Models: the ONNX models that the registry has or had the bytes of, and what publishers say about others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact import limits
from mxr.artifact.key import MODEL_SHORT
from mxr.artifact.manifest import File
from mxr.artifact.model_files import ModelFiles
from mxr.errors import DamagedError, Json, NoSuchBlobError, NoSuchModelError
from mxr.onnxfile import OnnxInput, OnnxModel, OutputDim, check_names
from mxr.protocol.artifacts import RegisterModel, check_model
from mxr.util.codec import canonical, encode, refuse
from mxr_registry.access.scopes import Caller
from mxr_registry.database.paging import MAX_ROWS, PREFETCHED, cursor, read_cursor, read_page
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ArtifactRow, ModelBlobRow, ModelRow
from mxr_registry.json_text import stored
from mxr_registry.storage.store import Store

from . import blobs
from .inspection import Description

MAX_LISTED = 1_000
ATTEMPTS = 3

DescribeModel = Callable[[File], Description]


def register_model(
    db: Database,
    store: Store,
    describe_model: DescribeModel,
    caller: Caller,
    declared: RegisterModel,
) -> tuple[Json, bool]:
    """Register a model with its bytes. Return it, and whether the registry did not have its bytes.

    `describe_model` returns the description of an ONNX file, or raises `DamagedError`. Raises `NoSuchBlobError`, and
    `DamagedError` if the files are another model, or the ONNX file names other external data than the manifest. Call it
    for one model at a time.
    """
    namespace = caller.namespace
    with db.reading() as session:
        row = _find(session, namespace, declared.identity)
    known = row is not None and row.complete and row.manifest_json == canonical(declared.manifest.to_json())
    verify_identity(db, store, caller, declared, read_bytes=not known)
    description = None
    if not known or row is None or row.graph is None or not _is_whole(json.loads(row.told_json or "{}")):
        description = describe_model(next(file for file in declared.manifest.files if file.name == declared.onnx))
        check_external_data(declared, description)
    model = _write(db, namespace, caller.principal, declared, description)
    return model, row is None or not row.complete


def _write(
    db: Database, namespace: str, created_by: str, declared: RegisterModel, description: Description | None
) -> Json:
    for _ in range(ATTEMPTS):
        try:
            with db.writing() as session:
                save(session, namespace, created_by, declared)
                if description is not None:
                    _save_description(session, namespace, declared.identity, dict(description))
                return show_model(session, namespace, declared.identity)
        except IntegrityError:
            # Another request registered the model at the same time; the next attempt finds it.
            continue
    raise NoSuchBlobError("A blob of this model has just been swept.")


def _save_description(session: Session, namespace: str, model: str, description: dict[str, Any]) -> None:
    inputs = [{"name": row["name"], "type": row["elem_type"], "dims": row["dims"]} for row in description["inputs"]]
    limits.check_inputs([(row["name"], row["dims"] or ()) for row in inputs], "inputs")
    values = {
        "inputs_json": canonical(inputs),
        "graph": description.pop("graph"),
        "told_json": canonical(description),
    }
    session.execute(update(ModelRow).where(ModelRow.namespace == namespace, ModelRow.model == model).values(values))


def verify_identity(
    db: Database, store: Store, caller: Caller, declared: RegisterModel, *, read_bytes: bool = True
) -> None:
    """Compare the identity of a declared model with its manifest. The bytes of each blob were checked when they came.

    `read_bytes`: also read files of several blobs, because nobody hashed these files as a whole. Raises
    `NoSuchBlobError`, `DamagedError`, and `UsageError` for a manifest whose blobs are not the pieces of the identity.
    """
    found = ModelFiles.of(declared.manifest, declared.onnx).model
    if declared.model not in (None, found):
        raise DamagedError(
            f"These files are the model {found}, not {declared.model}.",
            hint="Push the model again. It may have changed while it was read.",
            context={"differences": [{"field": "model", "asked": declared.model, "found": found}]},
        )
    blobs.require_all(db, store, caller.namespace, caller.owner, declared.manifest)
    for file in declared.manifest.files if read_bytes else ():
        if len(file.blobs) > 1:
            blobs.verify_file(store, file)


def check_external_data(declared: RegisterModel, description: Description) -> None:
    """Check that the ONNX file names exactly the external data in the manifest. Raises `DamagedError`.

    A worker gives the model to MIGraphX, which opens each file that the ONNX file names.
    """
    names = {file.name for file in declared.manifest.files} - {declared.onnx}
    onnx = OnnxModel(Path(declared.onnx), 0, (), (), tuple(description["external"]), None, 0, "")
    check_names(onnx, names)


def save(session: Session, namespace: str, created_by: str, declared: RegisterModel) -> None:
    """Save a model that `verify_identity` accepted. A complete model stays as it is."""
    row = session.execute(_select(namespace).where(ModelRow.model == declared.identity).with_for_update()).one_or_none()
    if row is not None and row.complete:
        return
    values: dict[str, Any] = {
        "complete": True,
        "onnx": declared.onnx,
        "manifest_json": canonical(declared.manifest.to_json()),
    }
    if row is None:
        values |= {
            "namespace": namespace,
            "model": declared.identity,
            "created_at": now(session),
            "created_by": created_by,
            "name": declared.name,
        }
        values["inputs_json"] = canonical(encode(declared.inputs))
        session.execute(insert(ModelRow).values(values))
        row = _find(session, namespace, declared.identity)
        assert row is not None
    else:
        session.execute(update(ModelRow).where(ModelRow.seq == row.seq).values(values))
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
    return {"inputs", "outputs", "types", "operators", "weight_dims", "external"} <= found.keys()


def _onnx_value(found: dict[str, Any]) -> OnnxInput:
    dims = found["dims"]
    return OnnxInput(found["name"], found["elem_type"], None if dims is None else tuple(dims))


def is_known(session: Session, namespace: str, model: str) -> bool:
    """Whether the registry knows this model."""
    return _find(session, namespace, model) is not None


def name_of(session: Session, namespace: str, model: str) -> str | None:
    """Return the name with which a model was registered, or None if it was not."""
    query = select(ModelRow.name).where(ModelRow.namespace == namespace, ModelRow.model == model)
    return session.execute(query).scalar()


def label(namespace: Any, model: Any) -> Any:
    """An expression: what a model is called, with which name it was registered, or what its latest publisher says."""
    row, claim = ModelRow, ArtifactRow
    registered = select(row.name).where(row.namespace == namespace, row.model == model)
    claimed = select(claim.model_name).where(claim.namespace == namespace, claim.model == model)
    latest = claimed.order_by(claim.seq.desc()).limit(1)
    return func.coalesce(registered.scalar_subquery(), latest.scalar_subquery())


def called(session: Session, namespace: str, model: str) -> str | None:
    """Return what a model is called, as `label` says."""
    return session.execute(select(label(namespace, model))).scalar()


def show_model(session: Session, namespace: str, model: str) -> Json:
    """Return one model with its manifest.

    A model whose bytes the registry never had is shown as the publishers of its programs describe it, if they agree.
    Raises `NoSuchModelError`.
    """
    row = _find(session, namespace, check_model(model))
    if row is not None:
        return _listed(row) | {"manifest": stored(row.manifest_json)}
    first: dict[str, Any] | None = None
    for claim in _claims(session, namespace, model):
        first = first or claim
        if claim["inputs"] != first["inputs"]:
            raise NoSuchModelError(
                f"The publishers of programs of {model} describe different inputs.",
                hint="Register the model with its bytes (`POST /v1/models`).",
                context={"model": model},
            )
    if first is None:
        raise NoSuchModelError(f"The registry does not know the model {model}.")
    return _claimed(model, first)


def _claims(session: Session, namespace: str, model: str) -> Iterator[dict[str, Any]]:
    """Yield what publishers say about a model, the first publication first, at most `MAX_LISTED` of them."""
    row = ArtifactRow
    query = select(row.claim_json).where(row.namespace == namespace, row.model == model, row.claim_json.is_not(None))
    result = session.execute(query.order_by(row.seq).limit(MAX_LISTED).execution_options(yield_per=PREFETCHED))
    with closing(result):
        before = None
        for text in result.scalars():
            if text is not None and text != before:
                yield json.loads(text)
            before = text


def _claimed(model: str, claim: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "complete": False, "claimed": True, "onnx": None, "manifest": None, **claim}


def list_models(
    session: Session, namespace: str, prefix: str | None = None, after: str | None = None, limit: int = MAX_ROWS
) -> Json:
    """Return one page of models without manifests, newest first. `after`: `next` of the previous page.

    With `prefix`, of the models whose identity begins with it; the last page also has those that are only claimed.
    """
    row = ModelRow
    query = select(row.seq, row.model, row.name, row.inputs_json, row.complete, row.onnx).where(
        row.namespace == namespace
    )
    if after is not None:
        (seq,) = read_cursor("models", after, int)
        query = query.where(row.seq < seq)
    if prefix is not None:
        if not MODEL_SHORT.fullmatch(prefix):
            raise refuse("prefix", "sha256: and 12 to 64 hex digits", prefix)
        query = query.where(row.model.startswith(prefix))
    items, last = read_page(session, query.order_by(row.seq.desc()), _listed, limit)
    if prefix is not None and last is None:
        table = ArtifactRow
        stored = select(row.model).where(row.namespace == namespace)
        models = select(table.model).where(
            table.namespace == namespace, table.model.startswith(prefix), table.model.not_in(stored)
        )
        for model in session.execute(models.distinct().limit(MAX_LISTED)).scalars():
            items.append(_claimed(model, {"name": "model.onnx", "inputs": []}))
    return {"items": items, "next": None if last is None else cursor("models", (last.seq,))}


def _listed(row: Row) -> Json:
    return {
        "model": row.model,
        "name": row.name,
        "inputs": stored(row.inputs_json),
        "complete": row.complete,
        "claimed": False,
        "onnx": row.onnx,
        "manifest": None,
    }
