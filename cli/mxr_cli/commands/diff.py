"""`mxr diff`: the differences between two .mxr files."""

from __future__ import annotations

from pathlib import Path

import click

from mxr.artifact.key import value_text
from mxr.errors import MismatchError
from mxr_cli.options import Session, local
from mxr_cli.output import echo, print_json


@click.command
@click.argument("left", metavar="A", type=click.Path(path_type=Path))
@click.argument("right", metavar="B", type=click.Path(path_type=Path))
@local
def diff(session: Session, left: Path, right: Path) -> None:
    """Show the differences between the programs A and B: target, inputs and outputs, sizes, operators.

    Exit with 0 if the files show no difference, with 6 if they differ.
    """
    from mxr.program import describe_file
    from mxr.program.differences import differences

    rows = differences(describe_file(left).to_json(), describe_file(right).to_json())
    if session.as_json:
        print_json({"same": not rows, "differences": [{"field": f, "left": a, "right": b} for f, a, b in rows]})
    else:
        for field, a, b in rows:
            echo(f"  {field:<24} {value_text(a)}  ->  {value_text(b)}")
        if not rows:
            echo("no differences found")
    if rows:
        raise click.exceptions.Exit(MismatchError.exit)
