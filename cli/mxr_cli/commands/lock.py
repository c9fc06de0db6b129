"""`mxr lock`: pin the artifacts that requests resolve to, check the pins, and protect them in the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.display.text import counted
from mxr.errors import UsageError
from mxr.plans import drift
from mxr.plans.lockfile import FILE_NAME, LockFile, load_lock, save_lock
from mxr.plans.locking import NamedRequest, lock_requests
from mxr.request.builder import RequestOptions
from mxr.util.frozen import dataclass
from mxr_cli.fetching.fetch_options import ORT, ort_options
from mxr_cli.help import command, completes
from mxr_cli.matrix_input import annotate_errors, matrix_access, read_requests
from mxr_cli.options import Session, common, matching, pipeline_environment, several_requests
from mxr_cli.output import echo, format_time, print_json, print_table
from mxr_cli.rows import report_findings

if TYPE_CHECKING:
    from mxr_cli.fetching.fetch_options import OrtOptions


@dataclass(frozen=True, slots=True)
class LockTask:
    """What one call of `mxr lock` does: write, check, register, list registrations, or unregister."""

    models: tuple[str, ...]
    file: Path
    add: bool
    check: bool
    register: str | None
    registered: bool
    unregister: str | None
    env_from: tuple[str, ...] = ()
    allow_outside: bool = False

    def __post_init__(self) -> None:
        candidates = (
            ("MODEL", self.models or self.add),
            ("--check", self.check),
            ("--registered", self.registered),
            ("--unregister", self.unregister is not None),
        )
        tasks = [name for name, given in candidates if given]
        if self.register is not None and not tasks:
            tasks = ["MODEL"]
        if len(tasks) > 1:
            raise UsageError(f"{' and '.join(tasks)} exclude each other.", hint="Run mxr lock once for each.")
        if not tasks or (self.add and not self.models):
            raise UsageError("No model is given.", hint="Run mxr lock MODEL..., or mxr lock --check.")


@command(
    usual=("file", "add", "check", "register", "arch", "rocm", "migraphx", "batch", "precision", "consumer"),
    groups={"ONNX Runtime": ORT},
)
@click.argument("models", metavar="[MODEL|MATRIX.yaml]...", nargs=-1, shell_complete=completes("model"))
@click.option(
    "-o",
    "--file",
    type=click.Path(path_type=Path),
    default=FILE_NAME,
    show_default=True,
    metavar="FILE",
    help="The lock file.",
)
@click.option("--add", is_flag=True, help="Keep the other entries of the lock file.")
@click.option(
    "--check",
    is_flag=True,
    help="Compare the lock with the registry: exit with 3 if an artifact is gone, "
    "with 6 if a request now gets a different one.",
)
@click.option("--register", metavar="NAME", help="Register the lock as NAME, to protect its artifacts from removal.")
@click.option("--registered", is_flag=True, help="List the registered locks.")
@click.option("--unregister", metavar="NAME", help="Remove the registered lock NAME and its protection.")
@ort_options
@several_requests
@matching
@matrix_access
@common
def lock(session: Session, options: RequestOptions, batches: tuple[int, ...], ort: OrtOptions, **values: Any) -> None:
    """Write a lock file with the artifact that each request gets now. Commit it, and deploy with `mxr fetch --locked`.

    If artifacts are missing, write nothing and list all of them (exit code 3).

    \b
    Lock models for a target:
      mxr lock models/*.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 1,8
    Add a model to the lock:
      mxr lock models/bert.onnx --arch gfx942 --rocm 7.2 --migraphx 2.15 --add
    Lock everything that mxr precompile compiled:
      mxr lock matrix.yaml
    Check in a pull request that every artifact still exists and is still the first choice:
      mxr lock --check
    Protect the locked artifacts from removal and garbage collection:
      mxr lock --register prod
    """
    task = LockTask(**values)
    if task.unregister is not None:
        removed = session.client().remove_lock(task.unregister)
        print_json({"name": removed.name, "unregistered": True}) if session.as_json else echo(removed.name)
    elif task.registered:
        _list_registered(session)
    elif task.check:
        _check(session, task.file, follow_links=options.follow_links)
    else:
        _write(session, task, options, batches, ort)


def _write(
    session: Session, task: LockTask, options: RequestOptions, batches: tuple[int, ...], ort: OrtOptions
) -> None:
    """Lock the models, if any are given, and register the lock, if a name is given."""
    if task.models:
        base = load_lock(task.file) if task.add and task.file.exists() else LockFile(())
        requests = _requests(session, task, options, batches)
        lock_file = base.merged(lock_requests(requests, task.file.parent, session.client, ort.as_mapping()))
        save_lock(lock_file, task.file)
    else:
        lock_file = load_lock(task.file)
    if task.register is not None:
        session.client().put_lock(task.register, lock_file.ids)
    if session.as_json:
        rows = [entry.to_json() for entry in lock_file.entries]
        print_json({"lock": str(task.file), "registered": task.register, "entries": rows})
    else:
        registered = f", registered as {task.register}" if task.register is not None else ""
        entries, artifacts = (
            counted(len(lock_file.entries), "entry", "entries"),
            counted(len(lock_file.ids), "artifact"),
        )
        echo(f"{task.file}: {entries}, {artifacts}{registered}")


def _requests(
    session: Session, task: LockTask, options: RequestOptions, batches: tuple[int, ...]
) -> Iterator[NamedRequest]:
    """The requests of all models and matrices. A matrix has its own options."""
    from mxr.request import model as models
    from mxr.workflows.preparation import prepare

    cache = session.cache()
    for model in task.models:
        if model.endswith((".yaml", ".yml")):
            if batches or options != RequestOptions(consumer=options.consumer, follow_links=options.follow_links):
                raise UsageError(
                    f"{model} is a matrix, which contains the options of its requests.",
                    hint="Omit the options, or lock models instead of a matrix.",
                )
            yield from _matrix_requests(session, task, Path(model), follow_links=options.follow_links)
            continue
        defaults = session.defaults(model)
        known = models.find_model(model, cache, session.client, follow_links=options.follow_links)
        for batch in batches or session.default_batches(options, defaults, known) or (options.batch,):
            each = replace(options, batch=batch)
            prepared = prepare(each, known, cache, session.client, session.host(each), defaults=defaults)
            yield model, prepared


def _matrix_requests(session: Session, task: LockTask, matrix: Path, *, follow_links: bool) -> Iterator[NamedRequest]:
    environment = pipeline_environment(task.env_from, task.allow_outside)
    with annotate_errors(environment):
        for each in read_requests(session, matrix, environment, None, (), follow_links=follow_links):
            yield each.cell.name, each.prepared


def _check(session: Session, file: Path, *, follow_links: bool) -> None:
    client, lock_file = session.client(), load_lock(file)
    findings = list(drift.check_entries(lock_file, file.parent, session.cache(), client, follow_links=follow_links))
    report_findings(session, findings)
    error = drift.drift_error(findings)
    if error is not None:
        raise error
    if not session.as_json:
        echo(f"{file}: {counted(len(findings), 'entry', 'entries')}, all as locked")


def _list_registered(session: Session) -> None:
    locks = session.client().locks()
    if session.as_json:
        from mxr.protocol.artifacts import message_document

        print_json({"locks": [message_document(each) for each in locks]})
        return
    rows = [(each.name, len(each.artifacts), format_time(each.updated_at)) for each in locks]
    print_table(rows, ("NAME", "ARTIFACTS", "REGISTERED"))
