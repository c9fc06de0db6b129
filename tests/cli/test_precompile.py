"""What `mxr precompile` and `mxr plan` report: progress, JUnit XML, annotations, plans and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.consumers.python import PYTHON
from mxr.display import streams
from mxr.display.github import markdown
from mxr.errors import CompileFailedError, NotCompiledError, NoWorkerError, TemporaryError
from mxr.matrix import Cell
from mxr.onnxfile import OnnxModel
from mxr.plans import matrix_reports, matrix_survey
from mxr.plans.matrix_run import (
    AVAILABLE,
    CANCELLED,
    COMPILED,
    FAILED,
    LATER,
    MISSING,
    NO_WORKER,
    QUEUED,
    RUNNING,
    CellRequest,
    CellStatus,
    MatrixStatus,
)
from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import RequestStatus
from mxr.request.builder import PreparedRequest, RequestOptions
from mxr.request.model import ModelReference
from mxr_cli import matrix_progress
from mxr_cli.main import main

KEY = Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (1, 3)),))
FILE = Path("ci/matrix.yaml")


def wanted(batch: int = 1, name: str = "a.onnx", **more: Any) -> CellRequest:
    options = RequestOptions(kind="ref", migraphx="2.15", batch=batch, precision="fp32", consumer="python", **more)
    subject = ModelReference(KEY.model, OnnxModel(Path(name), 0, (), (), (), None, 0, ""))
    return CellRequest(Cell(name, options, 4, name, 9), PreparedRequest.of(Request(KEY), subject, PYTHON))


def job(state: str, **more: Any) -> job_protocol.Job:
    return job_protocol.Job("ab" * 16, state, KEY.digest, Request(KEY), 0, 1, 100.0, 103.0, **more)


def cell(state: str, **more: Any) -> CellStatus:
    return CellStatus(wanted(), state, "c" * 64 if state in (AVAILABLE, COMPILED) else None, **more)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([AVAILABLE, COMPILED], None),
        ([AVAILABLE, MISSING], 3),
        ([QUEUED, MISSING], 4),
        ([CANCELLED], 4),
        ([LATER, QUEUED], 75),
        ([LATER, NO_WORKER, RUNNING], 8),
        ([QUEUED, LATER, NO_WORKER, FAILED, AVAILABLE], 5),
    ],
)
def test_several_failures_have_one_exit_code(states: list[str], code: int | None) -> None:
    """5 before 8 before 75 before 4."""
    problem = matrix_reports.exit_error(MatrixStatus([cell(state) for state in states]))
    assert (problem.exit if problem else None) == code


@given(st.text(max_size=200), st.text(max_size=200))
def test_junit_is_xml_whatever_a_log_holds(message: str, line: str) -> None:
    """Control characters, angle brackets and lone surrogates are escaped, and nothing in it controls a terminal."""
    failure = job_protocol.JobFailure(job_protocol.PERMANENT, message, "unsupported")
    bad = cell(FAILED, job=job("failed", failure=failure), problem=CompileFailedError(message, context={"log": [line]}))
    root = ElementTree.fromstring(
        matrix_reports.junit(MatrixStatus([bad, cell(AVAILABLE), cell(QUEUED, job=job("queued"))]), FILE)
    )
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("3", "1", "1")
    assert root[0][0][0].tag == "failure" and root[0][0].get("line") == "4" and len(root[0][1]) == 0


def test_what_is_missing_says_what_to_do() -> None:
    """In all reports that people read in CI."""
    file = Path("my matrix.yaml")
    matrix = MatrixStatus([cell(MISSING), cell(NO_WORKER, problem=NoWorkerError("No worker.", hint="Start one."))])
    remedy = "No artifact answers this request. Compile it: mxr precompile 'my matrix.yaml' --on-miss wait"
    suite = ElementTree.fromstring(matrix_reports.junit(matrix, file))[0]
    assert [(case[0].get("message"), case[0].text) for case in suite] == [(remedy, None), ("No worker.", "Start one.")]
    assert markdown(remedy) in matrix_reports.step_summary(matrix, file)
    assert any(remedy in mark for mark in matrix_reports.marks(matrix, file))


def test_the_summary_is_a_table_whatever_a_message_holds() -> None:
    bad = cell(FAILED, problem=CompileFailedError("a | b\n<script> *c*"))
    rows = [
        row for row in matrix_reports.step_summary(MatrixStatus([bad]), FILE).splitlines() if row.startswith("| a.onnx")
    ]
    assert rows == ["| a.onnx ref/migraphx2.15 batch 1 fp32 python | 4 | failed | a \\| b \\<script\\> \\*c\\* |"]


def test_the_state_of_a_cell_in_one_line() -> None:
    queued = cell(QUEUED, job=job("queued", estimate=600.0, estimate_from="2 compiles of this model for gfx908"))
    assert (
        matrix_progress.cell_state(queued)
        == "queued as abababababab (about 10 min 00 s, based on 2 compiles of this model for gfx908)"
    )
    running = cell(RUNNING, job=job("running", worker="h/ref", phase="compile", started_at=103.0), updated=1e12)
    assert matrix_progress.cell_state(running).startswith("compile on h/ref, ")
    done = cell(COMPILED, job=job("done", started_at=101.0))
    assert matrix_progress.cell_state(done) == "compiled in 2.0 s"
    lost = cell(NO_WORKER, problem=NoWorkerError("none\x1b[2J here"))
    assert matrix_progress.cell_state(lost) == "no worker: none\x1b[2J here"
    assert matrix_progress.totals(MatrixStatus([queued, done])) == "2 cells: 1 compiled, 1 queued"


def test_a_terminal_shows_what_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Failures come first, the rest is counted, and the next table replaces the one before."""
    monkeypatch.setattr(streams, "terminal_size", lambda: (60, 8))
    matrix = MatrixStatus(
        [cell(QUEUED, job=job("queued"))] * 20 + [cell(FAILED, problem=CompileFailedError("\x1b]0;" + "x" * 99))]
    )
    display = matrix_progress.MatrixDisplay(matrix)
    display.live = True
    display.show(())
    rows = capsys.readouterr().err.removeprefix("\x1b[J").splitlines()
    assert len(rows) == 6 and all(len(row) < 60 for row in rows)
    assert "failed: \\x1b]0" in rows[0] and rows[4] == "and 17 more" and rows[5].startswith("21 cells")
    display.show([3])
    assert capsys.readouterr().err.startswith("\x1b[6A\r\x1b[J")


