"""`mxr precompile`: every program that a matrix wants, and only what is missing is compiled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.errors import Interrupted, MxrError, Usage

from .options import PipelineEnvironment, Session, common, surroundings
from .output import FailureStyle, document, fail, note, say, watch

if TYPE_CHECKING:
    from mxr.matrix import Cell
    from mxr.precompilation.run import CellRequest, MatrixStatus, MissPolicy

WAYS = ("fail", "ask", "wait")
LOOK = 1.0
"""Seconds between two pictures on a terminal."""

matrix_options = (
    click.option(
        "--limit", type=click.IntRange(1, 100_000), metavar="N", help="Bear this many combinations (2000, or `limit:`)."
    ),
    click.option(
        "--target", "targets", multiple=True, metavar="NAME", help="Only this target, as `mxr plan` names it."
    ),
)


@click.command(short_help="Have every program of a matrix compiled that is not there yet.")
@click.argument("matrix", metavar="MATRIX.yaml", type=click.Path(path_type=Path), required=False)
@click.option(
    "--on-miss",
    default="wait",
    metavar="WAY",
    help="wait[=TIME]: have what is missing compiled, and wait (default). ask: queue it, exit 4. fail: exit 3.",
)
@click.option("--retry", is_flag=True, help="In spite of failures remembered.")
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write JUnit's XML here."
)
@matrix_options[0]
@matrix_options[1]
@click.option("--schema", is_flag=True, help="Print the JSON schema of a matrix, for editors.")
@common
def precompile(
    session: Session,
    matrix: Path | None,
    on_miss: str,
    retry: bool,
    junit: Path | None,
    limit: int | None,
    targets: tuple[str, ...],
    schema: bool,
) -> None:
    """Have every program of MATRIX.yaml compiled that the registry does not have yet.

    Models x targets x batches or shapes x precisions x consumers. Each model is read once and uploaded once, and only
    what is missing is compiled; what somebody else is compiling already is waited for. Run it again as often as you
    like, also after an interruption: nothing is compiled twice.

    \b
    mxr precompile matrix.yaml                          wait for all; exit 5 if any failed, 8 if nobody can
    mxr precompile matrix.yaml --on-miss wait=2h        at most two hours, then exit 4
    mxr precompile matrix.yaml --on-miss fail           are they all there? exit 3 if not
    mxr precompile matrix.yaml --json --junit out.xml   for a pipeline
    mxr precompile --schema > matrix.schema.json        for your editor

    On GitHub, lines of the matrix are marked and the step's summary is written. Several failures: 5 before 8 before
    75 before 4.
    """
    if schema:
        from mxr.matrix import schema as draw

        document(draw())
        return
    if matrix is None:
        raise Usage("Which matrix?", hint="mxr precompile MATRIX.yaml")
    plan, around = _plan(on_miss, retry), surroundings()
    with marked(around):
        wanted = prepared(session, matrix, around, limit, targets)
        board = _look(session, wanted, matrix)
    try:
        _carry_out(session, board, plan)
    finally:
        _report(board, matrix, junit, around)
    _end(session, board, matrix)


def _plan(on_miss: str, retry: bool) -> MissPolicy:
    from mxr.precompilation.run import MissPolicy

    from .compiling import OnMiss

    how = OnMiss.read(on_miss, retry=retry, verbose=False)
    if how.way not in WAYS:
        raise Usage(f"--on-miss {on_miss} is not for a matrix.", hint="Choose one of: fail, ask, wait[=10m].")
    deadline = None if how.seconds is None else time.monotonic() + how.seconds
    return MissPolicy(how.way != "fail", how.way == "wait", retry, deadline)


@contextlib.contextmanager
def marked(around: PipelineEnvironment) -> Iterator[None]:
    """On GitHub, marks the line that an error tells of."""
    try:
        yield
    except MxrError as problem:
        if around.github and "line" in problem.detail:
            from mxr.precompilation.reports import annotation

            note(annotation(problem.message, problem.detail["file"], problem.detail["line"]))
        raise


def prepared(
    session: Session, matrix: Path, around: PipelineEnvironment, limit: int | None, targets: tuple[str, ...]
) -> tuple[CellRequest, ...]:
    """The requests of a matrix. Raises what is wrong with it, with the line."""
    from mxr.matrix import cells, read
    from mxr.precompilation.run import prepare

    found = _selected(cells(read(matrix, around.variables, limit)), targets)
    return prepare(found, matrix, session.cache(), session.client)


def _selected(cells: tuple[Cell, ...], targets: tuple[str, ...]) -> tuple[Cell, ...]:
    known = dict.fromkeys(cell.target for cell in cells)
    for name in targets:
        if name not in known:
            raise Usage(f"The matrix has no target {name!r}.", hint=f"Its targets: {', '.join(known)}.")
    return tuple(cell for cell in cells if not targets or cell.target in targets)


def _look(session: Session, wanted: tuple[CellRequest, ...], matrix: Path) -> MatrixStatus:
    from mxr.precompilation.run import look

    from .board import totals

    board = look(session.client(), wanted, matrix)
    note(f"mxr: {totals(board)}")
    return board


def _carry_out(session: Session, board: MatrixStatus, plan: MissPolicy) -> None:
    """Asks and follows, shown on the screen. An interrupt leaves the jobs."""
    from mxr.precompilation.run import ask, follow
    from mxr.workflows import compile as compile_workflow

    from .board import Screen

    if not plan.ask:
        return
    client, screen = session.client(), Screen(board)
    try:
        for at in ask(client, board, plan, watch("uploading")):
            if not screen.live:
                screen.show([at])
        if plan.wait:
            screen.show(())
            for changed in follow(client, board, plan, LOOK if screen.live else compile_workflow.PACE):
                screen.show(changed)
    except KeyboardInterrupt:
        jobs = list(board.jobs())
        raise Interrupted(
            f"Interrupted; {len(jobs)} jobs go on without you.",
            hint="`mxr jobs --state open` shows them; the same command again takes up where it was.",
            detail={"jobs": jobs},
        ) from None
    finally:
        screen.close()


def _report(board: MatrixStatus, matrix: Path, junit: Path | None, around: PipelineEnvironment) -> None:
    """Writes the files that were asked for, also when it ends early."""
    from mxr.precompilation import reports
    from mxr.util import disk

    if junit is not None:
        disk.write_whole(junit, reports.junit(board, matrix))
    if around.step_summary is not None:
        with disk.faults(around.step_summary), around.step_summary.open("a", encoding="utf-8") as stream:
            stream.write(reports.step_summary(board, matrix))
    for line in reports.marks(board, matrix) if around.github else ():
        note(line)


def _end(session: Session, board: MatrixStatus, matrix: Path) -> None:
    from mxr.precompilation import reports

    problem = reports.verdict(board)
    if session.as_json:
        document(reports.document(board, matrix) | (problem.to_json() if problem else {}))
    else:
        _say(board, matrix)
    if problem is not None:
        raise click.exceptions.Exit(fail(problem, FailureStyle()))


def _say(board: MatrixStatus, matrix: Path) -> None:
    from .board import name, state, totals

    for place in board.places:
        if place.artifact is None:
            say(f"{matrix}:{place.wanted.cell.line}: {name(place)}: {state(place)}")
    say(totals(board))
