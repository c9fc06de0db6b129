"""Fetch one program and write it where `--output` says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, NoSuchArtifactError
from mxr.util.frozen import dataclass
from mxr_cli.output import note, transfer_progress

if TYPE_CHECKING:
    from mxr.install.installer import RecordingRequest
    from mxr.install.placement import Destination, Placement
    from mxr.request.builder import PreparedRequest
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Connect, Fetched
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


@dataclass(frozen=True, slots=True)
class ObtainedProgram:
    """A program, or the files recorded from its consumer, in the cache, and where to write it."""

    fetched: Fetched
    asked: PreparedRequest
    subject: ModelReference
    output: Destination | None


def fetch_program(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch one program, or the files recorded from its consumer, and write it. Returns the JSON document."""
    return deliver_program(session, obtain_program(session, options), offline=options.offline)


def obtain_program(session: Session, options: FetchOptions) -> ObtainedProgram:
    """Fetch one program, or the files recorded from its consumer, into the cache; compile it if `on_miss` says so."""
    from mxr.api import complete

    assert options.model is not None
    cache, connect = session.cache(), session.connect(offline=options.offline)
    takes_open = session.takes_open and not options.on_miss.compiles
    host = session.host(options.request)
    subject, completed = complete(
        options.request, options.model, cache, connect, host, takes_open=takes_open, defaults=options.defaults
    )
    asked = completed.asked
    for line in asked.notes:
        note(f"mxr: {line}")
    if completed.command:
        note(f"mxr: the complete command: {completed.command}{options.placing_words}")
    output = options.output_request(asked, subject)
    if output is not None:
        from mxr.install.installer import installer_for

        installer = installer_for(asked.consumer)
        recorded = installer.find_recorded(asked, subject, output, cache, connect)
        if recorded is None and options.on_miss.compiles:
            recording = installer.recording_request(asked, subject, output)
            recorded = _record_on_worker(session, options, subject, recording)
        if recorded is not None:
            return ObtainedProgram(recorded, asked, subject, output)
        installer.check_unrecorded(asked, subject, output)
    try:
        fetched: Fetched = completed.fetch(cache, connect, refresh=options.refresh, watch=transfer_progress("fetching"))
    except NoSuchArtifactError as error:
        from mxr_cli.compile_on_miss import compile_and_fetch, suggest_compile

        if options.on_miss.action == "fail" and connect is not None and subject.path is not None:
            suggest_compile(session, error, _worker_request(asked, subject, output))
        if not options.on_miss.compiles:
            raise
        fetched = compile_and_fetch(session, options.on_miss, subject, asked, options.request.calibration)
    return ObtainedProgram(fetched, asked, subject, output)


def deliver_program(session: Session, obtained: ObtainedProgram, *, offline: bool = False) -> dict[str, Any]:
    """Report accepted differences and write the program where its output says. Returns the JSON document."""
    connect = session.connect(offline=offline)
    return deliver(session, obtained.output, obtained.fetched, obtained.asked, obtained.subject, connect)


def _record_on_worker(
    session: Session,
    options: FetchOptions,
    subject: ModelReference,
    recording: RecordingRequest | None,
) -> Fetched | None:
    """The files that the consumer writes on a worker; None if no recording is necessary or possible."""
    if recording is None:
        return None
    from mxr_cli.compile_on_miss import compile_and_fetch

    note(f"mxr: {recording.reason}")
    return compile_and_fetch(
        session, options.on_miss, subject, recording.request, options.request.calibration, recording.file_name
    )


def _worker_request(asked: PreparedRequest, subject: ModelReference, output: Destination | None) -> PreparedRequest:
    """The request that a worker would get on a miss."""
    from mxr.install.installer import installer_for

    if output is None:
        return asked
    try:
        recording = installer_for(asked.consumer).recording_request(asked, subject, output)
    except MxrError:
        return asked
    return asked if recording is None else recording.request


def deliver(
    session: Session,
    output: Destination | None,
    fetched: Fetched,
    asked: PreparedRequest,
    subject: ModelReference,
    connect: Connect | None,
) -> dict[str, Any]:
    """Report accepted differences and write the program where `output` says. Returns the JSON document."""
    from mxr.workflows import fetch as fetch_workflow

    for line in fetched.warnings:
        note(f"mxr: warning: {line}")
    if not fetched.answer.match.exact:
        note(f"mxr: not an exact match: {fetch_workflow.describe_inexact_match(asked.request, fetched.answer)}")
    if output is None:
        return fetched.to_json()
    from mxr.install.installer import installer_for

    placed = installer_for(asked.consumer).deliver(fetched, session.cache(), asked, subject, output, connect)
    return describe_placement(session, asked, output, fetched, placed)


def describe_placement(
    session: Session, asked: PreparedRequest, output: Destination, fetched: Fetched, placed: Placement
) -> dict[str, Any]:
    """Print notes and the settings of the consumer for a placed program. Returns the JSON document."""
    for line in placed.notes:
        note(f"mxr: {line}")
    # A path that the user chose as a file needs no settings.
    if placed.settings and not session.as_json and placed.path != Path(output.path):
        note(f"mxr: configure {asked.consumer.name} with:")
        for line in placed.settings:
            note(f"  {line}")
    return fetched.to_json() | {
        "path": str(placed.path),
        "consumer": asked.consumer.name,
        "files": [str(path) for path in placed.files],
        "settings": list(placed.settings),
    }
