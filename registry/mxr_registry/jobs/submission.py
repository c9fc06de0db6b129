"""Asking for a compile: attach to an open job that will serve, or make one; decided in one transaction.

    served already?  ->  done
    an open job whose every result would serve?  ->  that one
    can it be compiled at all: model, calibration data, somebody able?
    did it fail on every toolchain that could?  ->  failed, with what is remembered
    else a new job

Askers who come at the same moment take turns; the database's constraint on open jobs has the last word.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from mxr.artifact import precision_support
from mxr.artifact.matching import Candidate, judge
from mxr.artifact.qualities import LIBRARIES, Demands, Qualities, Request
from mxr.consumers.ort.recording_form import check_recording
from mxr.errors import NoSuchBlob, NoSuchModel, Temporary, Usage
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.artifacts import blobs, catalog
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ModelRow
from mxr_registry.storage.store import Store

from . import availability, failures, lease_endings, tracking, transitions, workers

TRIES = 3


@dataclass(frozen=True, slots=True)
class _Asked:
    """What follows from an ask, worked out before any transaction. `here`: the calibration data are in the store."""

    ask: job_protocol.CompileRequest
    request: Request
    digest: str
    demands: str
    terms: str
    lane: str
    here: bool


def ask(db: Database, store: Store, rules: JobRules, namespace: str, wanted: job_protocol.CompileRequest) -> str:
    """The JSON of the job to wait for; one that is done has no id where no job was needed.

    Raises `NoSuchModel` and `NoSuchBlob` for what has to be uploaded first, `NoWorker` where the asker waits and
    nothing live or declared could do it, and `Usage`.
    """
    asked = _prepare(store, wanted)
    lease_endings.expire(db, rules)
    for _ in range(TRIES):
        try:
            with db.reading() as session:
                found = _without_change(session, rules, namespace, asked)
            if found is not None:
                return found
            with transitions.turn(db) as session:
                return _decide(session, rules, namespace, asked)
        except IntegrityError:
            continue
    raise Temporary("Many ask for this at once.")


def _prepare(store: Store, wanted: job_protocol.CompileRequest) -> _Asked:
    request, key = wanted.request, wanted.request.key
    if key.form != "whole":
        check_recording(key, wanted.file_name)
    elif wanted.file_name is not None:
        raise Usage("A file name goes with a key of ONNX Runtime's form only.", hint="Leave file_name out.")
    precision_support.check(key.arch, key.vendor, key.precision)
    demands = canonical(request.to_json()["demands"])
    terms = terms_of(demands)
    here = key.calibration is None or store.stat(key.calibration) is not None
    return _Asked(wanted, request, key.digest, demands, terms, lanes.lane_of(key), here)


def _without_change(session: Session, rules: JobRules, namespace: str, asked: _Asked) -> str | None:
    """The answer where nothing has to be written."""
    artifact = availability.artifact_of(session, namespace, asked.request)
    if artifact is not None:
        return _done(session, rules, namespace, asked, artifact)
    row = _open_job(session, namespace, asked)
    if row is None or row.cancelling or asked.ask.retry or -asked.ask.priority < row.rank:
        return None
    _demand_worker(session, rules, namespace, asked, row)
    return tracking.shown(session, rules, row).text


def _decide(session: Session, rules: JobRules, namespace: str, asked: _Asked) -> str:
    artifact = availability.artifact_of(session, namespace, asked.request)
    if artifact is not None:
        return _done(session, rules, namespace, asked, artifact)
    if asked.ask.retry:
        failures.forget(session, namespace, asked.digest)
    row = _open_job(session, namespace, asked)
    # First, since it is refused for good: nobody should upload a model that no worker will ever compile.
    able = _demand_worker(session, rules, namespace, asked, row)
    if row is None:
        _demand_parts(session, namespace, asked)
    if row is not None:
        return _attach(session, rules, row, asked)
    failure = failures.against_all(session, namespace, asked.digest, asked.terms, able)
    if failure is not None:
        return _failed(session, rules, namespace, asked, failure)
    return tracking.at(session, rules, _make(session, namespace, asked)).text


def terms_of(demands: str) -> str:
    """What equal demands have in common: the sha256 of their canonical text."""
    return sha256(demands.encode()).hexdigest()


def open_job(session: Session, namespace: str, request: Request) -> Row | None:
    """The job that an asker would be attached to, if there is one."""
    return _attachable(session, namespace, request, terms_of(canonical(request.to_json()["demands"])))


def _open_job(session: Session, namespace: str, asked: _Asked) -> Row | None:
    return _attachable(session, namespace, asked.request, asked.terms)


def _attachable(session: Session, namespace: str, request: Request, terms: str) -> Row | None:
    """The first open job whose every result would satisfy this asker."""
    open_ones = (JobRow.digest == request.key.digest, JobRow.state.in_(job_protocol.OPEN))
    rows = session.execute(tracking.select_jobs(namespace).where(*open_ones).order_by(JobRow.seq))
    demands = request.demands
    for row in rows:
        if row.terms == terms or job_protocol.covers(lanes.demands_of(row.demands_json), demands):
            return row
        if row.state == job_protocol.RUNNING and _sure(demands, catalog.qualities_of(row.pinned_json)):
            return row
    return None


def _sure(demands: Demands, pinned: Qualities) -> bool:
    """Whether what a worker makes will satisfy these demands, whatever it has left open and whatever it will call."""
    if demands.exact and (demands.sramecc or demands.xnack):
        return False
    for name in ("sramecc", "xnack", "num_cu", "chiplets", "rocm_patch", "migraphx_patch", "build"):
        if getattr(demands, name) is not None and getattr(pinned, name) in (None, "any"):
            return False
    called = LIBRARIES if demands.rocm_patch else ()
    return not judge(demands, Candidate("", replace(pinned, libraries=called))).refused


def _demand_worker(
    session: Session, rules: JobRules, namespace: str, asked: _Asked, row: Row | None
) -> list[Mapping[str, Any]]:
    if row is not None and (row.state == job_protocol.RUNNING or not asked.ask.wait):
        return []
    able = workers.able(session, rules, namespace, asked.lane, asked.demands)
    if asked.ask.wait and not able:
        raise workers.refusal(asked.request)
    return able


def _demand_parts(session: Session, namespace: str, asked: _Asked) -> None:
    key = asked.request.key
    model = session.execute(
        select(ModelRow.complete).where(ModelRow.namespace == namespace, ModelRow.model == key.model)
    ).scalar_one_or_none()
    if not model:
        known = "does not know" if model is None else "knows, but does not have the bytes of,"
        raise NoSuchModel(
            f"The registry {known} the model {key.model}.",
            hint="Give the ONNX file itself, so that it can be uploaded (POST /v1/models with its manifest).",
            detail={"model": key.model, "known": model is not None},
        )
    if key.calibration and not (asked.here and blobs.sizes(session, namespace, [key.calibration])):
        raise NoSuchBlob(
            f"The registry does not have the calibration data {key.calibration}.",
            hint="Upload them first: --calibration FILE names them.",
            detail={"missing": [key.calibration]},
        )


def _attach(session: Session, rules: JobRules, row: Row, asked: _Asked) -> str:
    values: dict[str, Any] = {}
    if -asked.ask.priority < row.rank and row.state == job_protocol.QUEUED:
        values["rank"] = -asked.ask.priority
    if asked.ask.retry and row.state == job_protocol.QUEUED and row.next_at > 0:
        values["next_at"] = 0.0
    if row.cancelling:
        values["cancelling"] = False
    if values:
        transitions.change(session, row.seq, JobRow.state == row.state, **values)
    return tracking.at(session, rules, row.seq).text


def _done(session: Session, rules: JobRules, namespace: str, asked: _Asked, artifact: str) -> str:
    """The job that made this artifact; or, where none did, one without an id that says so."""
    made = tracking.select_jobs(namespace).where(JobRow.digest == asked.digest, JobRow.artifact == artifact)
    row = session.execute(made.order_by(JobRow.seq.desc()).limit(1)).first()
    if row is not None:
        return tracking.shown(session, rules, row).text
    moment = now(session)
    none_needed = job_protocol.Job(
        "", job_protocol.DONE, asked.digest, asked.request, 0, 0, moment, moment, artifact=artifact
    )
    return canonical(encode(none_needed))


def _failed(session: Session, rules: JobRules, namespace: str, asked: _Asked, failure: Row) -> str:
    """A job that failed before it began; the same one for all who ask until that failure is forgotten."""
    before = tracking.select_jobs(namespace).where(
        JobRow.digest == asked.digest,
        JobRow.terms == asked.terms,
        JobRow.state == job_protocol.FAILED,
        JobRow.attempts == 0,
        JobRow.created_at >= failure.created_at,
    )
    row = session.execute(before.order_by(JobRow.seq.desc()).limit(1)).first()
    if row is not None:
        return tracking.shown(session, rules, row).text
    seq = _make(session, namespace, asked)
    lease_endings.close_failed(session, seq, failure.failure_json)
    transitions.note(session, seq, job_protocol.FAILED, "it failed before on every toolchain that could compile it")
    return tracking.at(session, rules, seq).text


def _make(session: Session, namespace: str, asked: _Asked) -> int:
    key, moment = asked.request.key, now(session)
    number = transitions.draw(session)
    values = {
        "namespace": namespace,
        "id": secrets.token_hex(16),
        "state": job_protocol.QUEUED,
        "digest": asked.digest,
        "terms": asked.terms,
        "model": key.model,
        "arch": key.arch,
        "lane": asked.lane,
        "rank": -asked.ask.priority,
        "key_json": key.canonical,
        "demands_json": asked.demands,
        "calibration": key.calibration,
        "file_name": asked.ask.file_name,
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
    transitions.note(session, seq, job_protocol.QUEUED, "asked for")
    return int(seq)
