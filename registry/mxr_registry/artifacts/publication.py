"""Publish an artifact after verifying its bytes and checking its program against its key.

    check that all blobs exist -> read every file -> describe the programs -> one transaction: model, artifact, blobs

Only the last step runs in a transaction. Database constraints resolve concurrent publications of the same artifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mxr.artifact import limits, matching, model_evidence, program_evidence
from mxr.artifact.key import TARGET, Difference
from mxr.artifact.manifest import File, Manifest, artifact_id
from mxr.artifact.target import show_precision
from mxr.errors import ConflictError, Json, MismatchError, MxrError, NoSuchBlobError, UsageError
from mxr.protocol.artifacts import Publish
from mxr.util.codec import canonical, decode, encode
from mxr_registry.database import trail
from mxr_registry.database.session import Database, Session, now
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactInputRow, ArtifactRow
from mxr_registry.storage.store import Store

from . import amendment, blobs, catalog, models, recalls, statements
from .amendment import CheckedPublication, PublicationSource
from .inspection import Description

Inspect = Callable[[Sequence[File]], tuple[Description, ...]]

ATTEMPTS = 4
"""Attempts of the last step: another request may write the artifact, the model or both first."""


@dataclass(frozen=True, slots=True)
class RecordedPublication:
    """The result of a publication. `problem`: the existing artifact has other facts, which were not replaced."""

    new: bool
    problem: MxrError | None = None


def publish(
    db: Database, store: Store, inspect: Inspect, namespace: str, source: PublicationSource, message: Publish
) -> tuple[Json, bool]:
    """Publish an artifact for a publisher and return it.

    Raises `NoSuchBlobError`, `DamagedError`, `MismatchError` if a program contradicts its key,
    `ConflictError` for bytes of another model, bytes that were published with other facts, and an artifact that was
    removed, and `NotAllowedError` for an amendment by somebody else, or if it was removed by somebody else.
    """
    checked = check_publication(db, store, inspect, namespace, message, source)
    checked = replace(checked, description=_with_warnings(checked, _check_model(db, namespace, checked)))
    for _ in range(ATTEMPTS):
        try:
            with db.writing() as session:
                found = write_artifact(session, namespace, checked)
                artifact = catalog.show_artifact(session, namespace, checked.id)
        except IntegrityError:
            # Another request wrote the same artifact or its model at the same time; the next attempt finds it.
            continue
        if found.problem is not None:
            raise found.problem
        return artifact, found.new
    raise NoSuchBlobError("A blob of this artifact has just been swept.")


def check_publication(
    db: Database, store: Store, inspect: Inspect, namespace: str, message: Publish, source: PublicationSource
) -> CheckedPublication:
    """Run all checks that precede the transaction: read every byte, describe the programs, compare them with the key.

    Raises the errors of `publish` except `ConflictError`, and `UsageError`.
    """
    files = message.manifest.files
    if message.key.form == "whole" and len(files) != 1:
        raise UsageError(
            f"An artifact of form `whole` has one file, but this manifest has {len(files)}.",
            hint="Publish each program separately.",
        )
    blobs.require_all(db, store, namespace, source.uploader, message.manifest)
    for file in files:
        blobs.verify_file(store, file)
    descriptions = inspect(files)
    refuse_contradictions(message, files, descriptions)
    message = _with_libraries(message, descriptions)
    speaker = matching.WORKER if source.origin == matching.BUILT else matching.PUBLISHER
    sources = program_evidence.sources(message.key, message.attributes, descriptions, speaker)
    digest = message.key.digest
    id = artifact_id(digest, files)
    repairs = _lacks_blobs(db, store, namespace, id)
    return CheckedPublication(message, source, digest, id, sources, _joined(files, descriptions), repairs)


def _with_libraries(message: Publish, descriptions: Sequence[Description]) -> Publish:
    """Add the libraries that the programs call: they tie a program to its ROCm patch, whatever the publisher says."""
    found = (
        {name for description in descriptions for name in description.get("libraries") or ()}
        if message.key.kind == "gpu"
        else ()
    )
    libraries = (*message.attributes.libraries, *found)
    return replace(message, attributes=replace(message.attributes, libraries=libraries))


def _check_model(db: Database, namespace: str, checked: CheckedPublication) -> tuple[str, ...]:
    """Raise `MismatchError` for a program that cannot come from its model, if the registry has the model's ONNX file.

    Returns the warnings about a program that may come from it. Programs of workers skip this check: a worker compiles
    this very file with the options of the key.
    """
    key = checked.message.key
    with db.reading() as session:
        model = models.description_of(session, namespace, key.model) if key.form == "whole" else None
    if model is None:
        return ()
    found = model_evidence.contradictions(key, model, checked.description)
    if found:
        raise MismatchError(
            f"This program cannot come from the model {key.model}: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it with the model and the precision with which it was compiled.",
            context={"differences": [each.to_json() for each in found]},
        )
    return model_evidence.warnings(model, checked.description)


def _with_warnings(checked: CheckedPublication, about_model: Sequence[str]) -> Description:
    """Return the description of the program, with the warnings about its label after its own."""
    found = [*program_evidence.warnings(checked.message.key, checked.description), *about_model]
    if not found:
        return checked.description
    return {**checked.description, "warnings": [*checked.description.get("warnings", ()), *found]}


def _lacks_blobs(db: Database, store: Store, namespace: str, id: str) -> bool:
    """Whether the artifact exists and the store lacks bytes of its manifest."""
    with db.reading() as session:
        if not catalog.has_artifact(session, namespace, id):
            return False
        row = catalog.find_artifact(session, namespace, id)
    needed = list(decode(Manifest, json.loads(row.manifest_json), "manifest").blobs())
    stored = store.stats(blob.sha256 for blob in needed)
    return any(stored.get(blob.sha256) != blob.size for blob in needed)


def refuse_contradictions(message: Publish, files: Iterable[File], descriptions: Iterable[Description]) -> None:
    """Check programs against the key. Raises `MismatchError`, which lists each field as stated by key and program."""
    found: list[Difference] = []
    names = []
    for file, description in zip(files, descriptions, strict=True):
        against = program_evidence.contradictions(message.key, message.attributes, description)
        found += [each for each in against if each not in found]
        names += [file.name] if against else []
    if found:
        raise MismatchError(
            f"{names[0]} does not match its key: {'; '.join(map(str, found[:3]))}.",
            hint="Publish it under the key that it was compiled for.",
            context={
                "differences": [each.to_json() for each in found],
                "files": names,
            },
        )


def _joined(files: Sequence[File], descriptions: Sequence[Description]) -> Description:
    if len(files) == 1:
        return descriptions[0]
    return {"files": {file.name: each for file, each in zip(files, descriptions, strict=True)}}


def write_artifact(session: Session, namespace: str, checked: CheckedPublication) -> RecordedPublication:
    """Write a checked publication within the caller's transaction.

    An existing artifact keeps its manifest, unless `checked.repairs`, or a worker built what was pushed: a publisher
    can cut a file into any number of blobs. What happens to its facts is in `amendment`.
    """
    row = ArtifactRow
    # The row lock keeps other requests from removing or repairing the artifact before this transaction ends.
    query = select(*amendment.COLUMNS).where(row.namespace == namespace, row.id == checked.id)
    existing = session.execute(query.with_for_update(key_share=True)).first()
    if existing is not None:
        if checked.repairs or (checked.source.origin, existing.origin) == (matching.BUILT, matching.PUSHED):
            _replace_manifest(session, namespace, existing.seq, checked.message.manifest)
        _add_built(session, existing.seq, checked, existing.changed_at or 0.0)
        return RecordedPublication(False, amendment.amend(session, existing, checked))
    _refuse_second_model(session, namespace, checked)
    _refuse_too_many(session, namespace, checked)
    values = _values(session, namespace, checked) | amendment.facts_of(session, namespace, checked)
    values |= amendment.restore(session, namespace, checked)
    values["recall_json"] = recalls.stored_recall(session, namespace, checked.id)
    seq = session.execute(insert(row).values(values).returning(row.seq)).scalar_one()
    _bind(session, namespace, seq, checked.message.manifest)
    inputs = [{"artifact": seq, "name": name} for name, _ in checked.message.key.inputs]
    if inputs:
        session.execute(insert(ArtifactInputRow), inputs)
    detail = {"origin": checked.source.origin, "digest": checked.digest, "sha256": checked.message.manifest.sha256}
    _add_built(session, seq, checked, 0.0)
    statements.accept(session, namespace, checked.id)
    more = {"job": checked.source.job, "restored": values["restored_by"]}
    detail |= {name: value for name, value in more.items() if value is not None}
    trail.record(session, "artifact.publish", checked.id, detail, namespace=namespace, model=checked.message.key.model)
    return RecordedPublication(True)


def _add_built(session: Session, artifact: int, checked: CheckedPublication, since: float) -> None:
    if checked.source.built is not None:
        statements.add_built(session, artifact, checked.source.built, since)


def _refuse_second_model(session: Session, namespace: str, checked: CheckedPublication) -> None:
    """Raise `ConflictError` for a push of bytes that are published for another model: the weights are in them.

    A worker compiles the very model, and so proves that two models have one program.
    """
    row, message = ArtifactRow, checked.message
    if checked.source.origin == matching.BUILT or message.intent.also_for:
        return
    same = (row.namespace == namespace, row.sha256 == message.manifest.sha256)
    other = session.execute(select(row.id, row.model).where(*same, row.model != message.key.model).limit(1)).first()
    if other is None:
        return
    if session.execute(select(row.seq).where(*same, row.model == message.key.model).limit(1)).first() is None:
        raise ConflictError(
            f"These bytes are published for another model ({other.model[:19]}, artifact {other.id[:12]}), and a "
            "program holds the weights of its model.",
            hint="Publish the program of this model. If both have the same weights, set `intent.also_for`.",
            context={
                "id": other.id,
                "also_for": True,
                "differences": [Difference("model", message.key.model, other.model).to_json()],
            },
        )


def _refuse_too_many(session: Session, namespace: str, checked: CheckedPublication) -> None:
    """Raise `ConflictError` for a push to a key that has `MAX_CANDIDATES` artifacts: each request looks at all."""
    if checked.source.origin == matching.BUILT:
        return
    rows = select(ArtifactRow.seq).where(ArtifactRow.namespace == namespace, ArtifactRow.digest == checked.digest)
    count = select(func.count()).select_from(rows.limit(limits.MAX_CANDIDATES).subquery())
    if session.execute(count).scalar_one() >= limits.MAX_CANDIDATES:
        raise ConflictError(
            f"This key has {limits.MAX_CANDIDATES} artifacts, which is the limit for pushed ones.",
            hint="List them (`GET /v1/artifacts?digest=...`), and remove those that nobody needs.",
            context={"digest": checked.digest, "candidates": limits.MAX_CANDIDATES},
        )


def _replace_manifest(session: Session, namespace: str, artifact: int, manifest: Manifest) -> None:
    row = ArtifactRow
    # Running downloads of the replaced blobs get the grace period to finish.
    catalog.touch_blobs(session, [artifact])
    changed = {"manifest_json": canonical(manifest.to_json()), "lost_at": None}
    session.execute(update(row).where(row.seq == artifact).values(**changed))
    _bind(session, namespace, artifact, manifest)


def _bind(session: Session, namespace: str, artifact: int, manifest: Manifest) -> None:
    session.execute(delete(ArtifactBlobRow).where(ArtifactBlobRow.artifact == artifact))
    rows = [{"artifact": artifact, "namespace": namespace, "sha256": blob.sha256} for blob in manifest.blobs()]
    if rows:
        session.execute(insert(ArtifactBlobRow), rows)


def _values(session: Session, namespace: str, checked: CheckedPublication) -> dict[str, Any]:
    message, key, moment = checked.message, checked.message.key, now(session)
    return {
        "namespace": namespace,
        "id": checked.id,
        "digest": checked.digest,
        "fixed_digest": key.fixed_digest,
        "model": key.model,
        **{name: getattr(key, name) for name in TARGET},
        "precision": show_precision(key.precision),
        "sha256": message.manifest.sha256,
        "size": message.manifest.size,
        "key_json": key.canonical,
        "names_json": canonical([file.name for file in message.manifest.files]),
        "published_at": moment,
        "used_at": moment,
        "changed_at": None,
        "promoted_at": None,
        "promoted": 0,
        "manifest_json": canonical(message.manifest.to_json()),
        "claim_json": canonical(encode(message.model)) if message.model else None,
    }
