"""`mxr plan`: what a matrix or a toolchain upgrade would compile, and the same as jobs for a CI system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.key import key_words
from mxr.display.text import counted
from mxr.errors import MxrError, UsageError
from mxr_cli.help import command
from mxr_cli.matrix_input import annotate_errors, matrix_options, read_requests
from mxr_cli.options import Session, common, pipeline_environment
from mxr_cli.output import ErrorFormat, echo, format_duration, note, print_error, print_json, print_table
from mxr_cli.rows import model_cells

if TYPE_CHECKING:
    from mxr.plans.matrix_survey import PlannedCell, TargetWorkload
    from mxr.plans.upgrade_plan import Rebuild


MAX_ROWS = 100
"""Cells that are listed without --json."""


@command(usual=("before", "after", "output_format", "targets", "limit", "queue", "as_json"))
@click.argument("matrix", metavar="[MATRIX.yaml]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from",
    "before",
    metavar="VERSIONS",
    help="Plan an upgrade instead of a matrix: the toolchain in use, such as rocm=7.1,migraphx=2.14.",
)
@click.option("--to", "after", metavar="VERSIONS", help="The new toolchain, such as rocm=7.2,migraphx=2.15.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="N",
    default=30,
    show_default=True,
    help="With --from: consider artifacts used in the last N days.",
)
@click.option(
    "--grown",
    type=float,
    metavar="FACTOR",
    default=1.5,
    show_default=True,
    help="With --from: flag compiles that became slower by this factor.",
)
@click.option(
    "--ask", "queue", is_flag=True, help="With --from: queue the compiles, at a lower priority than any other."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "github", "gitlab")),
    default="text",
    show_default=True,
    help="github: a job matrix for fromJSON. gitlab: a child pipeline. Both have one job for each target that lacks "
    "programs.",
)
@matrix_options
@common
def plan(
    session: Session,
    matrix: Path | None,
    output_format: str,
    limit: int | None,
    targets: tuple[str, ...],
    env_from: tuple[str, ...],
    allow_outside: bool,
    follow_links: bool,
    **upgrade: Any,
) -> None:
    """Show what `mxr precompile MATRIX.yaml` would compile and for how long. Nothing is compiled, queued or uploaded.

    Estimates are medians of earlier compile times. Programs without an estimate are counted separately. A program that
    no worker can compile, and one could without the GPU, says so: `allow: cross` in its target permits it.

    With --from and --to, show instead which programs in use a toolchain upgrade invalidates, and what rebuilding them
    takes.

    \b
    Show a summary by target, then each missing program:
      mxr plan matrix.yaml
    Print {"include": [...]} for `strategy: matrix: ${{ fromJSON(...) }}`:
      mxr plan matrix.yaml --format github
    Print jobs for `trigger: include: artifact:`:
      mxr plan matrix.yaml --format gitlab
    Queue the programs that an upgrade invalidates, most used first:
      mxr plan --from rocm=7.1,migraphx=2.14 --to rocm=7.2,migraphx=2.15 --ask

    Exit with 8 if no worker can compile some program. With --format github or gitlab exit with 0 even then, because
    these jobs may start the workers.
    """
    if upgrade["before"] or upgrade["after"]:
        _plan_upgrade(session, matrix, **upgrade)
        return
    if matrix is None or upgrade["queue"]:
        raise UsageError("Give a matrix, or --from and --to.", hint="See mxr plan --help.")
    from mxr.plans import matrix_survey
    from mxr.plans.matrix_run import survey

    environment = pipeline_environment(env_from, allow_outside)
    with annotate_errors(environment):
        requests = read_requests(session, matrix, environment, limit, targets, follow_links=follow_links)
    planned = matrix_survey.plan_matrix(requests, survey(session.client(), requests))
    planned = matrix_survey.mark_crossable(session.client(), planned)
    if output_format == "github":
        print_json(matrix_survey.github(planned))
        return
    if output_format == "gitlab":
        for line in matrix_survey.gitlab(planned, matrix).splitlines():
            echo(line)
        return
    error = matrix_survey.exit_error(planned)
    if output_format == "json" or session.as_json:
        print_json(matrix_survey.plan_document(planned, matrix) | ({"error": error.to_json()} if error else {}))
    else:
        _print_plan(planned, matrix)
    if error is not None:
        raise click.exceptions.Exit(print_error(error, ErrorFormat()))


def _plan_upgrade(
    session: Session,
    matrix: Path | None,
    *,
    before: str | None,
    after: str | None,
    days: int,
    grown: float,
    queue: bool,
) -> None:

    if matrix is not None or before is None or after is None:
        raise UsageError("--from and --to must be given together and without a matrix.", hint="See mxr plan --help.")
    plan_upgrade(session, before, after, days, grown, queue)


def _print_plan(planned: Sequence[PlannedCell], matrix: Path) -> None:
    from mxr.plans import matrix_survey

    workloads = matrix_survey.workloads(planned)
    header = ("TARGET", *(state.upper() for state in matrix_survey.STATES), "COMPILE TIME")
    print_table(
        [(workload.target, *workload.counts.values(), _compile_time(workload)) for workload in workloads], header
    )
    missing = [each for each in planned if each.state != matrix_survey.AVAILABLE]
    if missing:
        echo()
        rows = [_cells(each, matrix) for each in missing[:MAX_ROWS]]
        print_table(rows, ("LINE", "MODEL", "TARGET", "VARIANT", "STATE", "ESTIMATE"))
        if len(missing) > MAX_ROWS:
            note(f"mxr: and {len(missing) - MAX_ROWS} more; --json lists all of them")
    echo()
    minutes, unknown = sum(workload.minutes for workload in workloads), sum(workload.unknown for workload in workloads)
    cells, cost = counted(len(planned), "cell"), _estimate(minutes, unknown)
    echo(f"{cells}, {len(planned) - len(missing)} available. To compile: {cost}.")


def _compile_time(workload: TargetWorkload) -> str:
    return _estimate(workload.minutes, workload.unknown) if workload.open else "-"


def _estimate(minutes: float, unknown: int) -> str:
    if not minutes:
        return f"{unknown} without an estimate" if unknown else "nothing"
    more = f", and {unknown} without an estimate" if unknown else ""
    return f"about {format_duration(minutes * 60)}{more}"


def _cells(planned: PlannedCell, matrix: Path) -> tuple[str, ...]:
    """The table cells of a planned cell: line, model, target, variant, state, estimate or earlier failure."""
    cell, known = planned.request.cell, planned.status
    estimate = "-"
    if planned.crossable:
        estimate = "with allow: cross"
    elif planned.open:
        estimate = "unknown"
        if known.estimate:
            estimate = f"{format_duration(known.estimate)}, based on {known.estimate_from}"
    elif known.failure:
        estimate = f"{known.failure.kind} ({known.failure.name})"
    state = f"{planned.state} as {known.job[:12]}" if known.job else planned.state
    return (f"{matrix.name}:{cell.line}", cell.name, cell.target, cell.variant, state, estimate)


MAX_REBUILDS = 50
"""Rebuilds that are listed without --json."""


def plan_upgrade(session: Session, before: str, after: str, days: int, factor: float, queue: bool) -> None:
    """Print the plan of an upgrade; with `queue`, queue its compiles.

    Compiles that became slower by `factor` are flagged. Raises `NoSuchModelError` when the registry lacks the files of
    a model.
    """
    from mxr.plans import upgrade_plan

    old, new = upgrade_plan.versions(before), upgrade_plan.versions(after)
    if factor < 1:
        raise UsageError(f"--grown {factor:g} is less than 1.", hint="Give a factor such as 1.5.")
    client = session.client()
    rebuilds = upgrade_plan.plan_rebuilds(client, old, new, days)
    document = upgrade_plan.upgrade_document(rebuilds, old, new, days, factor)
    if not session.as_json:
        echo(f"Programs used on {old} in the last {days} days, and their state on {new}:")
        _print_upgrade(rebuilds, factor)
    errors: list[MxrError] = []
    jobs: dict[str, str] = {}
    for each, job in upgrade_plan.queue_compiles(client, rebuilds) if queue else ():
        if isinstance(job, MxrError):
            errors.append(job)
        else:
            jobs[each.request.key.digest] = job.id
    if session.as_json:
        print_json(document | {"queued": jobs})
    elif queue:
        echo(f"Queued {counted(len(jobs), 'compile')} at low priority. List them with `mxr jobs`.")
    if errors:
        raise type(errors[0])(
            f"The registry no longer has the files of {len(errors)} of these models: {errors[0].message}",
            hint="Precompile them from their ONNX files: `mxr precompile` uploads missing models.",
        )


def _print_upgrade(rebuilds: Sequence[Rebuild], factor: float) -> None:
    models = model_cells([(rebuild.old.model_name, rebuild.request.key.model) for rebuild in rebuilds])
    rows = [_row(each, model) for each, model in zip(rebuilds[:MAX_REBUILDS], models, strict=False)]
    if rows:
        print_table(rows, ("USES", "MODEL", "TARGET", "INPUTS", "PRECISION", "STATE", "COMPILE TIME"))
    if len(rebuilds) > MAX_REBUILDS:
        note(f"mxr: and {len(rebuilds) - MAX_REBUILDS} more; --json lists all of them")
    for each, model in zip(rebuilds, models, strict=True):
        if each.grew(factor) and each.took and each.takes:
            note(
                f"mxr: warning: {model} for {each.request.key.arch or 'ref'} takes "
                f"{each.takes / each.took:.1f} times as long to compile as before ({format_duration(each.takes)}, was "
                f"{format_duration(each.took)})"
            )
    _print_summary(rebuilds)


def _print_summary(rebuilds: Sequence[Rebuild]) -> None:
    from mxr.plans import upgrade_plan

    sums = upgrade_plan.summary(rebuilds)
    missing = sums[upgrade_plan.COMPILE] + sums[upgrade_plan.QUEUED] + sums[upgrade_plan.NOBODY]
    parts = [f"about {format_duration(sums['seconds'])}"] if sums["seconds"] else []
    parts += [f"{sums['unknown']} without an estimate"] if sums["unknown"] else []
    cost = " and ".join(parts) or "nothing"
    echo(f"{len(rebuilds)} in use, {sums[upgrade_plan.AVAILABLE]} already available, {missing} to compile: {cost}.")
    if sums[upgrade_plan.NOBODY]:
        note(
            f"mxr: no live worker and no declared pool can compile {sums[upgrade_plan.NOBODY]} of them; "
            "see `mxr workers`"
        )


def _row(rebuild: Rebuild, model: str) -> tuple[str, ...]:
    key = rebuild.request.key
    seconds = rebuild.takes if rebuild.takes is not None else rebuild.estimate
    compile_time = format_duration(seconds) if seconds is not None else "unknown"
    target, _, inputs, precision = key_words(key)
    return (str(rebuild.uses), model, target, inputs, precision, rebuild.state, compile_time)
