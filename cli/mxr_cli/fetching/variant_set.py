"""Fetch several batch sizes of one model as a set: all of them, or none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mxr.errors import InterruptionError, MxrError
from mxr.install import variant_set
from mxr.workflows import fetch as fetch_workflow
from mxr_cli.compile_on_miss import artifact_of_job, submit_job
from mxr_cli.output import note, transfer_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxr.lockfiles.lockfile import LockFile
    from mxr.request.builder import PreparedRequest
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Fetched
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch_set(session: Session, options: FetchOptions, lock: LockFile | None = None) -> dict[str, Any]:
    """Fetch all variants of a model, or none. With `lock`, exactly those that it names. Returns the JSON document."""
    if options.output is not None:
        variant_set.check_output(options.output)
    subject, wanted = _requests(session, options, lock)
    if options.output is not None:
        folder = options.folder_of(next(iter(wanted.values())).request.key)
        variant_set.check_output(folder)
        options = replace(options, output=folder, per_arch=False)
    for line in dict.fromkeys(line for asked in wanted.values() for line in asked.notes):
        note(f"mxr: {line}")
    if options.output is not None:
        from mxr.install.placement import check_stem

        variant_set.file_names(wanted, check_stem(options.name or subject.stem))
    if lock is not None:
        fetched = _fetch_locked(session, options, wanted, lock)
    else:
        fetched = _fetch_or_compile(session, options, wanted, subject)
    for batch, each in fetched.items():
        for line in each.warnings:
            note(f"mxr: warning: batch {batch}: {line}")
        if not each.answer.match.exact:
            differences = fetch_workflow.describe_inexact_match(wanted[batch].request, each.answer)
            note(f"mxr: batch {batch}: not an exact match: {differences}")
    return _place(session, options, wanted, fetched, subject)


def _requests(
    session: Session, options: FetchOptions, lock: LockFile | None
) -> tuple[ModelReference, dict[int, PreparedRequest]]:
    """The model, and the request for each batch size, completed by the lock if there is one."""
    from mxr.lockfiles import pins
    from mxr.request import model as models
    from mxr.workflows.preparation import all_defaults, prepare

    assert options.model is not None
    cache, connect = session.cache(), session.connect(offline=options.offline)
    host = session.host(options.request)
    if lock is None:
        first = replace(options.request, batch=options.batches[0])
        subject, _ = prepare(first, options.model, cache, connect, host, defaults=options.defaults)
        defaults = all_defaults(first, subject, host, options.defaults, cache, connect)
        return subject, variant_set.build_requests(options.request, options.batches, subject, host, defaults)
    subject = models.find_model(options.model, cache, connect, follow_links=options.request.follow_links)
    each = {batch: replace(options.request, batch=batch) for batch in options.batches}
    return subject, {batch: pins.build_locked_request(lock, asked, subject, host) for batch, asked in each.items()}


def _place(
    session: Session,
    options: FetchOptions,
    wanted: dict[int, PreparedRequest],
    fetched: dict[int, Fetched],
    subject: ModelReference,
) -> dict[str, Any]:
    """Write the set where `--output` says. Returns the JSON document."""
    rows = {batch: {"batch": batch, **each.to_json()} for batch, each in fetched.items()}
    listing = None
    if options.output is not None:
        placed = variant_set.place_set(
            fetched,
            wanted,
            subject,
            options.output,
            session.cache(),
            link=options.link,
            name=options.name,
            force=options.force,
        )
        listing = str(placed.listing)
        for batch, path in placed.files.items():
            rows[batch]["path"] = str(path)
    return {"set": listing, "model": subject.model, "entries": [rows[batch] for batch in sorted(rows)]}


def _fetch_locked(
    session: Session, options: FetchOptions, wanted: dict[int, PreparedRequest], lock: LockFile
) -> dict[int, Fetched]:
    from mxr.lockfiles import pins

    connect = session.connect(offline=options.offline)
    return {
        batch: pins.fetch_pinned(lock, asked.request, session.cache(), connect, watch=transfer_progress("fetching"))
        for batch, asked in wanted.items()
    }


def _fetch_or_compile(
    session: Session, options: FetchOptions, wanted: dict[int, PreparedRequest], subject: ModelReference
) -> dict[int, Fetched]:
    """Fetch the variants, and compile those that are missing where `--on-miss` says so."""

    def compile(missing: Sequence[int]) -> dict[int, str]:
        return _compile(session, options, {batch: wanted[batch] for batch in missing}, subject)

    return variant_set.fetch_variants(
        wanted,
        session.cache(),
        session.connect(offline=options.offline),
        refresh=options.refresh,
        watch=transfer_progress("fetching"),
        compile=compile if options.on_miss.compiles else None,
    )


def _compile(
    session: Session, options: FetchOptions, wanted: dict[int, PreparedRequest], subject: ModelReference
) -> dict[int, str]:
    """Submit a job for each variant, then wait for all of them. Returns the ids of the artifacts.

    Raises the most severe of the errors, with all of them in its context.
    """
    on_miss = options.on_miss
    end = None if on_miss.timeout is None else time.monotonic() + on_miss.timeout
    calibration = options.request.calibration
    jobs = {batch: submit_job(session, on_miss, subject, asked, calibration) for batch, asked in wanted.items()}
    artifacts: dict[int, str] = {}
    errors: list[MxrError] = []
    for batch, job in jobs.items():
        remaining = on_miss if end is None else replace(on_miss, timeout=max(0.0, end - time.monotonic()))
        try:
            artifacts[batch] = artifact_of_job(session, remaining, job)
        except InterruptionError:
            raise
        except MxrError as error:
            note(f"mxr: batch {batch}: {error.message}")
            errors.append(error)
    if errors:
        raise _combined(variant_set.decisive_error(errors), errors, [job.id for job in jobs.values()])
    return artifacts


def _combined(worst: MxrError, errors: list[MxrError], jobs: list[str]) -> MxrError:
    context = worst.context | {"jobs": jobs, "problems": [each.to_json() for each in errors]}
    message = f"{len(errors)} of {len(jobs)} variants are not available, so none was fetched. {worst.message}"
    return type(worst)(message, hint=worst.hint, context=context)
