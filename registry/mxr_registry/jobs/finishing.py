"""Finish a job: check its program like any publication, then publish it and close the job in one transaction."""

from __future__ import annotations

import json
from dataclasses import replace

from sqlalchemy.exc import IntegrityError

from mxr.artifact.attributes import COUNTS, PATCHES, Attributes
from mxr.artifact.key import Difference, Key
from mxr.artifact.manifest import artifact_id
from mxr.artifact.matching import BUILT, Candidate, apply_rules
from mxr.artifact.target import FEATURES
from mxr.errors import DamagedError, Json, MismatchError, NoSuchBlobError
from mxr.protocol import jobs as job_protocol
from mxr.util import codec
from mxr_registry import counters
from mxr_registry.artifacts import catalog, publication, statements
from mxr_registry.artifacts.amendment import CheckedPublication, PublicationSource
from mxr_registry.artifacts.publication import Inspect
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.storage.store import Store

from . import estimates, lease_endings, logs, tracking, transitions, workers

INHERITED = (*COUNTS, *PATCHES, "real_arch")
"""Attributes that a finished artifact takes from its claim if the worker does not report them."""

CHECK_LEASE = 300.0
"""Minimum lease in seconds while the registry checks a finished program: reading a large one takes time."""

PROMISED = (*FEATURES, "tuning", *INHERITED)
"""Attributes that a claim fixes in advance. Requests that attached to the running job rely on them."""


def finish(
    db: Database,
    store: Store,
    inspect: Inspect,
    rules: JobRules,
    namespace: str,
    principal: str,
    id: str,
    done: job_protocol.FinishJob,
) -> Json:
    """Publish the artifact of a job, close the job, and return it. Idempotent: a repeated call changes nothing.

    Raises `ConflictError` for a lost lease, `MismatchError` and `DamagedError` for a program that does not match the
    job (which is then queued again), and `NoSuchBlobError`.
    """
    with transitions.job_transaction(db) as session:
        row = tracking.find_job(session, namespace, id)
        if _already_finished(row, done):
            return tracking.shown(session, rules, row).job
        row = lease_endings.require_lease(session, namespace, id, done.lease)
        until = lease_endings.end_after(max(rules.lease, CHECK_LEASE))
        lease_endings.change_held(session, row, phase="publish", lease_until=until)
    try:
        if done.built is not None:
            with db.reading() as session:
                statements.check_built(session, row.id, done.artifact, done.built)
        done = _with_inherited_attributes(row, done)
        _check_matches_job(row, done)
        source = PublicationSource(BUILT, principal, row.id, row.worker_name, built=done.built)
        checked = publication.check_publication(db, store, inspect, namespace, done.artifact, source)
    except (MismatchError, DamagedError) as problem:
        name = "wrong_program" if isinstance(problem, MismatchError) else "damaged_program"
        # Transient, so that another worker retries it: only what MIGraphX itself rejects is permanent.
        failure = job_protocol.JobFailure(job_protocol.TRANSIENT, problem.message, name)
        lease_endings.fail(db, rules, namespace, row.id, job_protocol.FailJob(done.lease, failure, done.log))
        raise
    for _ in range(publication.ATTEMPTS):
        try:
            with transitions.job_transaction(db) as session:
                row = tracking.find_job(session, namespace, row.id)
                if _already_finished(row, done):
                    # The same finish, sent again while this one was checked.
                    return tracking.shown(session, rules, row).job
                row = lease_endings.require_lease(session, namespace, row.id, done.lease)
                seconds = _close(session, row, done, checked)
                job = tracking.at(session, rules, row.seq).job
            counters.COMPILES.labels(row.arch or "ref", "done").inc()
            counters.COMPILE_SECONDS.labels(row.arch or "ref").observe(seconds)
            return job
        except IntegrityError:
            continue
    raise NoSuchBlobError("A blob of this artifact has just been swept.")


def _already_finished(row: Row, done: job_protocol.FinishJob) -> bool:
    """Whether an identical call has succeeded before; the worker did not get its reply."""
    if row.state != job_protocol.DONE or row.lease != workers.digest_of(done.lease):
        return False
    return bool(row.artifact == artifact_id(done.artifact.key.digest, done.artifact.manifest.files))


def _with_inherited_attributes(row: Row, done: job_protocol.FinishJob) -> job_protocol.FinishJob:
    """Add attributes from the claim that the worker did not report."""
    pinned, made = catalog.attributes_of(row.pinned_json), done.artifact.attributes
    inherited = {name: getattr(pinned, name) for name in INHERITED if getattr(made, name) is None}
    return replace(done, artifact=replace(done.artifact, attributes=replace(made, **inherited)))


def _check_matches_job(row: Row, done: job_protocol.FinishJob) -> None:
    """Raise `MismatchError` for an artifact with another key, or one that does not satisfy all requests of the job."""
    key, made = done.artifact.key, done.artifact.attributes
    refused: list[Difference] = []
    if key.digest != row.digest:
        refused += codec.decode(Key, json.loads(row.key_json), "key").differences(key)
    refused += apply_rules(lanes.constraints_of(row.constraints_json), Candidate("", made)).refused
    refused += _broken_promises(catalog.attributes_of(row.pinned_json), made)
    if refused:
        rows = [each.to_json() for each in refused]
        raise MismatchError(
            f"The artifact does not match job {row.id[:12]}: {'; '.join(map(str, refused[:3]))}.",
            context={"differences": rows},
        )


def _broken_promises(pinned: Attributes, made: Attributes) -> list[Difference]:
    pairs = ((name, getattr(pinned, name), getattr(made, name)) for name in PROMISED)
    return [
        Difference(name, promised, found)
        for name, promised, found in pairs
        if promised not in (None, "any", found) and found != "any"
    ]


def _close(session: Session, row: Row, done: job_protocol.FinishJob, checked: CheckedPublication) -> float:
    """Close a job with its artifact, and return the seconds of the compile."""
    seconds = estimates.seconds_in(dict(done.artifact.provenance))
    if seconds is None:
        seconds = now(session) - (row.started_at or now(session))
    closing = lease_endings.CLOSED | {
        "state": job_protocol.DONE,
        "artifact": checked.id,
        "seconds": seconds,
        "failure_json": None,
    }
    lease_endings.change_held(session, row, **closing)
    # First, so that what is signed of the artifact names the whole log.
    logs.append(session, row.seq, done.log)
    publication.write_artifact(session, row.namespace, checked)
    transitions.record_event(session, row.seq, job_protocol.DONE, f"published {checked.id}", row.worker_name)
    workers.mark_seen(session, row.namespace, row.worker, now(session))
    return float(seconds)
