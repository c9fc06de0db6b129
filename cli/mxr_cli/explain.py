"""`mxr explain`: what an error text of MIGraphX, ONNX Runtime, amdinfer or HIP means, and what fixes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from mxr.errors import NotFound, Usage

from .options import Session, common
from .output import document, note, say

MOST_BYTES = 64 << 20
"""The end of a log is where it fails: no more than this is read of it."""


@click.command(short_help="Say in plain words what an error text means, and what fixes it.")
@click.argument("text", metavar="[TEXT]", nargs=-1)
@click.option("-f", "--file", type=click.Path(path_type=Path), metavar="LOG", help="Read this log.")
@common
def explain(session: Session, text: tuple[str, ...], file: Path | None) -> None:
    """Say in plain words what an error text or a log means, and the command that fixes it.

    Give the text as an argument, a log with --file, or either on standard input. Exit 3 when nothing in it is a failure
    that mxr knows.

    \b
    mxr explain "Failed to call function"
    kubectl logs my-pod | mxr explain
    """
    from mxr.known_failures.explainer import explain as recognise

    found = recognise(_material(text, file))
    if session.as_json:
        document({"explanations": [each.to_json() for each in found]})
    for each in found if not session.as_json else ():
        behind = f" (follows from {each.consequence_of})" if each.consequence_of else ""
        say(f"{each.failure.who}, line {each.line}: {each.text}")
        say(f"  means{behind}: {each.means}")
        say(f"  fix: {each.fix}")
        say(f"  source: {each.failure.source}\n")
    if not found:
        problem = NotFound(
            "Nothing in this text is a failure that mxr knows.",
            hint="Give the whole log, not its last line alone; `mxr check FILE` tells whether a file fits.",
        )
        if session.as_json:
            raise click.exceptions.Exit(problem.exit)
        raise problem


def _material(text: tuple[str, ...], file: Path | None) -> str | bytes:
    if text and file:
        raise Usage("Give either a text or --file, not both.", hint="mxr explain --file LOG")
    if text and text != ("-",):
        return " ".join(text)
    if file:
        try:
            with file.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - MOST_BYTES))
                return log.read(MOST_BYTES)
        except OSError as problem:
            raise Usage(f"{file} cannot be read: {problem.strerror}.", hint="Check the path.") from None
    if sys.stdin.isatty():
        note("mxr: paste the text, then press Ctrl-D")
    return _tail(sys.stdin.buffer)


def _tail(stream: BinaryIO) -> bytes:
    """The last bytes of an endless stream, in bounded memory."""
    kept = bytearray()
    while block := stream.read(1 << 20):
        kept += block
        if len(kept) > 2 * MOST_BYTES:
            del kept[:-MOST_BYTES]
    return bytes(kept[-MOST_BYTES:])
