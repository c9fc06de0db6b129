"""Statements about artifacts: signed in the transaction that publishes, or changes the facts.

Nothing is hashed for them but the log of the compile: the registry has the sha256 of every file already.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from sqlalchemy import exists, insert, select

from mxr.artifact.manifest import Manifest, artifact_id
from mxr.artifact.matching import PUSHED
from mxr.errors import ConflictError, Json, MismatchError, MxrError, NotAllowedError, OtherRecordError
from mxr.protocol.artifacts import Publish
from mxr.protocol.statements import AddStatement
from mxr.trust.envelope import Envelope
from mxr.trust.rules import REVOKED
from mxr.trust.statement import ACCEPTED, BUILT, PAYLOAD_TYPE, Built, statement
from mxr.util.codec import canonical, decode, encode, time_text
from mxr_registry.access import signing_keys
from mxr_registry.database import trail
from mxr_registry.database.job_tables import JobLogRow, JobRow
from mxr_registry.database.session import Row, Session, now, signer_of
from mxr_registry.database.tables import ArtifactRow, SigningKeyRow, StatementRow
from mxr_registry.json_text import stored
from mxr_registry.signer import Signer

from . import catalog

MAX_IMPORTED = 20
"""Statements of others that one artifact has."""

MAX_STATEMENTS = 100
"""Statements of one artifact that are listed, the latest."""


def accept(session: Session, namespace: str, id: str) -> None:
    """Sign what an artifact is now. Raises `TemporaryError` where this registry cannot sign: nothing is published."""
    signer = signer_of(session)
    key = (signer or Signer(None)).key()
    signing_keys.require_active(session, key)
    row = catalog.find_artifact(session, namespace, id)
    moment = now(session)
    manifest = decode(Manifest, json.loads(row.manifest_json), "manifest")
    predicate = {
        "registry": signing_keys.registry_id(session),
        "namespace": namespace,
        "artifact": row.id,
        "digest": row.digest,
        "key": json.loads(row.key_json),
        "attributes": json.loads(row.attributes_json),
        "sources": json.loads(row.sources_json),
        "origin": row.origin,
        "model": catalog.evidence(row.origin),
        "created_by": row.created_by,
        "job": row.job,
        "worker": row.worker,
        "log": _log_digest(session, namespace, row.job),
        "accepted_at": time_text(moment),
    }
    document = statement(ACCEPTED, {file.name: file.sha256 for file in manifest.files}, predicate)
    _add(session, row.seq, ACCEPTED, key.public.id, Envelope.sign(PAYLOAD_TYPE, document, key))


def check_built(session: Session, job: str, message: Publish, built: Envelope) -> None:
    """Check that an enrolled worker signed that it built what it publishes for a job. Raises `MismatchError`."""
    id = artifact_id(message.key.digest, message.manifest.files)
    try:
        document, _ = built.verify(PAYLOAD_TYPE, signing_keys.of_workers(session))
        said = Built.read(document)
        said.refuse_other(id, message.key, message.manifest, message.attributes)
        if (said.registry, said.job) != (signing_keys.registry_id(session), job):
            raise OtherRecordError("It is of another registry or job.")
    except MxrError as problem:
        raise MismatchError(
            f"What the worker signed does not prove that it built this program: {problem.message}",
            hint="Check the worker and its key: `mxr-registry key ls`.",
        ) from None


def add_built(session: Session, artifact: int, built: Envelope, since: float) -> None:
    """Keep what a worker signed, which was checked, unless its key signed so since then."""
    row, key = StatementRow, built.signatures[0].keyid
    known = exists().where(row.artifact == artifact, row.kind == BUILT, row.key == key, row.created_at >= since)
    if not session.execute(select(known)).scalar_one():
        _add(session, artifact, BUILT, key, built)


def _add(session: Session, artifact: int, kind: str, key: str, envelope: Envelope, **more: Any) -> None:
    values = {"artifact": artifact, "key": key, "kind": kind, "created_at": now(session), **more}
    session.execute(insert(StatementRow).values(**values, envelope_json=canonical(encode(envelope))))


def list_statements(session: Session, namespace: str, id: str) -> Json:
    """Return the JSON value of `Statements`. Raises `NotFoundError`, `UsageError`."""
    artifact, row = catalog.find_artifact(session, namespace, id), StatementRow
    columns = (row.kind, row.created_at, row.envelope_json, row.imported, row.bundle_json)
    query = select(*columns).where(row.artifact == artifact.seq).order_by(row.imported, row.seq.desc())
    return {"id": artifact.id, "items": [_shown(each) for each in session.execute(query.limit(MAX_STATEMENTS))]}


def add_statement(
    session: Session, namespace: str, id: str, message: AddStatement, owner: str | None = None
) -> tuple[Json, bool]:
    """Keep what somebody else signed of an artifact, and return it, and whether it is new. Nothing of it is verified.

    `owner`: the principal that may add only to what it pushed itself. Raises `OtherRecordError` for a statement about
    other files, `ConflictError` for too many, `NotFoundError`, `NotAllowedError` and `UsageError`.
    """
    trail.refuse_flood(session, "artifact.statement")
    found, artifact = message.attestation, catalog.find_artifact(session, namespace, id)
    if owner is not None and (artifact.origin != PUSHED or artifact.created_by != owner):
        raise NotAllowedError(
            f"Artifact {artifact.id[:12]} was {artifact.origin} by {artifact.created_by}, and {owner} may add "
            "statements only to what it pushed itself.",
            hint="Use a token with the scope promote.",
            context={"id": artifact.id},
        )
    manifest = decode(Manifest, json.loads(artifact.manifest_json), "manifest")
    found.refuse_other(artifact.id, (file.sha256 for file in manifest.files))
    row, text = StatementRow, canonical(encode(found.envelope))
    bundle = None if found.bundle is None else canonical(dict(found.bundle))
    # One after the other for each artifact, so that the limit holds and none is there twice.
    session.execute(select(ArtifactRow.seq).where(ArtifactRow.seq == artifact.seq).with_for_update(key_share=True))
    columns = (row.kind, row.created_at, row.envelope_json, row.imported, row.bundle_json)
    there = session.execute(select(*columns).where(row.artifact == artifact.seq)).all()
    same = [each for each in there if each.envelope_json == text and (not each.imported or each.bundle_json == bundle)]
    if same:
        return _shown(same[0]), False
    if sum(each.imported for each in there) >= MAX_IMPORTED:
        raise ConflictError(
            f"Artifact {artifact.id[:12]} has {MAX_IMPORTED} statements of others, which is the limit.",
            context={"id": artifact.id, "limit": MAX_IMPORTED},
        )
    _add(session, artifact.seq, found.kind, "", found.envelope, imported=True, bundle_json=bundle)
    detail, model = {"kind": found.kind, "sigstore": bundle is not None}, json.loads(artifact.key_json)["model"]
    trail.record(session, "artifact.statement", artifact.id, detail, namespace=namespace, model=model)
    made = {"kind": found.kind, "created_at": time_text(now(session)), "envelope": encode(found.envelope)}
    return made | {"imported": True, "bundle": None if found.bundle is None else dict(found.bundle)}, True


def _shown(row: Row) -> Json:
    found = {"kind": row.kind, "created_at": time_text(row.created_at), "envelope": stored(row.envelope_json)}
    return found | {"imported": row.imported, "bundle": stored(row.bundle_json)}


def unsigned(session: Session, limit: int) -> list[tuple[str, str]]:
    """Return namespace and id of artifacts that no key signed that counts, at most so many."""
    row, key = StatementRow, SigningKeyRow
    counts = (row.kind == ACCEPTED, row.key == key.id, key.state != REVOKED)
    signed = exists().where(row.artifact == ArtifactRow.seq, *counts)
    query = select(ArtifactRow.namespace, ArtifactRow.id).where(~signed).order_by(ArtifactRow.seq).limit(limit)
    return [(each.namespace, each.id) for each in session.execute(query)]


def _log_digest(session: Session, namespace: str, job: str | None) -> str | None:
    """The sha256 of what is kept of the log of a job."""
    if job is None:
        return None
    row = JobLogRow
    query = select(row.data).join(JobRow, JobRow.seq == row.job).where(JobRow.namespace == namespace, JobRow.id == job)
    digest = sha256()
    for data in session.execute(query.order_by(row.start)).scalars():
        digest.update(bytes(data))
    return digest.hexdigest()
