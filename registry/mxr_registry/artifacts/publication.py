"""Publish an artifact after verifying its bytes and checking its program against its key.

    check that all blobs exist -> read every file -> describe the programs -> one transaction: model, artifact, blobs

Only the last step runs in a transaction. Database constraints resolve concurrent publications of the same artifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact import model_evidence, program_evidence
from mxr.artifact.key import Difference
from mxr.artifact.manifest import File, Manifest, artifact_id
from mxr.errors import Mismatch, NoSuchBlob, Usage
from mxr.protocol.artifacts import Publish
from mxr.util.codec import canonical
from mxr_registry.database.session import Database, Session, now
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactInputRow, ArtifactRow
from mxr_registry.storage.store import Store

from . import blobs, catalog, models
from .inspection import Description

Inspect = Callable[[Sequence[File]], tuple[Description, ...]]

ATTEMPTS = 4
"""Attempts of the last step: another request may write the artifact, the model or both first."""


@dataclass(frozen=True, slots=True)
class CheckedPublication:
    """A publication with verified bytes and programs that match its key.

    `repairs`: the artifact already exists, and the store has lost blobs of its current manifest.
    """

    wanted: Publish
    digest: str
    id: str
    stated: tuple[str, ...]
    description: Description
    repairs: bool = False


def publish(db: Database, store: Store, inspect: Inspect, namespace: str, wanted: Publish) -> tuple[str, bool]:
    """Publish an artifact. Returns its JSON and whether it is new.

    Raises `NoSuchBlob`, `Damaged`, `DamagedBlob`, `Mismatch` if a program contradicts its key, and `Conflict`.
    """
    checked = check(db, store, inspect, namespace, wanted)
    checked = replace(checked, description=_with_warnings(checked, _check_model(db, namespace, checked)))
    for _ in range(ATTEMPTS):
        try:
            with db.writing() as session:
                new = record(session, namespace, checked)
                return catalog.show(session, namespace, checked.id), new
        except IntegrityError:
            # Another request wrote the same artifact or its model at the same time; the next attempt finds it.
            continue
    raise NoSuchBlob("A blob of this artifact has just been swept.")


def check(db: Database, store: Store, inspect: Inspect, namespace: str, wanted: Publish) -> CheckedPublication:
    """Run all checks that precede the transaction: read every byte, describe the programs, compare them with the key.

    Raises the errors of `publish` except `Conflict`, and `Usage`.
    """
    files = wanted.manifest.files
    if wanted.key.form == "whole" and len(files) != 1:
        raise Usage(
            f"An artifact of form `whole` has one file, but this manifest has {len(files)}.",
            hint="Publish each program separately.",
        )
    blobs.require_all(db, store, namespace, wanted.manifest)
    for file in files:
        for _ in blobs.contents(store, file):
            pass
    descriptions = inspect(files)
    refuse_contradictions(wanted, files, descriptions)
    if wanted.model is not None:
        models.verify(db, store, namespace, wanted.model)
    digest = wanted.key.digest
    stated = {name for each in descriptions for name in program_evidence.stated(wanted.key, wanted.qualities, each)}
    id = artifact_id(digest, files)
    repairs = _lost_blobs(db, store, namespace, id)
    return CheckedPublication(wanted, digest, id, tuple(sorted(stated)), _joined(files, descriptions), repairs)


def _check_model(db: Database, namespace: str, checked: CheckedPublication) -> tuple[str, ...]:
    """Raises `Mismatch` for a program that cannot come from its model, if the registry has the model's ONNX file.

    Returns the warnings about a program that may come from it. Programs of workers skip this check: a worker compiles
    this very file with the options of the key.
    """
    key = checked.wanted.key
    with db.reading() as session:
        model = models.description_of(session, namespace, key.model) if key.form == "whole" else None
    if model is None:
        return ()
    found = model_evidence.contradictions(key, model, checked.description)
    if found:
        raise Mismatch(
            f"This program cannot come from the model {key.model}: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it with the model and the precision with which it was compiled.",
            detail={"differences": [each.to_json() for each in found]},
        )
    return model_evidence.warnings(model, checked.description)


def _with_warnings(checked: CheckedPublication, about_model: Sequence[str]) -> Description:
    """Returns the description of the program, with the warnings about its label after its own."""
    found = [*program_evidence.warnings(checked.wanted.key, checked.description), *about_model]
    if not found:
        return checked.description
    return {**checked.description, "warnings": [*checked.description.get("warnings", ()), *found]}


def _lost_blobs(db: Database, store: Store, namespace: str, id: str) -> bool:
    """Whether the artifact exists and the store lacks bytes of its manifest."""
    with db.reading() as session:
        if not catalog.has(session, namespace, id):
            return False
        row = catalog.find(session, namespace, id)
    needed = list(Manifest.from_json(json.loads(row.manifest_json)).blobs())
    stored = store.stats(blob.sha256 for blob in needed)
    return any(stored.get(blob.sha256) != blob.size for blob in needed)


def refuse_contradictions(wanted: Publish, files: Iterable[File], descriptions: Iterable[Description]) -> None:
    """Check programs against the key. Raises `Mismatch`, which lists each field as stated by key and program."""
    found: list[Difference] = []
    names = []
    for file, description in zip(files, descriptions, strict=True):
        against = program_evidence.contradictions(wanted.key, wanted.qualities, description)
        found += [each for each in against if each not in found]
        names += [file.name] if against else []
    if found:
        raise Mismatch(
            f"{names[0]} does not match its key: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it under the key that it was compiled for; `mxr inspect FILE` shows its contents.",
            detail={
                "differences": [each.to_json() for each in found],
                "files": names,
            },
        )


def _joined(files: Sequence[File], descriptions: Sequence[Description]) -> Description:
    if len(files) == 1:
        return descriptions[0]
    return {"files": {file.name: each for file, each in zip(files, descriptions, strict=True)}}


def record(session: Session, namespace: str, checked: CheckedPublication) -> bool:
    """Write a checked publication within the caller's transaction. Returns whether the artifact is new.

    An existing artifact keeps its manifest, unless `checked.repairs`: then the new manifest replaces it.
    """
    if checked.wanted.model is not None:
        models.save(session, namespace, checked.wanted.model)
    row = ArtifactRow
    # The row lock keeps other requests from removing or repairing the artifact before this transaction ends.
    query = select(row.seq).where(row.namespace == namespace, row.id == checked.id).with_for_update(key_share=True)
    existing = session.execute(query).scalar()
    if existing is not None:
        if checked.repairs:
            manifest = canonical(checked.wanted.manifest.to_json())
            session.execute(update(row).where(row.seq == existing).values(manifest_json=manifest))
            _bind(session, namespace, existing, checked.wanted.manifest)
        return False
    seq = session.execute(insert(row).values(_values(session, namespace, checked)).returning(row.seq)).scalar_one()
    _bind(session, namespace, seq, checked.wanted.manifest)
    inputs = [{"artifact": seq, "name": name} for name, _ in checked.wanted.key.inputs]
    if inputs:
        session.execute(insert(ArtifactInputRow), inputs)
    return True


def _bind(session: Session, namespace: str, artifact: int, manifest: Manifest) -> None:
    session.execute(delete(ArtifactBlobRow).where(ArtifactBlobRow.artifact == artifact))
    rows = [{"artifact": artifact, "namespace": namespace, "sha256": blob.sha256} for blob in manifest.blobs()]
    if rows:
        session.execute(insert(ArtifactBlobRow), rows)


def _values(session: Session, namespace: str, checked: CheckedPublication) -> dict[str, Any]:
    wanted, key, moment = checked.wanted, checked.wanted.key, now(session)
    return {
        "namespace": namespace,
        "id": checked.id,
        "digest": checked.digest,
        "model": key.model,
        "kind": key.kind,
        "vendor": key.vendor,
        "arch": key.arch,
        "migraphx": key.migraphx,
        "rocm": key.rocm,
        "precision": "+".join(key.precision) or "fp32",
        "sha256": wanted.manifest.sha256,
        "size": wanted.manifest.size,
        "key_json": key.canonical,
        "qualities_json": canonical(wanted.qualities.to_json()),
        "provenance_json": canonical(dict(wanted.provenance)),
        "stated_json": canonical(list(checked.stated)),
        "names_json": canonical([file.name for file in wanted.manifest.files]),
        "published_at": moment,
        "used_at": moment,
        "promoted_at": None,
        "promoted": 0,
        "manifest_json": canonical(wanted.manifest.to_json()),
        "description_json": canonical(dict(checked.description)),
    }
