"""`mxr jobs`: compile jobs of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.key import key_words
from mxr.display.streams import write_log
from mxr.errors import UsageError
from mxr_cli.compile_on_miss import finished_artifact
from mxr_cli.help import JOBS, MODELS, command, completes
from mxr_cli.job_progress import poll_seconds, progress_line, show_progress
from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import echo, format_duration, format_time, note, print_json, print_table
from mxr_cli.rows import model_cells, model_filter

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.protocol.jobs import Job


@command()
@click.argument("identity", metavar="[ID]", required=False, shell_complete=completes(JOBS))
@click.option("--follow", is_flag=True, help="Show the log of job ID until the job ends; exit with 5 if it failed.")
@click.option("--cancel", is_flag=True, help="Cancel job ID.")
@click.option("--state", metavar="STATE", help="Only jobs in this state; `open` means queued or running.")
@click.option(
    "--model",
    shell_complete=completes(MODELS),
    metavar="MODEL",
    help="Only jobs for this model: an ONNX file, its identity, or how its name begins.",
)
@click.option("--arch", metavar="ARCH", shell_complete=completes("arch"), help="Only jobs for this base architecture.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), metavar="N", default=100, show_default=True, help="List at most N jobs."
)
@FOLLOW_LINKS
@common
def jobs(
    session: Session,
    identity: str | None,
    follow: bool,
    cancel: bool,
    model: str | None,
    *,
    follow_links: bool,
    **filters: Any,
) -> None:
    """List compile jobs, newest first, or show job ID with its log. The first 8 digits of an ID are enough.

    \b
    mxr jobs                      list recent jobs and their results
    mxr jobs 1a2b3c4d --follow    show the log of a job until the job ends
    """
    if identity is None:
        if follow or cancel:
            raise UsageError("--follow and --cancel need the ID of a job.", hint="Run mxr jobs ID --follow.")
        if model is not None:
            filters |= model_filter(session, model, follow_links=follow_links)
        _list(session, filters)
        return
    if follow and cancel:
        raise UsageError("--follow and --cancel exclude each other.", hint="Omit one of the two.")
    client = session.client()
    job = client.cancel(identity) if cancel else client.job(identity)
    if cancel and job.state == "queued":
        note("mxr: Others asked for this job, too: it goes on for them.")
    if follow:
        _follow(session, client, job)
    elif session.as_json:
        print_json(_row(job))
    else:
        _show(client, job, with_log=not cancel)


def _list(session: Session, filters: dict[str, Any]) -> None:
    listed = session.client().jobs(**filters)
    if session.as_json:
        print_json({"jobs": [_row(job) for job in listed.items]})
        return
    models = model_cells([(job.model_name, job.request.key.model) for job in listed.items])
    rows = [
        (job.id[:12], job.state, model, *key_words(job.request.key), str(job.attempts), format_time(job.created_at))
        for job, model in zip(listed.items, models, strict=True)
    ]
    print_table(rows, ("ID", "STATE", "MODEL", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION", "ATTEMPTS", "CREATED"))
    if listed.next is not None:
        note("mxr: there are more jobs; --limit lists up to 1000")


def _row(job: Job) -> dict[str, Any]:
    from mxr.protocol.artifacts import message_document

    return message_document(job)


def _follow(session: Session, client: Client, job: Job) -> None:
    from mxr.workflows import compile as compile_workflow

    updates = compile_workflow.follow(client, job, pace=poll_seconds(log=True), log=True)
    job = show_progress(updates, job)
    artifact = finished_artifact(session, job, log_shown=True)
    print_json(_row(job)) if session.as_json else echo(artifact)


def _show(client: Client, job: Job, *, with_log: bool) -> None:
    from mxr.workflows.compile import JobProgress

    target, toolchain, inputs, precision = key_words(job.request.key)
    echo(f"id         {job.id}")
    echo(f"state      {progress_line(JobProgress(job, job.updated_at - job.created_at))}")
    name = f"  ({job.model_name})" if job.model_name else ""
    echo(f"model      {job.request.key.model}{name}")
    echo(f"for        {target}, {toolchain}, {inputs}, {precision}")
    echo(f"digest     {job.digest}")
    echo(f"created    {format_time(job.created_at)} UTC, attempts {job.attempts}")
    if job.artifact:
        echo(f"artifact   {job.artifact}")
    if job.failure:
        echo(f"failure    {job.failure.kind} ({job.failure.name}): {job.failure.message}")
    if job.estimate:
        echo(f"estimate   {format_duration(job.estimate)}, based on {job.estimate_from}")
    if with_log:
        echo()
        echo("log")
        write_log(client.log(job.id)[0].decode("utf-8", "replace"))
