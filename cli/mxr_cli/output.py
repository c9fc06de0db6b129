"""Output of the commands: results on standard output, messages and progress on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from mxr.display import streams
from mxr.display.text import printable
from mxr.errors import MxrError
from mxr.util.frozen import dataclass

INTERNAL = 500
"""HTTP statuses from here on are failures of the registry, of which its log tells more."""


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """How an error is printed: also as a JSON document on standard output, with a traceback."""

    as_json: bool = False
    traceback: bool = False


def print_error(error: MxrError, error_format: ErrorFormat) -> int:
    """Print what is wrong in one line and what to do in another. Returns the exit code."""
    if error_format.traceback:
        streams.write_traceback()
    if error_format.as_json:
        print_json({"error": error.to_json()})
        streams.write_error("mxr", error.message, error.hint)
        return error.exit
    streams.write_error("mxr", error.message, "")
    for row in _rows(error.context.get("nearest"), "id", "differences")[:3]:
        differences = _rows(row["differences"], "field", "asked", "found")
        note(f"  nearest {str(row['id'])[:12]}: " + "; ".join(map(_difference, differences)))
    _print_candidates(_rows(error.context.get("candidates"), "id", "options"))
    if error.hint:
        note(f"     {' '.join(error.hint.split())}")
    if error.request_id and error.status >= INTERNAL:
        note(f"     The registry's log has more under request {error.request_id}.")
    return error.exit


def _rows(rows: object, *names: str) -> list[Mapping[str, Any]]:
    """The rows of a list that have these fields. The context of an error can come from a registry that lies."""
    found = rows if isinstance(rows, list) else []
    return [row for row in found if isinstance(row, Mapping) and row.keys() >= {*names}]


def _print_candidates(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the programs that a request can mean: the artifact, and the options that choose it."""
    width = max((len(printable(row["options"])) for row in rows), default=0)
    for row in rows:
        note(f"  {str(row['id'])[:12]}  {printable(row['options']).ljust(width)}".rstrip())


def _difference(row: Mapping[str, Any]) -> str:
    from mxr.artifact.key import value_text

    return f"{row['field']} requested {value_text(row['asked'])}, found {value_text(row['found'])}"


def print_json(value: Any) -> None:
    """Print the JSON document of a command, indented on a terminal."""
    streams.write_json(value)


def echo(text: object = "") -> None:
    """Print a line of the result to standard output."""
    streams.write_line(text)


def note(text: str) -> None:
    """Print a message to standard error."""
    streams.write_line(text, err=True)


def confirm(question: str) -> None:
    """Ask a question on the terminal. Raises `click.Abort` unless the answer is yes."""
    click.confirm(printable(question), abort=True, err=True)


def print_table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> None:
    """Print rows in aligned columns below a header.

    On a terminal that is too narrow, cells are wrapped between words; where words are too long for that, each row
    becomes a paragraph with a line for each cell.
    """
    texts = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    if (columns := streams.output_columns()) is not None:
        room = columns - 2 * (len(header) - 1)
        least = [
            max(len(word) for cell in column for word in (cell or "-").split()) for column in zip(*texts, strict=True)
        ]
        if sum(widths) > room and sum(least) > room:
            _print_paragraphs(texts)
            return
        while sum(widths) > room:
            widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            widths[widest] -= 1
    for row in texts:
        for line in _wrapped(row, widths):
            echo(line)


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row whose cells are wrapped to these widths; one, where they fit."""
    import textwrap
    from itertools import zip_longest

    cells = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
        for cell, width in zip(row, widths, strict=True)
    ]
    lines = zip_longest(*cells, fillvalue="")
    return ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _print_paragraphs(texts: Sequence[Sequence[str]]) -> None:
    header, *rows = texts
    for at, row in enumerate(rows):
        if at:
            echo()
        for name, cell in zip(header, row, strict=True):
            if cell:
                echo(f"{name.ljust(max(map(len, header)))}  {cell}")


def format_size(count: int) -> str:
    """A number of bytes with a binary unit, up to GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def format_time(seconds: float) -> str:
    """A Unix time as a date and time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def format_duration(seconds: float) -> str:
    """A duration in its two largest units, up to hours."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
