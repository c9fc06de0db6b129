"""`mxr diff`: the differences between two .mxr files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mxr.artifact.key import value_text
from mxr.errors import MismatchError
from mxr_cli.options import Session, local
from mxr_cli.output import echo, print_json

ABOUT = ("sure", "notes")
"""Fields that describe how a program was read, not the program itself."""


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return `(path, left value, right value)` for each field in which two documents of `mxr inspect` differ."""
    first, second = _flat(left), _flat(right)
    names = [*first, *(name for name in second if name not in first)]
    rows = [(name, first.get(name), second.get(name)) for name in names]
    return [row for row in rows if row[1] != row[2]]


def _flat(document: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{where}.{name}" if where else name
        if path in ABOUT:
            continue
        if isinstance(value, Mapping) and value:
            rows |= _flat(value, path)
        else:
            rows[path] = value
    return rows


@click.command
@click.argument("left", metavar="A", type=click.Path(path_type=Path))
@click.argument("right", metavar="B", type=click.Path(path_type=Path))
@local
def diff(session: Session, left: Path, right: Path) -> None:
    """Show the differences between the programs A and B: target, inputs and outputs, sizes, operators.

    Exit with 0 if the files show no difference, with 6 if they differ.
    """
    from mxr.program import describe_file

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
