"""What is written to a terminal: progress that the next output replaces, colours, widths, a terminal that is closed."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from mxr.display import streams

END = "(end)"


class Terminal:
    """A pseudo terminal: `stream` for the program, `shown` what it got."""

    def __init__(self, columns: int) -> None:
        self.descriptor, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def shown(self) -> str:
        """All that was written since the last call."""
        found = b""
        self.stream.write(END)
        self.stream.flush()
        while not found.endswith(END.encode()):
            found += os.read(self.descriptor, 65536)
        return found.decode().removesuffix(END)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Terminal]]:
    """Opens a terminal of some columns, which is standard error and standard output from then on."""
    made: list[Terminal] = []
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(streams, "_unfinished", False)

    def open_one(columns: int) -> Terminal:
        found = Terminal(columns)
        made.append(found)
        monkeypatch.setattr(sys, "stderr", found.stream)
        monkeypatch.setattr(sys, "stdout", found.stream)
        return found

    yield open_one
    for each in made:
        each.close()
        with suppress(OSError):
            each.stream.close()


def test_whatever_is_written_next_replaces_a_line_of_progress(terminal: Callable[[int], Terminal]) -> None:
    screen = terminal(40)
    streams.update_line("mxr: fetching 10%")
    streams.update_line("mxr: fetching 20%")
    streams.write_line("done")
    assert screen.shown() == "mxr: fetching 10%\r\x1b[Kmxr: fetching 20%\r\x1b[Kdone\r\n"
    streams.clear_line()
    assert screen.shown() == ""


@pytest.mark.parametrize(("columns", "width"), [(20, 19), (1, 0), (0, 79)])
def test_a_line_of_progress_never_wraps(terminal: Callable[[int], Terminal], columns: int, width: int) -> None:
    """A terminal without columns counts as one of 80."""
    screen = terminal(columns)
    streams.update_line("x" * 200)
    assert screen.shown() == "x" * width + "\r"


def test_columns_come_from_the_environment_where_no_terminal_tells_them(
    terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(0)
    for told, columns in (("50", 50), ("-3", 80), ("²", 80), ("many", 80), ("0", 80)):
        monkeypatch.setenv("COLUMNS", told)
        assert streams.terminal_size()[0] == columns, told


def test_errors_and_warnings_are_coloured_unless_nobody_wants_it(
    terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(80)
    streams.write_error("mxr", "It failed.", "")
    streams.write_line("mxr: warning: old", err=True)
    streams.write_line("mxr: warning: \x1b[31mred", err=True)
    assert screen.shown() == (
        "\x1b[31mmxr:\x1b[0m It failed.\r\n\x1b[33mmxr: warning:\x1b[0m old\r\n"
        "\x1b[33mmxr: warning:\x1b[0m \\x1b[31mred\r\n"
    )
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            streams.write_error("mxr", "It failed.", "")
        assert screen.shown() == "mxr: It failed.\r\n", name


def test_a_dumb_terminal_has_no_line_that_is_replaced(
    terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(80)
    assert streams.on_terminal()
    monkeypatch.setenv("TERM", "dumb")
    assert not streams.on_terminal()


def test_a_terminal_that_was_closed_ends_results_and_not_messages(
    terminal: Callable[[int], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(80).close()
    with pytest.raises(BrokenPipeError):
        streams.write_line("a result")
    monkeypatch.setattr(sys, "stdout", None)
    streams.write_line("a message", err=True)
    assert sys.stderr is None
    streams.update_line("mxr: fetching 10%")
    assert not streams.on_terminal()
