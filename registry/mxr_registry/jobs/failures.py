"""Remembered failures: jobs that MIGraphX rejects, or that kill workers, are not retried for a while.

A failure belongs to a request (digest and terms) and to the exact toolchain build of the worker. Every failure expires.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, select

from mxr.host_facts import HostToolchain
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow, RememberedFailureRow
from mxr_registry.database.session import Row, Session, now, upsert

MAX_MESSAGE_LENGTH = 4_000
MAX_NAME_LENGTH = 100


def toolchain_text(toolchain: HostToolchain) -> str:
    """Return the canonical JSON of a toolchain."""
    return canonical(encode(toolchain))


def toolchain_hash(text: str) -> str:
    """Return the sha256 that identifies a toolchain, given its canonical JSON."""
    return sha256(text.encode()).hexdigest()


def text_of(failure: job_protocol.JobFailure) -> str:
    """Return the JSON of a failure, with long texts truncated."""
    return canonical(
        {"kind": failure.kind, "message": failure.message[:MAX_MESSAGE_LENGTH], "name": failure.name[:MAX_NAME_LENGTH]}
    )


def remember(session: Session, rules: JobRules, job: Row, failure: job_protocol.JobFailure) -> None:
    """Remember a permanent or poison failure of this job for its toolchain. `rules` say for how long."""
    if failure.kind == job_protocol.TRANSIENT or job.toolchain_json is None:
        return
    moment = now(session)
    values = {
        "toolchain_json": job.toolchain_json,
        "failure_json": text_of(failure),
        "created_at": moment,
        "expires_at": moment + (rules.remember if failure.kind == job_protocol.PERMANENT else rules.quarantine),
    }
    row = RememberedFailureRow
    session.execute(delete(row).where(row.expires_at < moment))
    keys = {"namespace": job.namespace, "digest": job.digest, "terms": job.terms}
    upsert(session, row, keys | {"toolchain": toolchain_hash(job.toolchain_json)}, values, values)


def forget(session: Session, namespace: str, digest: str) -> None:
    """Delete the remembered failures of a key, for all constraints."""
    row = RememberedFailureRow
    session.execute(delete(row).where(row.namespace == namespace, row.digest == digest))


def is_remembered(toolchain: Any, moment: Any) -> ColumnElement[bool]:
    """SQL condition: a failure of the job is remembered for this toolchain (its sha256) at this time."""
    row = RememberedFailureRow
    return exists().where(
        row.namespace == JobRow.namespace,
        row.digest == JobRow.digest,
        row.terms == JobRow.terms,
        row.toolchain == toolchain,
        row.expires_at > moment,
    )


def remembered_for_all(
    session: Session, namespace: str, digest: str, terms: str, toolchains: Iterable[Mapping[str, Any]]
) -> Row | None:
    """Return the latest remembered failure if every one of these toolchains has one, else None.

    The toolchain of a declared pool may leave fields open. A failure on any toolchain that agrees with it counts.
    """
    row = RememberedFailureRow
    query = select(row.toolchain_json, row.failure_json, row.created_at).where(
        row.namespace == namespace, row.digest == digest, row.terms == terms, row.expires_at > now(session)
    )
    rows = session.execute(query.order_by(row.created_at.desc())).all()
    failed = [json.loads(row.toolchain_json) for row in rows]
    wanted = list(toolchains)
    if not wanted or not all(any(_agrees(each, other) for other in failed) for each in wanted):
        return None
    return rows[0]


def _agrees(declared: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(value is None or found.get(name) == value for name, value in declared.items())
