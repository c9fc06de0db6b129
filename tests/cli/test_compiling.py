"""What a person reads while a program is compiled, and how `--on-miss` is written."""

from __future__ import annotations

from typing import Any

import pytest

from mxr.artifact.key import Key
from mxr.artifact.qualities import Request
from mxr.errors import Usage
from mxr.protocol import jobs as job_protocol
from mxr.workflows.compile import JobProgress
from mxr_cli.compiling import OnMiss, duration, line, printable

KEY = Key("xxh3:" + "0" * 32, "ref", "2.15", (("x", (1, 3)),))


def job(state: str, **more: Any) -> job_protocol.Job:
    return job_protocol.Job(
        "ab" * 16, state, KEY.digest, Request(KEY), more.pop("attempts", 0), 1, 100.0, 103.0, **more
    )


@pytest.mark.parametrize(
    ("text", "way", "seconds"),
    [
        ("ask", "ask", None),
        ("wait", "wait", None),
        ("wait=90", "wait", 90),
        ("wait=0.5s", "wait", 0.5),
        ("wait=2h", "wait", 7200),
        ("local", "local", None),
    ],
)
def test_ways_on_a_miss(text: str, way: str, seconds: float | None) -> None:
    found = OnMiss.read(text, retry=False, verbose=False)
    assert (found.way, found.seconds) == (way, seconds)


@pytest.mark.parametrize("text", ["", "cry", "wait=", "wait=soon", "wait=-1", "ask=3s", "wait=3 s"])
def test_what_is_no_way(text: str) -> None:
    with pytest.raises(Usage, match="--on-miss"):
        OnMiss.read(text, retry=False, verbose=False)


def test_one_line_says_where_a_job_stands() -> None:
    queued = job("queued", place=3, attempts=1, estimate=600.0, estimate_from="2 compiles of this model for gfx908")
    assert line(JobProgress(queued, 65.0)) == (
        "job abababababab: queued, number 3 in the queue, attempt 2 to come, waiting 1 min 05 s "
        "(about 10 min 00 s by 2 compiles of this model for gfx908)"
    )
    stuck = job("queued", place=1, waiting_for="a worker for the ref target with MIGraphX 2.16")
    assert line(JobProgress(stuck, 65.0)) == (
        "job abababababab: queued, no live worker: it needs a worker for the ref target with MIGraphX 2.16; "
        "waiting 1 min 05 s"
    )
    running = job("running", phase="compile", worker="h/ref")
    assert line(JobProgress(running, 65.0, 42.0)).startswith("job abababababab: compile on h/ref, 42 s (no estimate")
    assert "does not answer" in line(JobProgress(running, 5.0, away="gone"))
    assert line(JobProgress(job("done"), 7.25)) == "job abababababab: done after 7.2 s"


def test_durations_and_logs() -> None:
    assert [duration(each) for each in (0.04, 59.4, 60, 3599, 7260)] == [
        "0.0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "2 h 01 min",
    ]
    assert printable("a\x1b[2Jb\n\tc\r") == "a?[2Jb\n\tc?"
