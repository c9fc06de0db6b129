"""`mxr check`: whether a .mxr file loads on a host or target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mxr.artifact.key import show
from mxr.errors import MismatchError
from mxr.request.builder import Options
from mxr_cli.options import Session, local, request
from mxr_cli.output import echo, print_json


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@request
@local
def check(session: Session, options: Options, file: Path) -> None:
    """Check whether FILE fits this host, a recorded host (--host) or a given target (--arch ...).

    Options such as --batch, --input, --precision, --for and the compile flags are checked against the file as well.
    Each requirement is listed with the needed and the found value. Exit with 0 if all are met or unknown, with 6 if one
    is not met.
    """
    from mxr.program import describe_file
    from mxr.request import compatibility
    from mxr.request.builder import choose_hardware, choose_toolchain

    description = describe_file(file).to_json()
    where = _where(session, options)
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
        error = MismatchError(
            f"{file} does not fit {where}: "
            + "; ".join(f"{row.field} needs {show(row.needed)}, found {show(row.found)}" for row in unmet)
            + ".",
            hint=f"Fetch a program that fits: mxr fetch MODEL{f' --arch {options.arch}' if options.arch else ''}.",
        )
        if session.as_json:
            raise click.exceptions.Exit(error.exit)
        raise error


def _where(session: Session, options: Options) -> str:
    """What the file is checked against, in words."""
    named = [options.arch or options.kind, options.vendor, *(f"{n} CUs" for n in (options.num_cu,) if n)]
    named += [f"{name} {value}" for name, value in (("MIGraphX", options.migraphx), ("ROCm", options.rocm)) if value]
    said = ", ".join(each for each in named if each)
    if session.settings.host_file:
        return f"the host recorded in {session.settings.host_file}{f' with {said}' if said else ''}"
    return said or "this host"
