"""`mxr plan`: what a matrix would cost, before anything is compiled; and the same as jobs for a CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.errors import Usage

from .compiling import duration, printable
from .options import Session, common, surroundings
from .output import FailureStyle, document, fail, note, say, table
from .precompile import marked, matrix_options, prepared

if TYPE_CHECKING:
    from mxr.precompilation.matrix_plan import PlannedCell, TargetWorkload

MOST_SHOWN = 100
"""Cells that are listed; all of them are in --json."""


@click.command(short_help="Show what a matrix would cost: what is there, what would be compiled, for how long.")
@click.argument("matrix", metavar="[MATRIX.yaml]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "before", metavar="VERSIONS", help="Plan an upgrade instead: rocm=7.1,migraphx=2.14, in use now."
)
@click.option("--to", "after", metavar="VERSIONS", help="The toolchain to come: rocm=7.2,migraphx=2.15.")
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="In use: in so many days.")
@click.option("--grown", type=float, default=1.5, show_default=True, help="Point out compiles so many times as long.")
@click.option("--ask", "queue", is_flag=True, help="Queue what the upgrade needs, behind what anybody waits for.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "github", "gitlab")),
    default="text",
    help="github: a matrix for fromJSON. gitlab: a child pipeline. Both: a job for each target that lacks something.",
)
@matrix_options[0]
@matrix_options[1]
@common
def plan(
    session: Session, matrix: Path | None, form: str, limit: int | None, targets: tuple[str, ...], **upgrade: Any
) -> None:
    """Show what `mxr precompile MATRIX.yaml` would do. Nothing is compiled, queued or uploaded.

    Minutes are the median of what compiles took before; where that is not known, it is said and counted apart.

    \b
    mxr plan matrix.yaml                     by target, then the cells that are not there
    mxr plan matrix.yaml --format github     {"include": [...]} for `strategy: matrix: ${{ fromJSON(...) }}`
    mxr plan matrix.yaml --format gitlab     jobs for `trigger: include: artifact:`
    mxr plan --from rocm=7.1,migraphx=2.14 --to rocm=7.2,migraphx=2.15 --ask
                                             what is in use that the upgrade invalidates, queued in order of demand

    Exit 8 when some cell can be compiled by nobody; 0 with --format github and gitlab, whose jobs may bring the
    workers.
    """
    if upgrade["before"] or upgrade["after"]:
        _upgrade(session, matrix, **upgrade)
        return
    if matrix is None or upgrade["queue"]:
        raise Usage("Give a matrix, or --from and --to.", hint="See mxr plan --help.")
    from mxr.precompilation import matrix_plan
    from mxr.precompilation.run import standings

    around = surroundings()
    with marked(around):
        wanted = prepared(session, matrix, around, limit, targets)
    planned = matrix_plan.plan(wanted, standings(session.client(), wanted))
    if form in ("github", "gitlab"):
        document(matrix_plan.github(planned)) if form == "github" else say(matrix_plan.gitlab(planned, matrix).rstrip())
        return
    problem = matrix_plan.verdict(planned)
    if form == "json" or session.as_json:
        document(matrix_plan.document(planned, matrix) | (problem.to_json() if problem else {}))
    else:
        _show(planned, matrix)
    if problem is not None:
        raise click.exceptions.Exit(fail(problem, FailureStyle()))


def _upgrade(
    session: Session,
    matrix: Path | None,
    *,
    before: str | None,
    after: str | None,
    days: int,
    grown: float,
    queue: bool,
) -> None:
    from .upgrade import show_upgrade

    if matrix is not None or before is None or after is None:
        raise Usage("--from and --to go together, and with no matrix.", hint="See mxr plan --help.")
    show_upgrade(session, before, after, days, grown, queue)


def _show(planned: Sequence[PlannedCell], matrix: Path) -> None:
    from mxr.precompilation import matrix_plan

    found = matrix_plan.lots(planned)
    head = ("TARGET", *(state.upper() for state in matrix_plan.STATES), "COMPILE TIME")
    table([(lot.target, *lot.counts.values(), _time(lot)) for lot in found], head)
    rest = [each for each in planned if each.state != matrix_plan.THERE]
    if rest:
        say()
        rows = [_cells(each, matrix) for each in rest[:MOST_SHOWN]]
        table(rows, ("LINE", "MODEL", "TARGET", "VARIANT", "STATE", "ESTIMATE"))
        if len(rest) > MOST_SHOWN:
            note(f"mxr: and {len(rest) - MOST_SHOWN} more; --json has all of them")
    say()
    minutes, unknown = sum(lot.minutes for lot in found), sum(lot.unknown for lot in found)
    there = len(planned) - len(rest)
    say(f"{len(planned)} cells, {there} there. To compile: {_span(minutes, unknown)}.")


def _time(lot: TargetWorkload) -> str:
    return _span(lot.minutes, lot.unknown) if lot.open else "-"


def _span(minutes: float, unknown: int) -> str:
    if not minutes:
        return f"{unknown} without an estimate" if unknown else "nothing"
    more = f", and {unknown} without an estimate" if unknown else ""
    return f"about {duration(minutes * 60)}{more}"


def _cells(each: PlannedCell, matrix: Path) -> tuple[str, ...]:
    cell, seen = each.wanted.cell, each.standing
    estimate = "-"
    if each.open:
        estimate = f"{duration(seen.estimate)} by {seen.estimate_from}" if seen.estimate else "not known"
    elif seen.failure:
        estimate = f"{seen.failure.kind} ({seen.failure.name})"
    state = f"{each.state} as {seen.job[:12]}" if seen.job else each.state
    return (f"{matrix.name}:{cell.line}", printable(cell.name), cell.target, cell.variant, state, printable(estimate))
