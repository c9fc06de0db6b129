"""How a program ends: its exit code, and the error that it reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from harness.rows import for_each

from mxr.entry_point import run_program
from mxr.errors import DamagedError, MxrError


def end(*, raised: BaseException | None = None, result: object = None) -> tuple[int, list[MxrError]]:
    """The exit code of a program whose command raises or returns this, and what it reports."""
    reported: list[MxrError] = []

    def command() -> object:
        if raised is not None:
            raise raised
        return result

    with pytest.raises(SystemExit) as ended:
        run_program("mxr", command, reported.append, click, extra="registry")
    assert isinstance(ended.value.code, int)
    return ended.value.code, reported


@pytest.mark.parametrize(("result", "code"), [(None, 0), ("text", 0), (6, 6)])
def test_a_command_that_returns(result: object, code: int) -> None:
    assert end(result=result) == (code, [])


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (DamagedError("broken", hint="mend"), 65, "broken"),
        (click.UsageError("no such option"), 2, "no such option"),
        (click.Abort(), 130, "nterrupted"),
        (KeyboardInterrupt(), 130, "nterrupted"),
        (ModuleNotFoundError("No module named 'x'", name="x"), 2, "needs the Python package x"),
        (ValueError("two\nlines"), 70, "Internal error in mxr: ValueError: two"),
    ],
)
def test_a_command_that_raises(raised: BaseException, code: int, words: str) -> None:
    found, (error,) = end(raised=raised)
    assert (found, error.exit) == (code, code) and words in error.message and "\n" not in error.message


def test_what_a_command_itself_ends_with_stays() -> None:
    assert end(raised=SystemExit(3)) == (3, [])


def test_the_reader_of_the_output_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert end(raised=BrokenPipeError()) == (141, [])
    assert sys.stdout is None


LEAVE = """
import atexit, sys, threading, time
from mxr.entry_point import leave
{before}
print("said", end="")
try:
    sys.exit({code})
except SystemExit as ended:
    leave(ended)
"""


@for_each(
    [
        ("", "0", (0, "said", "")),
        ("", "6", (6, "said", "")),
        ("", "None", (0, "said", "")),
        ("", "'words'", (1, "said", "words\n")),
        ("atexit.register(print, ' and then')", "3", (3, "said and then\n", "")),
        ("threading.Thread(target=lambda: time.sleep(0.2) or print(' by a thread')).start()", "3", None),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "4", (4, "said", "")),
        ("sys.stdout = None; print = lambda *_, **__: None", "5", (5, "", "")),
    ]
)
def test_a_program_that_leaves_early_loses_nothing(
    before: str, code: str, expected: tuple[int, str, str] | None
) -> None:
    program = LEAVE.format(before=before, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (expected or (3, "said by a thread\n", ""))


def test_output_that_cannot_be_written_is_an_error() -> None:
    program = LEAVE.format(before="", code="0")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, stdout=full, stderr=subprocess.PIPE, check=False, timeout=50
        )
    assert done.returncode == 120 and b"No space left" in done.stderr
