"""Fetch one program and write it where `--output` says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, NoSuchArtifactError
from mxr.util.frozen import dataclass
from mxr_cli.output import note, transfer_progress

if TYPE_CHECKING:
    from collections.abc import Callable

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
    from mxr.workflows.fetch import fetch_prepared
    from mxr.workflows.preparation import prepare

    assert options.model is not None
    cache, connect = session.cache(), session.connect(offline=options.offline)
    takes_open = session.takes_open and not options.on_miss.compiles
    host = session.host(options.request)
    subject, asked = prepare(
        options.request, options.model, cache, connect, host, takes_open=takes_open, defaults=options.defaults
    )
    for line in asked.notes:
        note(f"mxr: {line}")
    if asked.command:
        note(f"mxr: the complete command: {asked.command}{options.placing_words}")
    output = options.destination(asked.request.key)
    fetch: Callable[..., Fetched] = partial(fetch_prepared, asked)
    if output is not None or options.on_miss.compiles:
        from mxr.install.installer import fetch_artifact

        compile = partial(_compile, session, options, subject) if options.on_miss.compiles else None
        fetch = partial(fetch_artifact, asked, subject, output, compile=compile)
    try:
        fetched = fetch(cache, connect, refresh=options.refresh, watch=transfer_progress("fetching"))
    except NoSuchArtifactError as error:
        if options.on_miss.action == "fail" and connect is not None and subject.path is not None:
            from mxr_cli.compile_on_miss import suggest_compile

            suggest_compile(session, error, _worker_request(asked, subject, output))
        raise
    return ObtainedProgram(fetched, asked, subject, output)


def deliver_program(session: Session, obtained: ObtainedProgram, *, offline: bool = False) -> dict[str, Any]:
    """Report accepted differences and write the program where its output says. Returns the JSON document."""
    connect = session.connect(offline=offline)
    return deliver(session, obtained.output, obtained.fetched, obtained.asked, obtained.subject, connect)


def _compile(
    session: Session,
    options: FetchOptions,
    subject: ModelReference,
    asked: PreparedRequest,
    recording: RecordingRequest | None,
) -> Fetched:
    """Compile the program, or have a worker record the files of its consumer, and fetch the result."""
    from mxr_cli.compile_on_miss import compile_and_fetch

    file_name = None
    if recording is not None:
        note(f"mxr: {recording.reason}")
        file_name = recording.file_name
    return compile_and_fetch(session, options.on_miss, subject, asked, options.request.calibration, file_name)


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
