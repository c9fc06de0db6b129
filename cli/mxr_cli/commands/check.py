"""`mxr check`: whether a .mxr file loads on a host or target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mxr.artifact.key import show
from mxr.errors import Mismatch
from mxr.request.builder import Options
from mxr_cli.options import Session, local, request
from mxr_cli.output import echo, print_json


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@request
@local
def check(session: Session, options: Options, file: Path) -> None:
    """Check whether FILE loads on this host, on a recorded host (--host) or on a given target (--arch ...).

    Options such as --batch, --input, --precision, --for and the compile flags are checked against the file as well.
    Each requirement is listed with the needed and the found value. Exit with 0 if all are met or unknown, with 6 if one
    is not met.
    """
    from mxr.program import describe_file
    from mxr.request import compatibility
    from mxr.request.builder import choose_hardware, choose_toolchain

    description = describe_file(file).to_json()
    if options.kind is None and description["targets"] == ["ref"]:
        options = replace(options, kind="ref")
    hardware, toolchain = choose_hardware(options, session.host(), [])
    toolchain = choose_toolchain(options, toolchain)
    rows = compatibility.check(description, hardware, toolchain)
    rows += compatibility.check_options(description, options, hardware, toolchain)
    if session.as_json:
        print_json(compatibility.to_json(rows))
    else:
        for row in rows:
            mark = {True: "ok", False: "NO", None: "? "}[row.ok]
            reason = "" if row.ok else f"  ({row.why})"
            echo(f"  {mark}  {row.field:<13} needs {show(row.needed)}, found {show(row.found)}{reason}")
    if not compatibility.fits(rows):
        unmet = [row for row in rows if row.ok is False]
        error = Mismatch(
            f"{file} does not load here: "
            + "; ".join(f"{row.field} needs {show(row.needed)}, found {show(row.found)}" for row in unmet)
            + ".",
            hint="Fetch a program that fits: mxr fetch MODEL.",
        )
        if session.as_json:
            raise click.exceptions.Exit(error.exit)
        raise error
