"""Writes to standard output and standard error. No other module of the programs does."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from typing import TextIO

from .text import json_text, printable, printable_lines

CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"
"""Source: ECMA-48, EL and ED."""

RED, YELLOW, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"
"""Source: ECMA-48, SGR."""

WARNING = "mxr: warning:"

_unfinished = False
"""Whether the last line on standard error is one of progress, which the next output replaces."""


def on_terminal() -> bool:
    """Return whether standard error is a terminal on which a line can be replaced."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def terminal_size(stream: TextIO | None = None) -> tuple[int, int]:
    """Return the columns and lines of the terminal of a stream (standard error by default).

    A terminal that does not tell them has those of COLUMNS, else 80 and 24.
    """
    try:
        columns, lines = os.get_terminal_size((stream or sys.stderr).fileno())
    except (OSError, ValueError, AttributeError):
        columns, lines = 0, 0
    told = os.environ.get("COLUMNS", "")
    return columns or (int(told[:4]) if told.isascii() and told.isdigit() else 0) or 80, lines or 24


def output_columns() -> int | None:
    """Return the columns of the terminal on standard output; None where that is none."""
    return terminal_size(sys.stdout)[0] if sys.stdout is not None and sys.stdout.isatty() else None


def coloured(text: str, colour: str) -> str:
    """Return text for standard error in a colour, where it is a terminal and nobody asked for none (no-color.org)."""
    return f"{colour}{text}{PLAIN}" if on_terminal() and not os.environ.get("NO_COLOR") else text


def write_line(text: object = "", *, err: bool = False) -> None:
    """Write one line. A line break in `text` is escaped. On standard error, the word warning is coloured."""
    line = printable(text)
    if err and line.startswith(WARNING):
        line = coloured(WARNING, YELLOW) + line[len(WARNING) :]
    _write(line + "\n", err)


def write_json(value: object) -> None:
    """Write a JSON document to standard output: on one line, or indented on a terminal."""
    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None
    _write(json_text(value, indent=indent) + "\n", err=False)


def write_secret(text: str) -> None:
    """Write a line with a secret that the user asked for. Everything else leaves secrets out."""
    _write(text + "\n", err=False)


def write_error(program: str, message: str, hint: str) -> None:
    """Write an error to standard error: what is wrong in one line, and what to do in another."""
    _write(f"{coloured(f'{program}:', RED)} {printable(' '.join(message.split()))}\n", err=True)
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


def update_line(text: str) -> None:
    """Show a line of progress on the terminal on standard error, until anything else is written there."""
    global _unfinished
    columns, _ = terminal_size()
    # Cut at the width of the terminal: a wrapped line cannot be replaced.
    _write(f"{printable(text)[: columns - 1]}\r", err=True)
    _unfinished = True


def clear_line() -> None:
    """Remove the line of progress, if there is one."""
    _write("", err=True)


def update_lines(rows: Iterable[str], *, above: int = 0) -> None:
    """Replace the `above` last lines of the terminal on standard error. Longer rows are cut."""
    up = f"\x1b[{above}A\r" if above else ""
    columns, _ = terminal_size()
    _write(up + CLEAR_BELOW + "".join(f"{printable(row)[: columns - 1]}\n" for row in rows), err=True)


class LogWriter:
    """Writes a log that arrives in parts to standard error, line by line.

    A part can end within a line, so the rest of a line is kept until it is complete: only then is it known how the
    line begins.
    """

    def __init__(self) -> None:
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
            _write("".join(f"{line}\n" for line in lines), err=True)


def write_log(text: str) -> None:
    """Write the lines of a complete log to standard output."""
    for line in printable_lines(text):
        write_line(line)


def _write(text: str, err: bool) -> None:
    global _unfinished
    if _unfinished:
        _unfinished = False
        _send(CLEAR_LINE, sys.stderr)
    _send(text, sys.stderr if err else sys.stdout)


def _send(text: str, stream: TextIO | None) -> None:
    if stream is None:
        return
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as problem:
        if problem.errno != errno.EIO:
            raise
        # The terminal was closed. Messages have no reader any more; a result that cannot be written ends the command.
        if stream is sys.stdout:
            raise BrokenPipeError(errno.EPIPE, "the terminal was closed") from None
        sys.stderr = None
