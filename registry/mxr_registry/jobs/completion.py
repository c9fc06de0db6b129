"""Finishing a job: the program is checked like any publication, then published and the job closed, both or neither."""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy.exc import IntegrityError

from mxr.artifact.key import Difference, Key
from mxr.artifact.manifest import artifact_id
from mxr.artifact.matching import Candidate, judge
from mxr.artifact.qualities import Qualities
from mxr.errors import Damaged, Mismatch, NoSuchBlob
from mxr.protocol import jobs as job_protocol
from mxr_registry.artifacts import catalog, publication
from mxr_registry.artifacts.publication import Inspect
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.storage.store import Store

from . import estimates, lease_endings, logs, tracking, transitions, workers

KNOWN = ("num_cu", "chiplets", "rocm_patch", "migraphx_patch", "build", "real_arch")
CHECKING = 300.0
"""Seconds, at least, that a lease goes on once its worker is done: reading a large program takes a while."""

PROMISED = ("sramecc", "xnack", "tuning", *KNOWN)
"""What a claim says of the program to come: those who attached since rely on it."""


def finish(
    db: Database, store: Store, inspect: Inspect, rules: JobRules, namespace: str, id: str, done: job_protocol.FinishJob
) -> str:
    """Publish what came of a job and close it; the job's JSON. The same call once more gives the same answer.

    Raises `Conflict` for a lost lease, `Mismatch` and `Damaged` for a program that is not what was wanted (the job is
    then tried elsewhere), `NoSuchBlob`.
    """
    with transitions.turn(db) as session:
        row = tracking.find(session, namespace, id)
        if _answered(row, done):
            return tracking.shown(session, rules, row).text
        row = lease_endings.held(session, namespace, id, done.fence)
        until = now(session) + max(rules.lease, CHECKING)
        transitions.change(session, row.seq, *lease_endings.ours(row), phase="publish", lease_until=until)
    done = _completed(row, done)
    try:
        _refuse_others(row, done)
        checked = publication.check(db, store, inspect, namespace, done.artifact)
    except (Mismatch, Damaged) as problem:
        name = "wrong_program" if isinstance(problem, Mismatch) else "damaged_program"
        # Tried elsewhere: only what MIGraphX itself refuses is permanent.
        failure = job_protocol.JobFailure(job_protocol.TRANSIENT, problem.message, name)
        lease_endings.fail(db, rules, namespace, row.id, job_protocol.FailJob(done.fence, failure, done.log))
        raise
    for _ in range(publication.TRIES):
        try:
            with transitions.turn(db) as session:
                row = lease_endings.held(session, namespace, row.id, done.fence)
                _close(session, row, done, checked)
                return tracking.at(session, rules, row.seq).text
        except IntegrityError:
            continue
    raise NoSuchBlob("A blob of this artifact was swept meanwhile.")


def _answered(row: Row, done: job_protocol.FinishJob) -> bool:
    """Whether this very call was carried out before, and the answer did not arrive."""
    if row.state != job_protocol.DONE or row.fence != done.fence:
        return False
    return bool(row.artifact == artifact_id(done.artifact.key.digest, done.artifact.manifest.files))


def _completed(row: Row, done: job_protocol.FinishJob) -> job_protocol.FinishJob:
    """What its worker leaves unsaid of the artifact is what the claim said of it."""
    pinned, made = catalog.qualities_of(row.pinned_json), done.artifact.qualities
    unsaid = {name: getattr(pinned, name) for name in KNOWN if getattr(made, name) is None}
    return replace(done, artifact=replace(done.artifact, qualities=replace(made, **unsaid)))


def _refuse_others(row: Row, done: job_protocol.FinishJob) -> None:
    """Raises `Mismatch` for an artifact of another key, or one that an asker of this job could not take."""
    key, made = done.artifact.key, done.artifact.qualities
    refused: list[Difference] = []
    if key.digest != row.digest:
        refused += Key.from_json(json.loads(row.key_json)).differences(key)
    refused += judge(lanes.demands_of(row.demands_json), Candidate("", made)).refused
    refused += _broken_promises(catalog.qualities_of(row.pinned_json), made)
    if refused:
        rows = [each.to_json() for each in refused]
        raise Mismatch(
            f"This is not what job {row.id[:12]} wants: {'; '.join(map(str, refused[:3]))}.",
            detail={"differences": rows},
        )


def _broken_promises(pinned: Qualities, made: Qualities) -> list[Difference]:
    pairs = ((name, getattr(pinned, name), getattr(made, name)) for name in PROMISED)
    return [Difference(name, said, now) for name, said, now in pairs if said not in (None, "any", now) and now != "any"]


def _close(session: Session, row: Row, done: job_protocol.FinishJob, checked: publication.CheckedPublication) -> None:
    seconds = estimates.seconds_in(dict(done.artifact.provenance))
    if seconds is None:
        seconds = now(session) - (row.started_at or now(session))
    closing = lease_endings.CLOSED | {
        "state": job_protocol.DONE,
        "artifact": checked.id,
        "seconds": seconds,
        "failure_json": None,
    }
    transitions.change(session, row.seq, *lease_endings.ours(row), **closing)
    publication.record(session, row.namespace, checked)
    logs.append(session, row.seq, done.log)
    transitions.note(session, row.seq, job_protocol.DONE, f"published {checked.id}", row.worker_name)
    workers.seen(session, row.namespace, row.worker, now(session))