def test_a_log_has_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    matrix = MatrixStatus([cell(QUEUED, job=job("queued")), cell(QUEUED, job=job("queued"))])
    display = matrix_progress.MatrixDisplay(matrix)
    display.show([0, 1])
    matrix.away = "The registry does not answer."
    display.show([])
    display.show([])
    matrix.away = None
    matrix.cells[0] = cell(COMPILED, job=job("done"))
    display.show([0, 1])
    rows = capsys.readouterr().err.splitlines()
    assert [row.partition(": ")[2][:12] for row in rows] == ["[0/2] a.onnx"] * 2 + ["The registry", "[1/2] a.onnx"]


def test_a_plan_counts_equal_requests_once() -> None:
    """Two cells with the same request are one compile. Cells without an estimate are counted separately, not as 0."""
    known = RequestStatus(able=True, estimate=90.0, estimate_from="one compile of this model for gfx908")
    planned = matrix_survey.plan_matrix([wanted(), wanted(), wanted(2)], [known, known, RequestStatus(artifact="a")])
    (lot,) = matrix_survey.workloads(planned)
    assert (lot.open, lot.minutes, lot.unknown) == (2, 1.5, 0)
    assert matrix_survey.exit_error(planned) is None
    nobody = matrix_survey.plan_matrix([wanted()], [RequestStatus()])
    assert (matrix_survey.workloads(nobody)[0].unknown, nobody[0].state) == (1, "no worker")
    found = matrix_survey.exit_error(nobody)
    assert found is not None and found.exit == 8


@pytest.mark.parametrize(
    ("standing", "state"),
    [
        (RequestStatus(artifact="a"), "available"),
        (RequestStatus(job="j", state="running"), "queued"),
        (RequestStatus(job="j", state="queued", able=True), "queued"),
        (RequestStatus(job="j", state="queued"), "no worker"),
        (RequestStatus(able=True), "compile"),
        (RequestStatus(able=True, failure=job_protocol.JobFailure("permanent", "no")), "failed before"),
    ],
)
def test_the_state_of_a_planned_cell(standing: RequestStatus, state: str) -> None:
    assert matrix_survey.PlannedCell(wanted(), standing).state == state


def test_a_child_pipeline_is_yaml() -> None:
    """Names and commands are quoted for any path. Without anything to compile there is still one job."""
    import yaml

    planned = matrix_survey.plan_matrix([wanted()], [RequestStatus(able=True)])
    jobs = yaml.safe_load(matrix_survey.gitlab(planned, Path("a folder/it's.yaml")))
    (name,) = jobs
    assert name == "precompile ref/migraphx2.15"
    assert jobs[name]["script"][0].startswith("mxr precompile 'a folder/it'\"'\"'s.yaml' --target ref/migraphx2.15")
    nothing = yaml.safe_load(
        matrix_survey.gitlab(matrix_survey.plan_matrix([wanted()], [RequestStatus(artifact="a")]), FILE)
    )
    assert list(nothing) == ["nothing to precompile"]


def test_more_targets_than_github_allows_jobs() -> None:
    many = [wanted(rocm=f"7.{at}") for at in range(257)]
    with pytest.raises(Exception, match="257 targets"):
        matrix_survey.github(matrix_survey.plan_matrix(many, [RequestStatus(able=True)] * 257))


@pytest.mark.parametrize(
    "arguments",
    [
        ("precompile",),
        ("precompile", "m.yaml", "--on-miss", "local"),
        ("precompile", "none.yaml"),
        ("plan", "none.yaml"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2


def test_github_errors_are_annotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (tmp_path / "m.yaml").write_text("version: 1\nmodles: []\n")
    with pytest.raises(SystemExit) as ended:
        main(["precompile", str(tmp_path / "m.yaml"), "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert f"::error file={tmp_path / 'm.yaml'},line=2::" in printed.err
    assert json.loads(printed.out)["error"]["context"]["line"] == 2


def test_errors_keep_their_class() -> None:
    """An error that gets a line number keeps its class and exit code: a damaged model is still 65."""
    from mxr.errors import DamagedError
    from mxr.plans.matrix_run import at_line

    found = at_line(DamagedError("no model", hint="get it again"), FILE, 3)
    assert (type(found), found.message, found.exit) == (DamagedError, "ci/matrix.yaml:3: no model", 65)
    assert isinstance(at_line(TemporaryError("x"), FILE, 1), TemporaryError) and isinstance(
        at_line(NotCompiledError(), FILE, 1), NotCompiledError
    )
