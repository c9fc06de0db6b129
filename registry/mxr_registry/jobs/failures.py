"""Remembered failures: what MIGraphX refused, or what kills workers, is not tried again there for a while.

A failure belongs to a request (digest and terms) and to the whole toolchain build of the worker. All of them expire.
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

MOST_MESSAGE = 4_000
MOST_NAME = 100


def toolchain_text(toolchain: HostToolchain) -> str:
    """The canonical JSON of a toolchain."""
    return canonical(encode(toolchain))


def toolchain_hash(text: str) -> str:
    """The sha256 by which a toolchain is found."""
    return sha256(text.encode()).hexdigest()


def text_of(failure: job_protocol.JobFailure) -> str:
    """The JSON of a failure, shortened where it is very long."""
    return canonical(
        {"kind": failure.kind, "message": failure.message[:MOST_MESSAGE], "name": failure.name[:MOST_NAME]}
    )


def remember(session: Session, rules: JobRules, job: Row, failure: job_protocol.JobFailure) -> None:
    """Remember a failure of this job for the toolchain that it ran on: permanent ones long, poison a day."""
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
    """Clear what is remembered of a key, whatever was demanded beside it."""
    row = RememberedFailureRow
    session.execute(delete(row).where(row.namespace == namespace, row.digest == digest))


def stands_against(toolchain: Any, moment: Any) -> ColumnElement[bool]:
    """SQL: a failure of the job is remembered for this toolchain (its sha256) at this moment."""
    row = RememberedFailureRow
    return exists().where(
        row.namespace == JobRow.namespace,
        row.digest == JobRow.digest,
        row.terms == JobRow.terms,
        row.toolchain == toolchain,
        row.expires_at > moment,
    )


def against_all(
    session: Session, namespace: str, digest: str, terms: str, toolchains: Iterable[Mapping[str, Any]]
) -> Row | None:
    """The latest remembered failure, where there is one for each of these toolchains; None where one is free to try.

    A toolchain may be a declared one that leaves facts open: then a failure of any that agrees with it counts.
    """
    row = RememberedFailureRow
    asked = select(row.toolchain_json, row.failure_json, row.created_at).where(
        row.namespace == namespace, row.digest == digest, row.terms == terms, row.expires_at > now(session)
    )
    found = session.execute(asked.order_by(row.created_at.desc())).all()
    known = [json.loads(each.toolchain_json) for each in found]
    wanted = list(toolchains)
    if not wanted or not all(any(_agrees(each, other) for other in known) for each in wanted):
        return None
    return found[0]


def _agrees(stated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(value is None or found.get(name) == value for name, value in stated.items())
