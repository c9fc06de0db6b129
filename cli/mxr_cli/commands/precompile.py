"""`mxr precompile`: compile the missing programs of a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.display.streams import write_annotation
from mxr.display.text import counted
from mxr.errors import InterruptionError, UsageError
from mxr_cli.help import command
from mxr_cli.matrix_input import annotate_errors, matrix_options, read_requests
from mxr_cli.options import PipelineEnvironment, Session, common, pipeline_environment
from mxr_cli.output import ErrorFormat, echo, note, print_error, print_json

if TYPE_CHECKING:
    from mxr.plans.matrix_run import CellRequest, MatrixStatus
    from mxr.plans.plan import OnMiss


ACTIONS = ("fail", "ask", "wait")
REDRAW_SECONDS = 1.0
"""The poll interval on a terminal, which shows how long each compile has been running."""


@command(usual=("on_miss", "retry", "junit", "targets", "limit", "as_json"))
@click.argument("matrix", metavar="[MATRIX.yaml]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--on-miss",
    default="wait",
    metavar="ACTION",
    help="What to do for missing programs. wait[=TIME] (default): compile them and wait. ask: queue them, exit with 4. "
    "fail: exit with 3.",
)
@click.option("--retry", is_flag=True, help="Compile despite cached failures.")
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a JUnit XML report to FILE."
)
@matrix_options
@click.option("--schema", is_flag=True, help="Print the JSON schema of a matrix, for editors, and exit.")
@common
def precompile(  # noqa: PLR0913 - a parameter for each option
    session: Session,
    matrix: Path | None,
    on_miss: str,
    retry: bool,
    junit: Path | None,
    limit: int | None,
    targets: tuple[str, ...],
    env_from: tuple[str, ...],
    allow_outside: bool,
    follow_links: bool,
    schema: bool,
) -> None:
    """Compile every program of MATRIX.yaml that the registry does not have.

    A matrix combines models, targets, batch sizes or shapes, precisions and consumers. Each model is read and uploaded
    once, and programs that are already being compiled are waited for. You can run the command again at any time, also
    after an interruption: nothing is compiled twice.

    \b
    Compile and wait; exit with 5 if a compile failed, with 8 if no worker can compile a program:
      mxr precompile matrix.yaml
    Wait for two hours at most, then exit with 4:
      mxr precompile matrix.yaml --on-miss wait=2h
    Check that every program exists; exit with 3 if not:
      mxr precompile matrix.yaml --on-miss fail
    Write reports for a CI pipeline:
      mxr precompile matrix.yaml --json --junit report.xml
    Write the JSON schema for an editor:
      mxr precompile --schema > matrix.schema.json

    Under GitHub Actions, errors are annotated at the lines of the matrix and a step summary is written. If cells fail
    for several reasons, the exit code is the first that applies of 5, 8, 75, 4.
    """
    if schema:
        from mxr.matrix import schema as json_schema

        print_json(json_schema())
        return
    if matrix is None:
        raise UsageError("No matrix is given.", hint="Run mxr precompile MATRIX.yaml.")
    from mxr.plans.plan import OnMiss

    policy, environment = OnMiss.parse(on_miss, ACTIONS, retry=retry), pipeline_environment(env_from, allow_outside)
    deadline = policy.deadline()
    with annotate_errors(environment):
        requests = read_requests(session, matrix, environment, limit, targets, follow_links=follow_links)
        status = _survey(session, requests, matrix)
    try:
        _compile(session, status, policy, deadline)
    finally:
        _write_reports(status, matrix, junit, environment)
    _finish(session, status, matrix)


def _survey(session: Session, requests: tuple[CellRequest, ...], matrix: Path) -> MatrixStatus:
    """Ask the registry for the state of all cells."""
    from mxr.plans.matrix_run import matrix_status
    from mxr_cli.matrix_progress import totals

    status = matrix_status(session.client(), requests, matrix)
    note(f"mxr: {totals(status)}")
    return status


def _compile(session: Session, status: MatrixStatus, policy: OnMiss, deadline: float | None) -> None:
    """Submit the missing programs and show their progress. An interrupt does not cancel the jobs."""
    from mxr.plans.matrix_run import follow, queue_missing
    from mxr.workflows import compile as compile_workflow
    from mxr_cli.matrix_progress import MatrixDisplay

    if not policy.compiles:
        return
    client, display = session.client(), MatrixDisplay(status)
    try:
        for index in queue_missing(client, status, policy):
            if not display.live:
                display.show([index])
        if policy.waits:
            display.show(())
            for changed in follow(client, status, deadline, REDRAW_SECONDS if display.live else compile_workflow.PACE):
                display.show(changed)
    except KeyboardInterrupt:
        jobs = list(status.jobs())
        raise InterruptionError(
            f"Interrupted; {counted(len(jobs), 'job')} not finished.",
            hint="List them with `mxr jobs --state open`, or run the same command again to wait for them.",
            context={"jobs": jobs},
        ) from None
    finally:
        display.close()


def _write_reports(status: MatrixStatus, matrix: Path, junit: Path | None, environment: PipelineEnvironment) -> None:
    """Write the requested reports. Also called after an interrupt."""
    from mxr.plans import matrix_reports
    from mxr.util import disk

    if junit is not None:
        before = disk.refuse_other(junit, "a JUnit report", lambda head: b"<testsuite" in head)
        disk.write_whole(junit, matrix_reports.junit(status, matrix), before=before)
    if environment.step_summary is not None:
        with disk.faults(environment.step_summary), environment.step_summary.open("a", encoding="utf-8") as stream:
            stream.write(matrix_reports.step_summary(status, matrix))
    for line in matrix_reports.marks(status, matrix) if environment.github else ():
        write_annotation(line)


def _finish(session: Session, status: MatrixStatus, matrix: Path) -> None:
    """Print the result and exit with the code of the most severe failure."""
    from mxr.plans import matrix_reports

    error = matrix_reports.exit_error(status)
    if session.as_json:
        print_json(matrix_reports.report_document(status, matrix) | ({"error": error.to_json()} if error else {}))
    else:
        _print_result(status, matrix)
    if error is not None:
        raise click.exceptions.Exit(print_error(error, ErrorFormat()))


def _print_result(status: MatrixStatus, matrix: Path) -> None:
    from mxr_cli.matrix_progress import cell_name, cell_state, totals

    for cell in status.cells:
        if cell.artifact is None:
            echo(f"{matrix}:{cell.request.cell.line}: {cell_name(cell)}: {cell_state(cell)}")
    echo(totals(status))
