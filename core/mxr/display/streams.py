"""Writes to standard output and standard error. No other module of the programs does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from .text import json_text, printable, printable_lines

CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"
"""Source: ECMA-48, EL and ED."""


def write_line(text: object = "", *, err: bool = False) -> None:
    """Write one line. A line break in `text` is escaped."""
    _write(printable(text) + "\n", err)


def write_json(value: object) -> None:
    """Write a JSON document to standard output: on one line, or indented on a terminal."""
    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None
    _write(json_text(value, indent=indent) + "\n", err=False)


def write_secret(text: str) -> None:
    """Write a line with a secret that the user asked for. Everything else leaves secrets out."""
    _write(text + "\n", err=False)


def write_error(program: str, message: str, hint: str) -> None:
    """Write an error to standard error: what is wrong in one line, and what to do in another."""
    write_line(f"{program}: {' '.join(message.split())}", err=True)
    if hint:
        write_line(f"     {' '.join(hint.split())}", err=True)


def write_text(text: str, *, err: bool = False) -> None:
    """Write the lines of a text, such as the help of a command."""
    for line in text.splitlines():
        write_line(line, err=err)


def write_traceback() -> None:
    """Write the traceback of the exception that is being handled to standard error."""
    import traceback

    for line in printable_lines(traceback.format_exc()):
        write_line(line, err=True)


def abandon_output() -> None:
    """Write nothing more to standard output: its reader is gone.

    Without this, Python reports the same error again when it flushes at exit.
    """
    sys.stdout = None


def flush_output() -> None:
    """Write what is still buffered. OSError passes through."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def write_annotation(command: str) -> None:
    """Write a workflow command for GitHub, made by `mxr.display.github`, to standard error."""
    _write(command + "\n", err=True)


def update_line(text: str, *, columns: int, end: str = "") -> None:
    """Replace the current line of the terminal on standard error. `end`: a line break after the last update."""
    _write(f"\r{printable(text)[: max(0, columns - 1)]}{CLEAR_LINE}{end}", err=True)


def update_lines(rows: Iterable[str], *, columns: int, above: int = 0) -> None:
    """Replace the `above` last lines of the terminal on standard error. Longer rows are cut."""
    up = f"\x1b[{above}A\r" if above else ""
    _write(up + CLEAR_BELOW + "".join(f"{printable(row)[: columns - 1]}\n" for row in rows), err=True)


class LogWriter:
    """Writes a log that arrives in parts to standard error, line by line.

    A part can end within a line, so the rest of a line is kept until it is complete: only then is it known how the
    line begins. `clear`: whether a progress line may be on the terminal.
    """

    def __init__(self, *, clear: bool = False) -> None:
        self._clear = f"\r{CLEAR_LINE}" if clear else ""
        self._rest = ""

    def write(self, text: str) -> None:
        """Write the lines that are complete. Very long lines are broken."""
        text = self._rest + text
        # A "\r" at the end may be the first half of "\r\n".
        complete = max(text.rfind("\n"), text.rfind("\r", 0, len(text) - 1)) + 1
        if len(text) - complete > 65536:
            complete = len(text)
        self._rest = text[complete:]
        self._lines(text[:complete])

    def close(self) -> None:
        """Write the rest."""
        self._lines(self._rest)
        self._rest = ""

    def _lines(self, text: str) -> None:
        lines = printable_lines(text)
        if lines:
            _write(self._clear + "".join(f"{line}\n" for line in lines), err=True)


def write_log(text: str) -> None:
    """Write the lines of a complete log to standard output."""
    for line in printable_lines(text):
        write_line(line)


def _write(text: str, err: bool) -> None:
    stream: TextIO | None = sys.stderr if err else sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
