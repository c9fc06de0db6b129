"""The progress of a compile job as text."""

from __future__ import annotations

from typing import Any

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.protocol import jobs as job_protocol
from mxr.workflows.compile import JobProgress
from mxr_cli.job_progress import progress_line
from mxr_cli.output import format_duration

KEY = Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (1, 3)),))


def job(state: str, **more: Any) -> job_protocol.Job:
    return job_protocol.Job(
        "ab" * 16, state, KEY.digest, Request(KEY), more.pop("attempts", 0), 1, 100.0, 103.0, **more
    )


def test_a_line_states_position_phase_time_and_estimate() -> None:
    queued = job("queued", place=3, attempts=1, estimate=600.0, estimate_from="2 compiles of this model for gfx908")
    assert progress_line(JobProgress(queued, 65.0)) == (
        "job abababababab: queued, position 3, attempt 2, waiting for 1 min 05 s "
        "(about 10 min 00 s, based on 2 compiles of this model for gfx908)"
    )
    stuck = job("queued", place=1, waiting_for="a worker for the ref target with MIGraphX 2.16")
    assert progress_line(JobProgress(stuck, 65.0)) == (
        "job abababababab: queued, no live worker, needs a worker for the ref target with MIGraphX 2.16; "
        "waiting for 1 min 05 s"
    )
    running = job("running", phase="compile", worker="h/ref")
    assert progress_line(JobProgress(running, 65.0, 42.0)).startswith(
        "job abababababab: compile on h/ref, 42 s (no estimate"
    )
    assert "does not answer" in progress_line(JobProgress(running, 5.0, away="gone"))
    assert progress_line(JobProgress(job("done"), 7.25)) == "job abababababab: done after 7.2 s"


def test_durations() -> None:
    assert [format_duration(each) for each in (0.04, 59.4, 60, 3599, 7260)] == [
        "0.0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "2 h 01 min",
    ]
