"""`mxr jobs` and `mxr workers`: what is being compiled, and by whom it could be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mxr.errors import Usage

from .compiling import duration, finished, line, pace, printable, shown
from .options import Session, common
from .output import day, document, key_cells, note, say, table

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.host_facts import HostTarget
    from mxr.protocol.jobs import Job, WorkerCapabilities


@click.command(short_help="List jobs, or show, follow or cancel one.")
@click.argument("identity", metavar="[ID]", required=False)
@click.option("--follow", is_flag=True, help="Show the log of job ID until it is closed; exit 5 when it failed.")
@click.option("--cancel", is_flag=True, help="Cancel job ID.")
@click.option("--state", metavar="STATE", help="List those in this state; open: queued or running.")
@click.option("--arch", metavar="ARCH", help="List those for this base arch.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="List at most this many.")
@common
def jobs(session: Session, identity: str | None, follow: bool, cancel: bool, **filters: Any) -> None:
    """List jobs, the latest first; or show job ID with its log (8 digits of the id are enough).

    \b
    mxr jobs                      what was wanted lately, and what came of it
    mxr jobs 1a2b3c4d --follow    its log while it is compiled, until it is closed
    """
    if identity is None:
        if follow or cancel:
            raise Usage("--follow and --cancel are about one job.", hint="mxr jobs ID --follow")
        _list(session, filters)
        return
    if follow and cancel:
        raise Usage("--follow and --cancel contradict each other.", hint="Give one of them.")
    client = session.client()
    job = client.cancel(identity) if cancel else client.job(identity)
    if follow:
        _follow(session, client, job)
        return
    if session.as_json:
        document(_row(job))
        return
    _show(client, job, with_log=not cancel)


def _list(session: Session, filters: dict[str, Any]) -> None:
    found = session.client().jobs(**filters)
    if session.as_json:
        document({"jobs": [_row(job) for job in found.jobs]})
        return
    rows = [
        (job.id[:12], job.state, *key_cells(job.request.key), str(job.attempts), day(job.created_at))
        for job in found.jobs
    ]
    table(rows, ("ID", "STATE", "TARGET", "TOOLCHAIN", "INPUTS", "PRECISION", "ATTEMPTS", "ASKED"))
    if found.next is not None:
        note("mxr: there are more; --limit shows up to 1000")


def _row(job: Job) -> dict[str, Any]:
    from mxr.protocol.artifacts import document as wire_document

    return wire_document(job)


def _follow(session: Session, client: Client, job: Job) -> None:
    from mxr.workflows import compile as compile_workflow

    done = shown(compile_workflow.follow(client, job, pace=pace(True), log=True), job)
    artifact = finished(session, done, quiet=True)
    document(_row(done)) if session.as_json else say(artifact)


def _show(client: Client, job: Job, *, with_log: bool) -> None:
    from mxr.workflows.compile import JobProgress

    target, toolchain, inputs, precision = key_cells(job.request.key)
    say(f"id         {job.id}")
    say(f"state      {line(JobProgress(job, job.updated_at - job.created_at))}")
    say(f"for        {target}, {toolchain}, {inputs}, {precision}")
    say(f"digest     {job.digest}")
    say(f"asked      {day(job.created_at)} UTC, attempts {job.attempts}")
    if job.artifact:
        say(f"artifact   {job.artifact}")
    if job.failure:
        say(f"failure    {job.failure.kind} ({job.failure.name}): {printable(job.failure.message)}")
    if job.estimate:
        say(f"estimate   {duration(job.estimate)}, by {job.estimate_from}")
    if with_log:
        say("\nlog")
        say(printable(client.log(job.id)[0].decode("utf-8", "replace")).rstrip("\n"))


@click.command(short_help="List workers and declared pools.")
@common
def workers(session: Session) -> None:
    """List the workers with what each can compile for, and the declared pools, which may stand at zero."""
    found = session.client().workers()
    if session.as_json:
        from mxr.protocol.artifacts import document as wire_document

        document(wire_document(found))
        return
    table(
        [(each.name, each.state, *_can(each.can), (each.job or "")[:12], day(each.seen_at)) for each in found.workers],
        ("WORKER", "STATE", "TARGETS", "TOOLCHAIN", "JOB", "SEEN"),
    )
    if found.pools:
        say()
        rows = [(each.name, *_can(each.can), str(each.queued), str(each.running)) for each in found.pools]
        table(rows, ("POOL", "TARGETS", "TOOLCHAIN", "QUEUED", "RUNNING"))


def _can(can: WorkerCapabilities) -> tuple[str, str]:
    have = can.toolchain
    words = f"migraphx {have.migraphx or '?'}" + (f" rocm {have.rocm}" if have.rocm else "")
    words += f" onnxruntime {can.ort.version}" if can.ort else ""
    return ", ".join(dict.fromkeys(map(_target, can.targets))), words


def _target(target: HostTarget) -> str:
    if target.kind != "gpu":
        return target.kind
    signs = "".join(f":{name}{sign}" for name in ("sramecc", "xnack") if (sign := getattr(target, name)))
    return f"{target.arch}{signs}" + (f"/{target.num_cu}" if target.num_cu else "")
