"""`mxr fetch --batch 1,2,4`: several variants as one, found together, compiled together, put down together."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mxr.errors import Interrupted, MxrError
from mxr.install import variant_set
from mxr.request.builder import BuiltRequest
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.fetch import Fetched

from .compiling import OnMiss, ask_for, outcome
from .options import Session
from .output import note, watch

if TYPE_CHECKING:
    from mxr.lockfiles.lockfile import LockFile
    from mxr.request.model import ModelReference

    from .call import FetchCall


def fetch_set(
    session: Session, call: FetchCall, lock: LockFile | None = None, model: str | None = None
) -> dict[str, Any]:
    """All variants of a model, or none; the document. With `lock` exactly those that it names."""
    from mxr.api import prepare

    if call.output is not None:
        variant_set.check_output(call.output)
    cache = session.cache()
    connect = None if call.flags["offline"] else session.client
    host = session.host(call.options)
    first = replace(call.options, batch=call.batches[0])
    subject, asked = prepare(first, model or call.model or "", cache, connect, host)
    for line in asked.notes:
        note(f"mxr: {line}")
    wanted = variant_set.ask(call.options, call.batches, subject, host)
    if call.output is not None:
        from mxr.install.placement import check_stem

        variant_set.file_names(wanted, check_stem(call.flags["name"] or subject.stem))
    found = _locked(session, call, wanted, lock) if lock is not None else _found(session, call, wanted, subject)
    for batch, each in found.items():
        if not each.answer.match.exact:
            short = fetch_workflow.shortfall(wanted[batch].request, each.answer)
            note(f"mxr: batch {batch}: not an exact match: {short}")
    return _document(session, call, wanted, found, subject)


def _document(
    session: Session,
    call: FetchCall,
    wanted: dict[int, BuiltRequest],
    found: dict[int, Fetched],
    subject: ModelReference,
) -> dict[str, Any]:
    rows = {batch: {"batch": batch, **each.to_json()} for batch, each in found.items()}
    listing = None
    if call.output is not None:
        placed = variant_set.place(
            found,
            wanted,
            subject,
            call.output,
            session.cache(),
            link=call.flags["link"],
            name=call.flags["name"],
            force=call.flags["force"],
        )
        listing = str(placed.listing)
        for batch, path in placed.files.items():
            rows[batch]["path"] = str(path)
    return {"set": listing, "model": subject.model, "entries": [rows[batch] for batch in sorted(rows)]}


def _locked(session: Session, call: FetchCall, wanted: dict[int, BuiltRequest], lock: LockFile) -> dict[int, Fetched]:
    from mxr.lockfiles import pins

    connect = None if call.flags["offline"] else session.client
    return {
        batch: pins.fetch(lock, asked.request, session.cache(), connect, watch=watch("fetching"))
        for batch, asked in wanted.items()
    }


def _found(
    session: Session, call: FetchCall, wanted: dict[int, BuiltRequest], subject: ModelReference
) -> dict[int, Fetched]:
    """What is there, and what is compiled because it is not; nothing moves before every variant is known to be there.

    Raises `NoSuchArtifact` naming all that are missing, or what became of their compiles.
    """
    cache = session.cache()
    connect = None if call.flags["offline"] else session.client
    found, missing = variant_set.look(wanted, cache, connect, refresh=call.flags["refresh"])
    if missing and not call.compiles:
        raise variant_set.lacking(missing, len(wanted))
    made = _compiled(session, call, {batch: wanted[batch] for batch in missing}, subject) if missing else {}
    fetched = variant_set.bring(wanted, found, cache, watch=watch("fetching"))
    for batch, identity in made.items():
        client = session.client()
        fetched[batch] = fetch_workflow.fetch_compiled(
            identity, wanted[batch].request, cache, client, watch=watch("fetching")
        )
    return dict(sorted(fetched.items()))


def _compiled(
    session: Session, call: FetchCall, wanted: dict[int, BuiltRequest], subject: ModelReference
) -> dict[int, str]:
    """The artifact that comes of each: all are asked for first, then waited for. Raises the worst of what fails."""
    how = OnMiss.read(call.on_miss, retry=call.flags["retry"], verbose=call.flags["verbose"])
    end = None if how.seconds is None else time.monotonic() + how.seconds
    jobs = {batch: ask_for(session, how, subject, asked, call.options.calibration) for batch, asked in wanted.items()}
    made: dict[int, str] = {}
    problems: list[MxrError] = []
    for batch, job in jobs.items():
        left = how if end is None else replace(how, seconds=max(0.0, end - time.monotonic()))
        try:
            made[batch] = outcome(session, left, job)
        except Interrupted:
            raise
        except MxrError as problem:
            note(f"mxr: batch {batch}: {problem.message}")
            problems.append(problem)
    if problems:
        raise _together(variant_set.worst(problems), problems, len(jobs), [job.id for job in jobs.values()])
    return made


def _together(worst: MxrError, problems: list[MxrError], of: int, jobs: list[str]) -> MxrError:
    detail = worst.detail | {"jobs": jobs, "problems": [each.to_json()["error"] for each in problems]}
    message = f"{len(problems)} of {of} variants are not there, so that none is handed out. {worst.message}"
    return type(worst)(message, hint=worst.hint, detail=detail)
