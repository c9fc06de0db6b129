"""`mxr freeze`: copies of a model with static shapes, one file per batch size."""

from __future__ import annotations

from pathlib import Path

import click

from mxr.artifact.target import parse_input
from mxr.errors import UsageError
from mxr_cli.help import command
from mxr_cli.options import FOLLOW_LINKS, Session, local
from mxr_cli.output import echo, print_json


@command()
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path))
@click.option(
    "--batch",
    "batches",
    required=True,
    metavar="N[,N...]",
    help="Sizes of the open first dimension of every input, such as 1,4,8.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=DIMS",
    help="Shape of an input with other open dimensions, such as ids=1,384. Repeatable.",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER", help="Write the files here."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@FOLLOW_LINKS
@local
def freeze(
    session: Session,
    model: Path,
    batches: str,
    inputs: tuple[str, ...],
    output: Path,
    *,
    force: bool,
    follow_links: bool,
) -> None:
    """Write copies of MODEL with static shapes to FOLDER: MODEL.b1.onnx, MODEL.b4.onnx and so on.

    Where MODEL leaves other dims open, they are in the names, too: MODEL.b1.3x480x640.onnx.

    Use this for consumers that need static shapes: the MIGraphX execution provider of ONNX Runtime uses one cache file
    name for all shapes of a model with open dimensions. Only dimensions change. Weights are copied unchanged, and
    external data is written once for all files, as MODEL.data; in the folder of MODEL, its own data is used.

    \b
    mxr freeze resnet50.onnx --batch 1,4,8 -o frozen/
    """
    from mxr.workflows.freeze import freeze_batches

    shapes = tuple(parse_input(text) for text in inputs)
    paths = freeze_batches(model, output, _parse_batches(batches), shapes, force=force, follow_links=follow_links)
    if session.as_json:
        print_json({"files": [str(path) for path in paths]})
        return
    for path in paths:
        echo(str(path))


def _parse_batches(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"{text!r} is not a list of batch sizes.", hint="Write --batch 1,4,8.")
    return [int(part) for part in parts]
