"""`mxr inspect`: what a .mxr file was compiled for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mxr.artifact.key import value_text
from mxr_cli.options import Session, local
from mxr_cli.output import echo, format_size, note, print_json


@click.command
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
        "differences": [each.to_json() for each in differences],
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
