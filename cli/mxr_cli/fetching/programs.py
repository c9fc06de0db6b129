"""Fetch one program, or one for each of several batch sizes, and write them where `--output` says.

The registry resolves the requests, or a lock names the programs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, NoSuchArtifactError
from mxr.plans.plan import PlannedProgram, fetch_plan
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.preparation import prepare
from mxr_cli.output import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxr.plans.lockfile import LockEntry, LockFile
    from mxr.request.builder import PreparedRequest, RequestOptions
    from mxr.request.model import ModelReference
    from mxr.workflows.fetch import Connect, Fetched
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch_programs(session: Session, options: FetchOptions, lock: LockFile | None = None) -> dict[str, Any]:
    """Fetch one program, or a set of batch sizes, and write it: what the registry resolves, or what a lock names.

    Returns the JSON document.
    """
    plan = plan_programs(session, options, lock)
    if not options.batches:
        (fetched,) = obtain_programs(session, options, plan)
        return deliver_program(session, plan[0], fetched, session.connect(offline=options.offline), options)
    options = _check_set(options, plan)
    return _deliver_set(session, options, plan, obtain_programs(session, options, plan))


def plan_programs(session: Session, options: FetchOptions, lock: LockFile | None = None) -> list[PlannedProgram]:
    """The program that the options ask for, or one for each batch size. Prints where their facts come from."""
    several = bool(options.batches)
    plan: list[PlannedProgram] = []
    known: ModelReference | str = options.model or ""
    for batch in options.batches or (options.request.batch,):
        request = replace(options.request, batch=batch)
        pinned: Sequence[LockEntry] = ()
        if lock is None:
            prepared = _prepare(session, options, request, known)
        else:
            prepared, pinned = _prepare_locked(session, options, request, known, lock)
        known = prepared.model
        output = None if several else options.destination(prepared.request.key)
        plan.append(PlannedProgram(prepared, output, batch if several else None, pinned))
    for line in dict.fromkeys(line for planned in plan for line in planned.prepared.notes):
        note(f"mxr: {line}")
    return plan


def _prepare(
    session: Session, options: FetchOptions, request: RequestOptions, model: ModelReference | str
) -> PreparedRequest:
    connect = session.connect(offline=options.offline)
    takes_open = session.takes_open and not options.on_miss.compiles and not options.batches
    host, defaults = session.host(request), options.defaults
    return prepare(request, model, session.cache(), connect, host, defaults=defaults, takes_open=takes_open)


def _prepare_locked(
    session: Session, options: FetchOptions, request: RequestOptions, model: ModelReference | str, lock: LockFile
) -> tuple[PreparedRequest, Sequence[LockEntry]]:
    from mxr.plans import pins

    if isinstance(model, str):
        connect = session.connect(offline=options.offline)
        follow_links = request.follow_links
        model = pins.find_locked_model(lock, model, session.cache(), connect, follow_links=follow_links)
    output = None if options.batches else options.output
    form = pins.recorded_form(model, request.consumer, output, options.name, options.ort.as_mapping())
    prepared = pins.build_locked_request(lock, request, model, session.host(request), form)
    return prepared, pins.entries_for(lock, prepared.request)


def obtain_programs(session: Session, options: FetchOptions, plan: Sequence[PlannedProgram]) -> list[Fetched]:
    """Fetch programs into the cache; compile those that are missing if `on_miss` says so."""
    connect = session.connect(offline=options.offline)
    compile = None
    if options.on_miss.compiles:
        from mxr_cli.compile_on_miss import compile_programs

        compile = partial(compile_programs, session, options.on_miss, options.request.calibration)
    try:
        return fetch_plan(plan, session.cache(), connect, refresh=options.refresh, compile=compile)
    except NoSuchArtifactError as error:
        alone = plan[0] if len(plan) == 1 and not plan[0].pinned else None
        if alone and options.on_miss.action == "fail" and connect is not None and alone.prepared.model.path:
            from mxr_cli.compile_on_miss import suggest_compile

            suggest_compile(session, error, _worker_request(alone))
        raise


def _worker_request(planned: PlannedProgram) -> PreparedRequest:
    """The request that a worker would get on a miss."""
    prepared, output = planned.prepared, planned.output
    if output is None:
        return prepared
    from mxr.install.installer import installer_for

    try:
        recording = installer_for(prepared.consumer).recording_request(prepared, output)
    except MxrError:
        return prepared
    return prepared if recording is None else recording.request


def _report(session: Session, planned: PlannedProgram, fetched: Fetched, options: FetchOptions) -> None:
    """Print what was fetched in a line, what of it was accepted, and where facts were assumed the complete command."""
    label = "" if planned.batch is None else f"batch {planned.batch}: "
    for line in fetched.warnings:
        note(f"mxr: warning: {label}{line}")
    prepared, match = planned.prepared, fetched.answer.match
    if match.relaxed:
        differences = fetch_workflow.describe_inexact_match(prepared.request, fetched.answer)
        note(f"mxr: {label}not an exact match: {differences}")
    if not session.as_json:
        note(f"mxr: {_summary(prepared, fetched)}")
    alone = planned.batch is None and not planned.pinned and prepared.model.path is not None
    if alone and (match.assumed or options.on_miss.verbose):
        from mxr.workflows.completion import complete_command

        note(f"mxr: the complete command: {complete_command(prepared, fetched.artifact)}{options.placing_words}")


def _summary(prepared: PreparedRequest, fetched: Fetched) -> str:
    """What was fetched, in a line."""
    from mxr.artifact.key import key_words
    from mxr.artifact.target import GfxArch, userland
    from mxr_cli.output import format_size

    artifact, key = fetched.artifact, fetched.artifact.key
    name = prepared.model.path.name if prepared.model.path else prepared.model.identity[:19]
    target = str(GfxArch.of(key.arch, artifact.attributes)) if key.arch else key.kind
    words = [target, *([f"{userland(key.vendor)} {key.rocm}"] if key.rocm else []), f"MIGraphX {key.migraphx}"]
    return f"{name} for {', '.join((*words, *key_words(key)[2:], format_size(artifact.size)))} ({fetched.source})"


def deliver_program(
    session: Session, planned: PlannedProgram, fetched: Fetched, connect: Connect | None, options: FetchOptions
) -> dict[str, Any]:
    """Report accepted differences, and write a program where its output says. Returns the JSON document."""
    prepared, output = planned.prepared, planned.output
    if output is None:
        _report(session, planned, fetched, options)
        return fetched.to_json()
    from mxr.install.installer import installer_for

    placed = installer_for(prepared.consumer).deliver(fetched, session.cache(), prepared, output, connect)
    # Not before a refusal to place it.
    _report(session, planned, fetched, options)
    for line in placed.notes:
        note(f"mxr: {line}")
    # A path that the user chose as a file needs no settings.
    if placed.settings and not session.as_json and placed.path != Path(output.path):
        note(f"mxr: configure {prepared.consumer.name} with:")
        for line in placed.settings:
            note(f"  {line}")
    return fetched.to_json() | {
        "path": str(placed.path),
        "consumer": prepared.consumer.name,
        "files": [str(path) for path in placed.files],
        "settings": list(placed.settings),
    }


def _check_set(options: FetchOptions, plan: Sequence[PlannedProgram]) -> FetchOptions:
    """Check where a set is written, before anything is downloaded. Returns the options with that folder."""
    if options.output is None:
        return options
    from mxr.install import variant_set
    from mxr.install.placement import check_stem

    variant_set.check_output(options.output)
    options = replace(options, output=options.folder_of(plan[0].prepared.request.key), per_arch=False)
    assert options.output is not None
    variant_set.check_output(options.output)
    variant_set.file_names(_requests(plan), check_stem(options.name or plan[0].prepared.model.stem))
    return options


def _requests(plan: Sequence[PlannedProgram]) -> dict[int, PreparedRequest]:
    return {planned.batch: planned.prepared for planned in plan if planned.batch is not None}


def _deliver_set(
    session: Session, options: FetchOptions, plan: Sequence[PlannedProgram], fetched: Sequence[Fetched]
) -> dict[str, Any]:
    """Report accepted differences, and write a set where `--output` says. Returns the JSON document."""
    prepared = _requests(plan)
    found = dict(zip(prepared, fetched, strict=True))
    for planned, each in zip(plan, fetched, strict=True):
        _report(session, planned, each, options)
    rows = {batch: {"batch": batch, **each.to_json()} for batch, each in found.items()}
    listing = None
    if options.output is not None:
        from mxr.install import variant_set

        cache, placing = session.cache(), {"link": options.link, "force": options.force}
        placed = variant_set.place_set(found, prepared, options.output, cache, name=options.name, **placing)
        listing = str(placed.listing)
        for batch, path in placed.files.items():
            rows[batch]["path"] = str(path)
    return {
        "set": listing,
        "model": plan[0].prepared.model.identity,
        "entries": [rows[batch] for batch in sorted(rows)],
    }
