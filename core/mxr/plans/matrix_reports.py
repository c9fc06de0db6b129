"""Reports of a precompilation: JSON document, final error, JUnit XML, Markdown summary, GitHub annotations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mxr.display.github import annotation, markdown
from mxr.display.text import counted, printable, shell_quoted
from mxr.errors import (
    CompileFailedError,
    Json,
    MxrError,
    NoSuchArtifactError,
    NotCompiledError,
    NoWorkerError,
    TemporaryError,
)

from .matrix_run import CANCELLED, FAILED, LATER, MISSING, NO_WORKER, QUEUED, RUNNING, CellStatus, MatrixStatus

MAX_ROWS = 200
"""Maximum number of rows in a step summary, whose size GitHub limits to 1 MiB."""


def report_document(matrix: MatrixStatus, file: Path) -> Json:
    """The JSON document: `{"matrix","cells","summary"}`."""
    return {
        "matrix": str(file),
        "cells": [cell_json(status) for status in matrix.cells],
        "summary": {"cells": len(matrix.cells), **matrix.counts()},
    }


def cell_json(status: CellStatus) -> Json:
    """One cell of the JSON document."""
    cell, job, problem = status.request.cell, status.job, status.problem
    seconds = status.running()
    return {
        "model": status.request.request.key.model,
        "path": cell.name,
        "line": cell.line,
        "target": cell.target,
        "variant": cell.variant,
        "state": status.state,
        "digest": status.request.request.key.digest,
        "artifact": status.artifact,
        "match": status.match.to_json() if status.match else None,
        "job": job.id or None if job else None,
        "seconds": round(seconds, 3) if seconds is not None else None,
        "failure": {"kind": job.failure.kind, "name": job.failure.name} if job and job.failure else None,
        "problem": problem.message if problem else None,
    }


def exit_error(matrix: MatrixStatus) -> MxrError | None:
    """The error that determines the exit code, else None.

    Priority: failed compiles, then cells without a worker, then temporary failures, then cells not compiled yet, then
    missing programs.
    """
    counts, cells = matrix.counts(), counted(len(matrix.cells), "cell")

    def targets(*states: str) -> str:
        return ", ".join(dict.fromkeys(each.request.cell.target for each in matrix.cells if each.state in states))

    if counts[FAILED]:
        hint = "`mxr jobs ID` shows the log; --retry compiles again despite cached failures."
        return CompileFailedError(f"{counts[FAILED]} of {cells} failed to compile: {targets(FAILED)}.", hint=hint)
    if counts[NO_WORKER]:
        first = next(status.problem for status in matrix.cells if status.state == NO_WORKER)
        message = f"No worker can compile {counts[NO_WORKER]} of {cells}: {targets(NO_WORKER)}."
        return NoWorkerError(message, hint=first.hint if first else None)
    if counts[LATER]:
        return TemporaryError(
            f"{counts[LATER]} of {cells} could not be requested: {targets(LATER)}.",
            hint="Run the same command again later.",
        )
    waiting = counts[QUEUED] + counts[RUNNING] + counts[CANCELLED]
    if waiting:
        hint = "Run the same command with --on-miss wait; `mxr jobs --state open` shows the open jobs."
        there = targets(QUEUED, RUNNING, CANCELLED)
        return NotCompiledError(f"{waiting} of {cells} not compiled yet: {there}.", hint=hint)
    if counts[MISSING]:
        missing = f"{counts[MISSING]} of {cells} missing: {targets(MISSING)}."
        return NoSuchArtifactError(missing, hint="Compile them with --on-miss wait.")
    return None


def cell_reason(status: CellStatus) -> str:
    """Why a cell has no program, in one line; empty if it has one."""
    job = status.job
    if status.problem is None:
        return f"job {job.id[:12]}" if job and job.id and status.artifact is None else ""
    kind = f"{job.failure.kind} ({job.failure.name}): " if job and job.failure else ""
    return kind + " ".join(status.problem.message.split())


def _advice(status: CellStatus, file: Path) -> str:
    """Why a cell has no program, and what to do where nothing else says it, in one line."""
    if status.state == MISSING and status.problem is None:
        return f"No artifact answers this request. Compile it: mxr precompile {shell_quoted(file)} --on-miss wait"
    return cell_reason(status) or status.state


def junit(matrix: MatrixStatus, file: Path) -> bytes:
    """JUnit XML: one test case for each cell; a failed cell contains the end of its log."""
    from xml.etree import ElementTree

    counts = matrix.counts()
    numbers = {
        "tests": len(matrix.cells),
        "failures": counts[FAILED] + counts[MISSING],
        "errors": counts[NO_WORKER] + counts[LATER],
        "skipped": counts[QUEUED] + counts[RUNNING] + counts[CANCELLED],
    }
    written = {name: str(number) for name, number in numbers.items()}
    root = ElementTree.Element("testsuites", {"name": "mxr precompile", **written})
    suite = ElementTree.SubElement(root, "testsuite", {"name": printable(str(file)), **written})
    for status in matrix.cells:
        cell = status.request.cell
        case = {"classname": printable(cell.name), "name": printable(f"{cell.target} {cell.variant}")}
        where = {"file": printable(str(file)), "line": str(cell.line), "time": f"{status.running() or 0:.3f}"}
        _outcome(ElementTree.SubElement(suite, "testcase", case | where), status, file)
    ElementTree.indent(root)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def _outcome(case: Any, status: CellStatus, file: Path) -> None:
    from xml.etree import ElementTree

    tags = {FAILED: "failure", MISSING: "failure", NO_WORKER: "error", LATER: "error"}
    tags |= dict.fromkeys((QUEUED, RUNNING, CANCELLED), "skipped")
    tag = tags.get(status.state)
    if tag is None:
        return
    failure = status.job.failure if status.job else None
    kind = f"{failure.kind}:{failure.name}" if failure else status.state
    attributes = {"message": printable(_advice(status, file))} | ({} if tag == "skipped" else {"type": printable(kind)})
    problem = status.problem
    lines = [problem.hint, *problem.context.get("log", ())] if problem else []
    ElementTree.SubElement(case, tag, attributes).text = "\n".join(printable(line) for line in lines if line) or None


def step_summary(matrix: MatrixStatus, file: Path) -> str:
    """Markdown for the summary of a GitHub step: the counts, then the cells without a program."""
    counts = {state: count for state, count in matrix.counts().items() if count}
    lines = [f"### mxr precompile {markdown(str(file))}", "", "| state | cells |", "|---|---|"]
    lines += [f"| {state} | {count} |" for state, count in counts.items()]
    rest = [status for status in matrix.cells if status.artifact is None]
    if rest:
        lines += ["", "| cell | line | state | why |", "|---|---|---|---|"]
        lines += [_row(status, file) for status in rest[:MAX_ROWS]]
        lines += [f"| and {len(rest) - MAX_ROWS} more | | | |"] if len(rest) > MAX_ROWS else []
    return "\n".join([*lines, "", ""])


def _row(status: CellStatus, file: Path) -> str:
    cell = status.request.cell
    name = f"{cell.name} {cell.target} {cell.variant}"
    return f"| {markdown(name)} | {cell.line} | {status.state} | {markdown(_advice(status, file))} |"


def marks(matrix: MatrixStatus, file: Path) -> Iterable[str]:
    """GitHub workflow commands that annotate the lines of the matrix file, one for each line and state."""
    seen = set()
    for status in matrix.cells:
        if status.state not in (FAILED, NO_WORKER, LATER, MISSING):
            continue
        line = status.request.cell.line
        if (line, status.state) not in seen:
            seen.add((line, status.state))
            cell = status.request.cell
            yield annotation(f"{cell.name} {cell.target} {cell.variant}: {_advice(status, file)}", file, line)
