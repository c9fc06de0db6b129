"""Submit a compile request: attach it to a suitable open job, or create a job, decided in one transaction.

    a matching artifact exists                              ->  done
    an open job, all of whose possible results match        ->  that job
    no model, no calibration data, or no able worker        ->  an error
    a failure is remembered for every able toolchain        ->  failed, with that failure
    otherwise                                               ->  a new job

Concurrent submissions are serialized. The unique index on open jobs excludes duplicates.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from mxr.artifact import compile_support
from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.limits import MAX_OPEN_JOBS, MAX_OPEN_PER_KEY
from mxr.artifact.matching import covers, surely_satisfies
from mxr.consumers.ort.recording_form import check_recording
from mxr.errors import ConflictError, Json, NoSuchBlobError, NoSuchModelError, TemporaryError, UsageError
from mxr.protocol import jobs as job_protocol
from mxr.protocol.artifacts import message_document
from mxr.util.codec import Timestamp, canonical
from mxr_registry import counters
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import blobs, catalog, resolution
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import OPEN as OPEN_JOBS
from mxr_registry.database.job_tables import JobAskerRow, JobRow
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ModelRow
from mxr_registry.storage.store import Store

from . import askers, counts, failures, lease_endings, needed, tracking, transitions
from .live_capabilities import LiveCapabilities

ATTEMPTS = 3

MAX_COMPARED = 200
"""Open jobs of one key that a request is compared with, the first ones. A request that none of them serves gets a job
of its own."""


@dataclass(frozen=True, slots=True)
class _Submission:
    """A compile request with derived values, computed before any transaction.

    `uploader`: the principal whose uploads it can name as calibration data; None for an administrator.
    `has_calibration`: the store has the calibration data, or none is needed.
    """

    principal: str
    uploader: str | None
    message: job_protocol.CompileRequest
    request: Request
    digest: str
    constraints: str
    terms: str
    lane: str
    has_calibration: bool


def submit(
    db: Database,
    store: Store,
    rules: JobRules,
    caller: Caller,
    message: job_protocol.CompileRequest,
) -> Json:
    """Submit a compile request and return the job to wait for.

    The job is `done` and has no id if no job was needed. Raises `NoSuchModelError` and `NoSuchBlobError` if the client
    has to upload the model or calibration data first, `NoWorkerError` if the client waits and no live worker or
    declared pool can compile the request, and `UsageError`.
    """
    namespace = caller.namespace
    if counts.are_open(message.request):
        with db.reading() as session:
            request = counts.SeenHosts(session, namespace).complete(message.request)
        message = replace(message, constraints=request.constraints)
    submission = _prepare(store, caller, message)
    lease_endings.expire(db, rules)
    for _ in range(ATTEMPTS):
        try:
            with db.reading() as session:
                found = _without_change(session, rules, namespace, submission)
            if found is not None:
                return found
            with transitions.job_transaction(db) as session:
                return _decide(session, rules, namespace, submission)
        except IntegrityError:
            continue
    raise TemporaryError("Too many clients submit this request at the same time.")


def _prepare(store: Store, caller: Caller, message: job_protocol.CompileRequest) -> _Submission:
    request, key = message.request, message.request.key
    if key.form != "whole":
        check_recording(key, message.file_name)
    elif message.file_name is not None:
        raise UsageError("file_name is valid only with a key of ONNX Runtime's form.", hint="Omit file_name.")
    compile_support.check_compilable(key, request.constraints.num_cu)
    constraints = canonical(request.to_json()["constraints"])
    terms = terms_of(constraints)
    has_calibration = key.calibration is None or store.stat(key.calibration) is not None
    lane = lanes.lane_of(key)
    who = (caller.principal, caller.owner)
    return _Submission(*who, message, request, key.digest, constraints, terms, lane, has_calibration)


def _without_change(session: Session, rules: JobRules, namespace: str, submission: _Submission) -> Json | None:
    """The reply if it needs no write, else None."""
    artifact = resolution.find_compiled_id(session, namespace, submission.request)
    if artifact is not None:
        made = _job_that_made(session, namespace, submission, artifact)
        if made is not None and not askers.waits(session, made.seq, submission.principal):
            return None
        return _done(session, rules, submission, artifact, made)
    row = _open_job(session, namespace, submission)
    if row is None or row.cancelling or submission.message.retry or -submission.message.priority < row.rank:
        return None
    if not askers.waits(session, row.seq, submission.principal):
        return None
    _require_worker(session, rules, namespace, submission, row)
    return tracking.shown(session, rules, row).job


def _decide(session: Session, rules: JobRules, namespace: str, submission: _Submission) -> Json:
    artifact = resolution.find_compiled_id(session, namespace, submission.request)
    if artifact is not None:
        made = _job_that_made(session, namespace, submission, artifact)
        if made is not None:
            askers.add(session, made.seq, submission.principal)
        return _done(session, rules, submission, artifact, made)
    if submission.message.retry:
        failures.forget(session, namespace, submission.digest)
    row = _open_job(session, namespace, submission)
    # Before the check for uploads: the client should not upload a model that no worker can compile.
    able = _require_worker(session, rules, namespace, submission, row)
    if row is not None:
        return _attach(session, rules, row, submission)
    _require_uploads(session, namespace, submission)
    failure = failures.remembered_for_all(session, namespace, submission.digest, submission.terms, able)
    if failure is not None:
        return _failed(session, rules, namespace, submission, failure)
    return tracking.at(session, rules, _create(session, namespace, submission)).job


def terms_of(constraints: str) -> str:
    """Return the sha256 of the canonical JSON of constraints, which identifies equal constraints."""
    return sha256(constraints.encode()).hexdigest()


def open_job(session: Session, namespace: str, request: Request) -> Row | None:
    """Return the open job to which a submission of this request would attach, or None."""
    return _attachable(session, namespace, request, terms_of(canonical(request.to_json()["constraints"])))


def _open_job(session: Session, namespace: str, submission: _Submission) -> Row | None:
    return _attachable(session, namespace, submission.request, submission.terms)


def _attachable(session: Session, namespace: str, request: Request, terms: str) -> Row | None:
    """An open job, all of whose possible results satisfy this request: that of the same request, or the first one."""
    columns = (JobRow.seq, JobRow.state, JobRow.constraints_json, JobRow.pinned_json)
    # The condition as it is in the index: no other rows of the digest are read.
    found = select(*columns).where(JobRow.namespace == namespace, JobRow.digest == request.key.digest, OPEN_JOBS)
    rows = session.execute(found.where(JobRow.terms == terms)).all()
    if not rows:
        rows = session.execute(found.order_by(JobRow.seq).limit(MAX_COMPARED)).all()
        rows = [row for row in rows if _will_satisfy(row, request.constraints)]
    return session.execute(tracking.BY_SEQ, {"of": rows[0].seq}).one() if rows else None


def _will_satisfy(row: Row, constraints: Constraints) -> bool:
    if covers(lanes.constraints_of(row.constraints_json), constraints):
        return True
    running = row.state == job_protocol.RUNNING
    return running and surely_satisfies(constraints, catalog.attributes_of(row.pinned_json))


def _require_worker(
    session: Session, rules: JobRules, namespace: str, submission: _Submission, row: Row | None
) -> list[Mapping[str, Any]]:
    if row is not None and (row.state == job_protocol.RUNNING or not submission.message.require_worker):
        return []
    live = LiveCapabilities(session, rules, namespace, {submission.principal})
    able = live.able_toolchains(submission.lane, submission.request.constraints)
    if submission.message.require_worker and not able:
        raise needed.no_worker_error(submission.request, live, submission.principal)
    return able


def _require_uploads(session: Session, namespace: str, submission: _Submission) -> None:
    key = submission.request.key
    model = session.execute(
        select(ModelRow.complete).where(ModelRow.namespace == namespace, ModelRow.model == key.model)
    ).scalar_one_or_none()
    if not model:
        lack = "does not know" if model is None else "does not have the bytes of"
        raise NoSuchModelError(
            f"The registry {lack} the model {key.model}.",
            hint="Upload its bytes (`PUT /v1/blobs/{sha256}`), and register it (`POST /v1/models`).",
            context={"model": key.model, "known": model is not None},
        )
    data = key.calibration
    if data and not (submission.has_calibration and blobs.sizes(session, namespace, [data], submission.uploader)):
        raise NoSuchBlobError(
            f"The registry does not have the calibration data {key.calibration}.",
            hint="Upload the file as a blob (`PUT /v1/blobs/{sha256}`), and name it in `calibration`.",
            context={"missing": [key.calibration], "calibration": True},
        )


def _attach(session: Session, rules: JobRules, row: Row, submission: _Submission) -> Json:
    askers.add(session, row.seq, submission.principal)
    values: dict[str, Any] = {}
    if -submission.message.priority < row.rank and row.state == job_protocol.QUEUED:
        values["rank"] = -submission.message.priority
    if submission.message.retry and row.state == job_protocol.QUEUED and row.next_at > 0:
        values["next_at"] = 0.0
    if row.cancelling:
        values["cancelling"] = False
    if values:
        transitions.change(session, row.seq, JobRow.state == row.state, **values)
    elif row.state == job_protocol.QUEUED:
        # A worker that waits may take it now, because it trusts this principal.
        transitions.change(session, row.seq, JobRow.state == row.state, visible=False)
    return tracking.at(session, rules, row.seq).job


def _job_that_made(session: Session, namespace: str, submission: _Submission, artifact: str) -> Row | None:
    made = tracking.select_jobs(namespace).where(JobRow.digest == submission.digest, JobRow.artifact == artifact)
    return session.execute(made.order_by(JobRow.seq.desc()).limit(1)).first()


def _done(session: Session, rules: JobRules, submission: _Submission, artifact: str, made: Row | None) -> Json:
    """The job that made this artifact, or a finished job without an id if none did."""
    if made is not None:
        return tracking.shown(session, rules, made).job
    moment = Timestamp(now(session))
    no_job = job_protocol.Job(
        "", job_protocol.DONE, submission.digest, submission.request, 0, 0, moment, moment, artifact=artifact
    )
    return message_document(no_job)


def _failed(session: Session, rules: JobRules, namespace: str, submission: _Submission, failure: Row) -> Json:
    """A job that failed without an attempt. Later submissions get the same job while the failure is remembered."""
    earlier = tracking.select_jobs(namespace).where(
        JobRow.digest == submission.digest,
        JobRow.terms == submission.terms,
        JobRow.state == job_protocol.FAILED,
        JobRow.attempts == 0,
        JobRow.created_at >= failure.created_at,
    )
    row = session.execute(earlier.order_by(JobRow.seq.desc()).limit(1)).first()
    if row is not None:
        askers.add(session, row.seq, submission.principal)
        return tracking.shown(session, rules, row).job
    seq = _create(session, namespace, submission)
    lease_endings.close_failed(session, seq, failure.failure_json)
    note = "a failure is remembered for every toolchain that can compile it"
    transitions.record_event(session, seq, job_protocol.FAILED, note)
    return tracking.at(session, rules, seq).job


def _refuse_too_many(session: Session, namespace: str, submission: _Submission) -> None:
    """Raise `ConflictError` where a principal has `MAX_OPEN_PER_KEY` open jobs of the key: requests look at all."""
    asked = (JobAskerRow.job == JobRow.seq, JobAskerRow.principal == submission.principal)
    rows = select(JobRow.seq).where(JobRow.namespace == namespace, JobRow.digest == submission.digest, OPEN_JOBS)
    own = rows.where(select(JobAskerRow.job).where(*asked).exists()).limit(MAX_OPEN_PER_KEY).subquery()
    if session.execute(select(func.count()).select_from(own)).scalar_one() >= MAX_OPEN_PER_KEY:
        raise ConflictError(
            f"{submission.principal} has {MAX_OPEN_PER_KEY} open jobs of this key, which is the limit.",
            hint="Wait for some of them, cancel them, or ask with fewer constraints.",
            context={"digest": submission.digest, "open_jobs": MAX_OPEN_PER_KEY},
        )


def _create(session: Session, namespace: str, submission: _Submission) -> int:
    key, moment = submission.request.key, now(session)
    waiting = select(func.count()).where(JobRow.namespace == namespace, JobRow.state == job_protocol.QUEUED)
    if session.execute(waiting).scalar_one() >= MAX_OPEN_JOBS:
        counters.REFUSED.labels("jobs").inc()
        raise TemporaryError(
            f"{MAX_OPEN_JOBS} jobs wait in the queue, which is the limit.",
            hint="Try again when workers finished some.",
        )
    _refuse_too_many(session, namespace, submission)
    number = transitions.next_number(session)
    values = {
        "namespace": namespace,
        "id": secrets.token_hex(16),
        "state": job_protocol.QUEUED,
        "digest": submission.digest,
        "terms": submission.terms,
        "model": key.model,
        "arch": key.arch,
        "lane": submission.lane,
        "rank": -submission.message.priority,
        "key_json": key.canonical,
        "constraints_json": submission.constraints,
        "calibration": key.calibration,
        "file_name": submission.message.file_name,
        "attempts": 0,
        "fence": 0,
        "lost": 0,
        "version": number,
        "touched": number,
        "next_at": 0.0,
        "cancelling": False,
        "log_size": 0,
        "created_at": moment,
        "updated_at": moment,
    }
    seq = session.execute(insert(JobRow).values(values).returning(JobRow.seq)).scalar_one()
    askers.add(session, seq, submission.principal)
    transitions.record_event(session, seq, job_protocol.QUEUED, "submitted")
    return int(seq)
