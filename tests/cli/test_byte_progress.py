"""The progress of bytes: what is shown, when, and how much of it fits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from harness.rows import for_each

from mxr.display import streams
from mxr_cli import byte_progress
from mxr_cli.byte_progress import ByteProgress, bar_line
from mxr_cli.output import print_table

GIB = 1 << 30


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only when a test says so."""
    now = [100.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(byte_progress, "time", Clock)
    return now


def shown(monkeypatch: pytest.MonkeyPatch, *, live: bool) -> list[str]:
    """Where lines go, on a terminal of 80 columns or elsewhere."""
    lines: list[str] = []
    monkeypatch.setattr(streams, "on_terminal", lambda: live)
    monkeypatch.setattr(streams, "terminal_size", lambda stream=None: (80, 24))
    monkeypatch.setattr(streams, "update_line", lines.append)
    monkeypatch.setattr(byte_progress, "note", lines.append)
    return lines


def test_a_log_gets_a_line_each_ten_seconds(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    lines = shown(monkeypatch, live=False)
    step = ByteProgress("fetching bert.onnx", 320 << 20)
    for _ in range(240):
        clock[0] += 0.125
        step(1 << 20)
    assert lines == [
        "mxr: fetching bert.onnx:  25%, 80.0 MiB of 320.0 MiB, 8.0 MiB/s, 30 s left",
        "mxr: fetching bert.onnx:  50%, 160.0 MiB of 320.0 MiB, 8.0 MiB/s, 20 s left",
        "mxr: fetching bert.onnx:  75%, 240.0 MiB of 320.0 MiB, 8.0 MiB/s, 10 s left",
    ]


def test_a_terminal_gets_a_bar_within_its_columns(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    lines = shown(monkeypatch, live=True)
    step = ByteProgress("uploading resnet50.mxr", 100 << 20)
    for _ in range(100):
        clock[0] += 0.0625
        step(1 << 20)
    assert lines[0].endswith("   8%  16.0 MiB/s  5.8 s left"), "not before half a second"
    assert re.search(r"\[#+\.+\] ", lines[20]) and {len(line) for line in lines} <= set(range(60, 80))
    assert len(lines) == 46


def test_what_is_done_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    for live in (True, False):
        lines = shown(monkeypatch, live=live)
        for total in (0, 10):
            step = ByteProgress("hashing a.onnx", total)
            clock[0] += 60.0
            step(10)
        assert lines == [], live


def test_bytes_that_are_sent_again_are_taken_back(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    lines = shown(monkeypatch, live=False)
    step = ByteProgress("fetching a.onnx", 100)
    step(90)
    step(-90)
    clock[0] += 11
    step(5)
    assert lines == ["mxr: fetching a.onnx:   5%, 5 B of 100 B"], "5 bytes in 11 seconds are no rate"


@for_each(
    [
        (79, "fetching m.onnx [######......]  50%  1.0 GiB of 2.0 GiB  100.0 MiB/s  10 s left"),
        (60, "fetching m.onnx [######.......]  50%  100.0 MiB/s  10 s left"),
        (43, "fetching m.onnx [####.....]  50%  10 s left"),
        (19, " 50% fetching m.onnx"),
        (0, " 50% fetching m.onnx"),
    ]
)
def test_a_line_has_what_fits_and_always_the_share(columns: int, line: str) -> None:
    assert bar_line("fetching m.onnx", GIB, 2 * GIB, GIB / 10.24, columns) == line


def test_a_table_fits_a_terminal_and_breaks_no_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[tuple[Any, ...]] = [
        ("0123456789ab", "migraphx 2.15 rocm 7.2", "a=8x3 b=8x3"),
        ("ba9876543210", "", "c=1"),
    ]

    def printed(columns: int | None) -> str:
        monkeypatch.setattr(streams, "output_columns", lambda: columns)
        print_table(rows, ("ID", "TOOLCHAIN", "INPUTS"))
        return capsys.readouterr().out

    assert printed(None) == printed(80)
    assert printed(35) == (
        "ID            TOOLCHAIN  INPUTS\n"
        "0123456789ab  migraphx   a=8x3\n"
        "              2.15 rocm  b=8x3\n"
        "              7.2\n"
        "ba9876543210             c=1\n"
    )
    assert printed(20) == (
        "ID         0123456789ab\n"
        "TOOLCHAIN  migraphx 2.15 rocm 7.2\n"
        "INPUTS     a=8x3 b=8x3\n"
        "\n"
        "ID         ba9876543210\n"
        "INPUTS     c=1\n"
    )
