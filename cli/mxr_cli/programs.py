"""`mxr inspect` and `mxr check`: what a .mxr file was compiled for, and whether it will load here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mxr.artifact.key import show as words
from mxr.errors import Mismatch
from mxr.request.builder import Options

from .options import Session, common, request
from .output import document, note, say, size


@click.command(short_help="Tell what a .mxr file was compiled for.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@common
def inspect(session: Session, file: Path) -> None:
    """Tell what FILE was compiled for, without MIGraphX and without a GPU. What the file does not tell is unknown."""
    from mxr.program import describe_file

    found: dict[str, Any] = describe_file(file).to_json()
    if session.as_json:
        document(found)
        return
    sizes = found["sizes"]
    say(f"{file}: a MIGraphX program, file version {found['file_version']}, {size(sizes['file'])}\n")
    rows = (
        ("made by", f"MIGraphX {found['migraphx'] or 'unknown'} ({found['flavour']})"),
        ("compiled", "yes" if found["compiled"] else "no: it runs on no GPU before it is compiled"),
        ("target", " ".join(found["targets"]) or "none"),
        ("arch", " ".join(found["archs"]) or "unknown: no code object tells it"),
        ("precisions", " ".join(found["precisions"]) or "unknown"),
        ("offload_copy", {True: "on", False: "off", None: "unknown"}[found["offload_copy"]]),
        ("libraries", " ".join(found["libraries"]) or "none seen"),
        ("literals", size(sizes["literals"])),
        ("code objects", size(sizes["code_objects"])),
    )
    for name, text in rows:
        say(f"  {name:<13} {text}{_source(found, name)}")
    for name, row in found["inputs"].items():
        say(f"  input         {name} {row['type']} {words(row['dims'])}")
    for row in found["outputs"]:
        say(f"  output        {row['type']} {words(row['dims'])}")
    for line in found.get("notes", ()):
        note(f"mxr: {line}")


def _source(found: dict[str, Any], name: str) -> str:
    """How sure a fact is and where it comes from, behind it."""
    fields = {"made by": "migraphx", "target": "targets", "arch": "archs"}
    row = found.get("sure", {}).get(fields.get(name, name.replace(" ", "_")))
    return f"  ({row['how']}: {row['from']})" if row and row.get("from") else ""


@click.command(short_help="Tell whether a .mxr file will load here.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@request
@common
def check(session: Session, options: Options, file: Path) -> None:
    """Tell whether FILE will load on this host, a recorded host (--host), or a given target (--arch ...).

    What the other options say (--batch, --input, --precision, --for and the flags) is held against it as well. Each
    requirement is shown as needed and as found; exit 0 when nothing stands against it, 6 when something does.
    """
    from mxr.program import describe_file
    from mxr.request import compatibility as checks
    from mxr.request.builder import choose_hardware, choose_toolchain

    description = describe_file(file).to_json()
    kinds = description["targets"]
    if options.kind is None and kinds == ["ref"]:
        from dataclasses import replace

        options = replace(options, kind="ref")
    hardware, toolchain = choose_hardware(options, session.host(), [])
    toolchain = choose_toolchain(options, toolchain)
    rows = checks.check(description, hardware, toolchain)
    rows += checks.said(description, options, hardware, toolchain)
    if session.as_json:
        document(checks.to_json(rows))
    else:
        for row in rows:
            mark = {True: "ok", False: "NO", None: "? "}[row.ok]
            why = "" if row.ok else f"  ({row.why})"
            say(f"  {mark}  {row.field:<13} needs {words(row.needed)}, found {words(row.found)}{why}")
    if not checks.fits(rows):
        bad = [row for row in rows if row.ok is False]
        problem = Mismatch(
            f"{file} will not load here: "
            + "; ".join(f"{r.field} needs {words(r.needed)}, found {words(r.found)}" for r in bad)
            + ".",
            hint="Fetch the right one: mxr fetch MODEL.",
        )
        if session.as_json:
            raise click.exceptions.Exit(problem.exit)
        raise problem


@click.command(short_help="Show how two .mxr files differ.")
@click.argument("left", metavar="A", type=click.Path(path_type=Path))
@click.argument("right", metavar="B", type=click.Path(path_type=Path))
@common
def diff(session: Session, left: Path, right: Path) -> None:
    """Show in what two programs differ: what they were compiled for, their inputs and outputs, sizes, operators.

    Exit 0 when they are alike in all that the files tell, 6 when they differ.
    """
    from mxr.program import describe_file
    from mxr.program.differences import differences

    rows = differences(describe_file(left).to_json(), describe_file(right).to_json())
    if session.as_json:
        document({"same": not rows, "differences": [{"field": f, "left": a, "right": b} for f, a, b in rows]})
    else:
        for field, a, b in rows:
            say(f"  {field:<24} {words(a)}  ->  {words(b)}")
        if not rows:
            say("alike in all that the files tell")
    if rows:
        raise click.exceptions.Exit(Mismatch.exit)
