"""Publishing: an artifact becomes visible after its bytes were checked and its program agreed with its key.

    demand the blobs -> read every file once -> let the program speak -> one transaction: model, artifact, its blobs

All but the last step holds no transaction. Constraints of the database decide between two who publish at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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

TRIES = 4
"""Of the last step: artifact and model can each be written by another first, and only a lost blob stays lost."""


@dataclass(frozen=True, slots=True)
class CheckedPublication:
    """A publication whose bytes are right and whose programs do not contradict it.

    `repairs`: the artifact is here already, and the store lost blobs of its first manifest.
    """

    wanted: Publish
    digest: str
    id: str
    stated: tuple[str, ...]
    description: Description
    repairs: bool = False


def publish(db: Database, store: Store, inspect: Inspect, namespace: str, wanted: Publish) -> tuple[str, bool]:
    """Publish an artifact: its JSON, and whether it is new here.

    Raises `NoSuchBlob`, `Damaged`, `DamagedBlob`, `Mismatch` where a program contradicts its key, and `Conflict`.
    """
    checked = check(db, store, inspect, namespace, wanted)
    _refuse_other_models(db, namespace, checked)
    for _ in range(TRIES):
        try:
            with db.writing() as session:
                new = record(session, namespace, checked)
                return catalog.show(session, namespace, checked.id), new
        except IntegrityError:
            # Another wrote the same artifact or its model at this moment, and the next look finds that.
            continue
    raise NoSuchBlob("A blob of this artifact was swept meanwhile.")


def check(db: Database, store: Store, inspect: Inspect, namespace: str, wanted: Publish) -> CheckedPublication:
    """All that has to be right before the transaction: reads every byte, and runs the reader of programs."""
    files = wanted.manifest.files
    if wanted.key.form == "whole" and len(files) != 1:
        raise Usage(
            f"An artifact of the form whole is one file, and this manifest has {len(files)}.",
            hint="Publish each program by itself.",
        )
    blobs.demand(db, store, namespace, wanted.manifest)
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
    repairs = _lost(db, store, namespace, id)
    return CheckedPublication(wanted, digest, id, tuple(sorted(stated)), _together(files, descriptions), repairs)


def _refuse_other_models(db: Database, namespace: str, checked: CheckedPublication) -> None:
    """Raises `Mismatch` for a program that cannot come from its model, where that one's ONNX file is here.

    A worker's program is not held against it: it was compiled from this very file, with the options of its key.
    """
    key = checked.wanted.key
    with db.reading() as session:
        model = models.told(session, namespace, key.model) if key.form == "whole" else None
    found = model_evidence.contradictions(key, model, checked.description) if model is not None else ()
    if found:
        raise Mismatch(
            f"This program cannot come from the model {key.model}: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it with the model and the precision that it was compiled from and with.",
            detail={"differences": [each.to_json() for each in found]},
        )


def _lost(db: Database, store: Store, namespace: str, id: str) -> bool:
    with db.reading() as session:
        if not catalog.has(session, namespace, id):
            return False
        row = catalog.find(session, namespace, id)
    first = Manifest.from_json(json.loads(row.manifest_json))
    named = list(first.blobs())
    stored = store.stats(blob.sha256 for blob in named)
    return any(stored.get(blob.sha256) != blob.size for blob in named)


def refuse_contradictions(wanted: Publish, files: Iterable[File], descriptions: Iterable[Description]) -> None:
    """Raises `Mismatch` that lists each field as the key asks and as a program says."""
    found: list[Difference] = []
    names = []
    for file, description in zip(files, descriptions, strict=True):
        against = program_evidence.contradictions(wanted.key, wanted.qualities, description)
        found += [each for each in against if each not in found]
        names += [file.name] if against else []
    if found:
        raise Mismatch(
            f"{names[0]} is not what its key says: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it under the key that it was compiled for: `mxr inspect` shows what the file tells.",
            detail={
                "differences": [each.to_json() for each in found],
                "files": names,
            },
        )


def _together(files: Sequence[File], descriptions: Sequence[Description]) -> Description:
    if len(files) == 1:
        return descriptions[0]
    return {"files": {file.name: each for file, each in zip(files, descriptions, strict=True)}}


def record(session: Session, namespace: str, checked: CheckedPublication) -> bool:
    """Write a checked publication down, within the caller's transaction; whether it is new here.

    What is here keeps its first manifest, unless blobs of that one were lost: then the new one repairs it.
    """
    if checked.wanted.model is not None:
        models.state(session, namespace, checked.wanted.model)
    row = ArtifactRow
    # Locked, so that nobody removes or repairs it before the answer is given.
    here = select(row.seq).where(row.namespace == namespace, row.id == checked.id).with_for_update(key_share=True)
    found = session.execute(here).scalar()
    if found is not None:
        if checked.repairs:
            manifest = canonical(checked.wanted.manifest.to_json())
            session.execute(update(row).where(row.seq == found).values(manifest_json=manifest))
            _bind(session, namespace, found, checked.wanted.manifest)
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
