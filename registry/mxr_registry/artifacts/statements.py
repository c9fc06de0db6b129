"""Statements about artifacts: signed in the transaction that publishes, or changes the facts.

Nothing is hashed for them but the log of the compile: the registry has the sha256 of every file already.
"""

from __future__ import annotations

import json
from hashlib import sha256

from sqlalchemy import exists, insert, select

from mxr.artifact.manifest import Manifest, artifact_id
from mxr.errors import Json, MismatchError, MxrError, OtherRecordError
from mxr.protocol.artifacts import Publish
from mxr.trust.envelope import Envelope
from mxr.trust.rules import REVOKED
from mxr.trust.statement import ACCEPTED, BUILT, PAYLOAD_TYPE, Built, statement
from mxr.util.codec import canonical, decode, encode, time_text
from mxr_registry.access import signing_keys
from mxr_registry.database.job_tables import JobLogRow, JobRow
from mxr_registry.database.session import Session, now, signer_of
from mxr_registry.database.tables import ArtifactRow, SigningKeyRow, StatementRow
from mxr_registry.json_text import stored
from mxr_registry.signer import Signer

from . import catalog

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


def _add(session: Session, artifact: int, kind: str, key: str, envelope: Envelope) -> None:
    values = {"artifact": artifact, "key": key, "kind": kind, "created_at": now(session)}
    session.execute(insert(StatementRow).values(**values, envelope_json=canonical(encode(envelope))))


def list_statements(session: Session, namespace: str, id: str) -> Json:
    """Return the JSON value of `Statements`. Raises `NotFoundError`, `UsageError`."""
    artifact, row = catalog.find_artifact(session, namespace, id), StatementRow
    query = select(row.kind, row.created_at, row.envelope_json).where(row.artifact == artifact.seq)
    found = session.execute(query.order_by(row.seq.desc()).limit(MAX_STATEMENTS))
    items = [
        {"kind": each.kind, "created_at": time_text(each.created_at), "envelope": stored(each.envelope_json)}
        for each in found
    ]
    return {"id": artifact.id, "items": items}


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
