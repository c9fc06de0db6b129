"""Reads a matrix for `mxr precompile`, `mxr plan` and `mxr lock`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.display.github import annotation
from mxr.display.streams import write_annotation
from mxr.errors import MxrError

from .options import FOLLOW_LINKS, F, PipelineEnvironment, Session

if TYPE_CHECKING:
    from mxr.plans.matrix_run import CellRequest


ACCESS = (
    click.option(
        "--env-from",
        multiple=True,
        metavar="NAME",
        help="A matrix may use this environment variable as ${NAME}, also if it does not list it under env_from. "
        "Repeatable.",
    ),
    click.option(
        "--allow-outside",
        is_flag=True,
        help="A matrix may name models and calibration data outside of its folder. Symbolic links are resolved.",
    ),
)


def matrix_access(command: F) -> F:
    """Add the options that allow a matrix more than what is in its folder."""
    for option in reversed(ACCESS):
        command = option(command)
    return command


def matrix_options(command: F) -> F:
    """Add the options that limit a matrix, and those that allow it more."""
    command = matrix_access(command)
    for option in (
        FOLLOW_LINKS,
        click.option(
            "--target",
            "targets",
            multiple=True,
            metavar="NAME",
            help="Only this target, named as in `mxr plan`. Repeatable.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(1, 100_000),
            metavar="N",
            help="Maximum number of combinations [default: `limit` in the matrix, or 2000].",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def annotate_errors(environment: PipelineEnvironment) -> Iterator[None]:
    """Under GitHub Actions, annotate the line of the matrix that an error is about."""
    try:
        yield
    except MxrError as error:
        if environment.github and "line" in error.context:
            write_annotation(annotation(error.message, error.context["file"], error.context["line"]))
        raise


def read_requests(
    session: Session,
    matrix: Path,
    environment: PipelineEnvironment,
    limit: int | None,
    targets: tuple[str, ...],
    *,
    follow_links: bool,
) -> tuple[CellRequest, ...]:
    """The requests of a matrix. Errors name the line of the matrix."""
    from mxr.matrix import Variables, cells, read_matrix, select
    from mxr.plans.matrix_run import prepare

    variables = Variables(environment.variables, environment.env_from)
    selected = select(cells(read_matrix(matrix, variables, limit, outside=environment.outside)), targets)
    return prepare(selected, matrix, session.cache(), session.client, follow_links=follow_links)
