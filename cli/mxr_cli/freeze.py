"""`mxr freeze`: a model with static shapes, one file per batch."""

from __future__ import annotations

from pathlib import Path

import click

from mxr.artifact.target import parse_input
from mxr.errors import Usage

from .options import Session, common
from .output import document, say


@click.command(short_help="Write a model with static shapes, one file per batch.")
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--batch", "batches", required=True, metavar="N,N", help="The open first dim of every input: 1,4,8.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=DIMS", help="Other open dims: ids=1,384.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Where to.")
@click.option("--force", is_flag=True, help="Replace files of these names.")
@common
def freeze(session: Session, model: Path, batches: str, inputs: tuple[str, ...], output: Path, *, force: bool) -> None:
    """Write MODEL with all dims closed to FOLDER, as MODEL.b1.onnx, MODEL.b4.onnx and so on.

    For consumers that take open dims badly: ONNX Runtime's MIGraphX provider gives all shapes of such a model one file
    name. Only dims are changed; weights stay as they are, external data lies once beside the files.

    \b
    mxr freeze resnet50.onnx --batch 1,4,8 -o frozen/
    """
    from mxr.workflows.freeze import freeze_batches

    shapes = tuple(parse_input(text) for text in inputs)
    paths = freeze_batches(model, output, _batches(batches), shapes, force=force)
    if session.as_json:
        document({"files": [str(path) for path in paths]})
        return
    for path in paths:
        say(str(path))


def _batches(said: str) -> list[int]:
    parts = [part.strip() for part in said.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise Usage(f"{said!r} are no batches.", hint="Write --batch 1,4,8.")
    return [int(part) for part in parts]
