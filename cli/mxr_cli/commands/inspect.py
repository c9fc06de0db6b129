"""`mxr inspect` and `mxr diff`: what a .mxr file was compiled for, and the differences between two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mxr.artifact.key import value_text
from mxr.errors import MismatchError
from mxr_cli.help import command
from mxr_cli.options import Session, local
from mxr_cli.output import echo, format_size, note, print_json


@command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--model", metavar="MODEL", type=click.Path(path_type=Path), help="Also compare FILE with this ONNX file."
)
@local
def inspect(session: Session, file: Path, model: Path | None) -> None:
    """Show what FILE was compiled for. Needs neither MIGraphX nor a GPU.

    Facts that the file does not contain are shown as unknown. With --model, also shows what proves that FILE was not
    compiled from that model, and what makes it doubtful.
    """
    from mxr.program import describe_file

    found: dict[str, Any] = describe_file(file).to_json()
    if model is not None:
        found["model"] = _compare(model, found)
    if session.as_json:
        print_json(found)
        return
    sizes = found["sizes"]
    echo(f"{file}: a MIGraphX program, file version {found['file_version']}, {format_size(sizes['file'])}")
    echo()
    rows = (
        ("made by", f"MIGraphX {found['migraphx'] or 'unknown'} ({found['flavour']})"),
        ("compiled", "yes" if found["compiled"] else "no: compile it before it can run on a GPU"),
        ("target", " ".join(found["targets"]) or "none"),
        ("arch", " ".join(found["archs"]) or "unknown: the file has no code object that names it"),
        ("precisions", " ".join(found["precisions"]) or "unknown"),
        ("offload_copy", {True: "on", False: "off", None: "unknown"}[found["offload_copy"]]),
        ("libraries", " ".join(found["libraries"]) or "none found"),
        ("literals", format_size(sizes["literals"])),
        ("code objects", format_size(sizes["code_objects"])),
    )
    for name, text in rows:
        echo(f"  {name:<13} {text}{_source(found, name)}")
    smaller = " and smaller" if found["reshapes"] else ""
    for name, row in found["inputs"].items():
        echo(f"  input         {name} {row['type']} {value_text(row['dims'])}{smaller}")
    for row in found["outputs"]:
        echo(f"  output        {row['type']} {value_text(row['dims'])}")
    for line in found.get("notes", ()):
        note(f"mxr: {line}")
    for line in found["warnings"]:
        note(f"mxr: warning: {line}")
    if model is not None:
        _show_comparison(model, found["model"])


def _compare(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    from mxr import onnxfile
    from mxr.artifact import model_evidence

    model = onnxfile.read_model(path, weight_dims=True)
    differences = model_evidence.of_program(model, found)
    return {
        "differences": [difference.to_json() for difference in differences],
        "warnings": list(model_evidence.warnings(model, found)),
    }


def _show_comparison(model: Path, found: dict[str, Any]) -> None:
    for each in found["differences"]:
        there, here = value_text(each["asked"]), value_text(each["found"])
        echo(f"  not from {model}: {each['field']} is {there} there, {here} in the program")
    if not found["differences"]:
        echo(f"  nothing shows that it is not from {model}")
    for line in found["warnings"]:
        note(f"mxr: warning: {line}")


def _source(found: dict[str, Any], name: str) -> str:
    """How certain a fact is and where it comes from, in brackets; empty when that is not recorded."""
    fields = {"made by": "migraphx", "target": "targets", "arch": "archs"}
    row = found.get("sure", {}).get(fields.get(name, name.replace(" ", "_")))
    return f"  ({row['how']}: {row['from']})" if row and row.get("from") else ""


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


@command()
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
