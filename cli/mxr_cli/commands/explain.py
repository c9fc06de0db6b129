"""`mxr explain`: what an error message of MIGraphX, ONNX Runtime, amdinfer or HIP means, and how to fix it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from mxr.errors import NotFoundError, UsageError
from mxr_cli.help import command
from mxr_cli.options import Session, local
from mxr_cli.output import echo, note, print_json

MAX_BYTES = 64 << 20
"""How much of a log is read, from its end: that is where the failure is."""


@command()
@click.argument("text", metavar="[TEXT]...", nargs=-1)
@click.option("-f", "--file", type=click.Path(path_type=Path), metavar="LOG", help="Read this log file.")
@local
def explain(session: Session, text: tuple[str, ...], file: Path | None) -> None:
    """Explain an error message or a log, and show the command that fixes the problem.

    Give the message as TEXT, a log file with --file, or either on standard input. Exit with 3 if no known failure is
    found.

    \b
    mxr explain "Failed to call function"
    kubectl logs my-pod | mxr explain
    """
    from mxr.known_failures.explainer import find_failures as find_explanations

    found = find_explanations(_read(text, file))
    if session.as_json:
        print_json({"explanations": [each.to_json() for each in found]})
    else:
        for each in found:
            cause = f" (follows from {each.consequence_of})" if each.consequence_of else ""
            echo(f"{each.failure.who}, line {each.line}: {each.text}")
            echo(f"  means{cause}: {each.means}")
            echo(f"  fix: {each.fix}")
            echo(f"  source: {each.failure.source}")
            echo()
    if not found:
        error = NotFoundError(
            "The text contains no failure that mxr knows.",
            hint="Give the whole log, not only its last line. `mxr check FILE` checks whether a file fits this host.",
        )
        if session.as_json:
            raise click.exceptions.Exit(error.exit)
        raise error


def _read(text: tuple[str, ...], file: Path | None) -> str | bytes:
    if text and file:
        raise UsageError("TEXT and --file exclude each other.", hint="Run mxr explain --file LOG.")
    if text and text != ("-",):
        return " ".join(text)
    if file:
        try:
            with file.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - MAX_BYTES))
                return log.read(MAX_BYTES)
        except OSError as error:
            raise UsageError(f"Cannot read {file}: {error.strerror}.", hint="Check the path.") from None
    if sys.stdin.isatty():
        note("mxr: paste the text, then press Ctrl-D")
    return _read_tail(sys.stdin.buffer)


def _read_tail(stream: BinaryIO) -> bytes:
    """The last `MAX_BYTES` of a stream of any length, in bounded memory."""
    kept = bytearray()
    while block := stream.read(1 << 20):
        kept += block
        if len(kept) > 2 * MAX_BYTES:
            del kept[:-MAX_BYTES]
    return bytes(kept[-MAX_BYTES:])
