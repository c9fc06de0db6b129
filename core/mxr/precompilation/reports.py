"""What a pipeline is told of a board: the one document, the error that it ends with, JUnit's XML, a step's summary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mxr.errors import CompileFailed, Json, MxrError, NoSuchArtifact, NotCompiled, NoWorker, Temporary

from .run import CANCELLED, FAILED, LATER, MISSING, NO_WORKER, QUEUED, RUNNING, CellStatus, MatrixStatus

MOST_ROWS = 200
"""Rows of a step's summary: GitHub takes one MiB."""

UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document can hold, not even escaped. Source: W3C, XML 1.0, production 2 (Char)."""


def document(board: MatrixStatus, file: Path) -> Json:
    """The JSON of a board: `{"matrix","cells","summary"}`."""
    return {
        "matrix": str(file),
        "cells": [cell_json(place) for place in board.places],
        "summary": {"cells": len(board.places), **board.counts()},
    }


def cell_json(place: CellStatus) -> Json:
    """One cell of the document."""
    cell, job, problem = place.wanted.cell, place.job, place.problem
    seconds = place.running()
    return {
        "model": place.wanted.request.key.model,
        "path": cell.name,
        "line": cell.line,
        "target": cell.target,
        "variant": cell.variant,
        "state": place.state,
        "digest": place.wanted.request.key.digest,
        "artifact": place.artifact,
        "match": dict(place.match) or None,
        "job": job.id or None if job else None,
        "seconds": round(seconds, 3) if seconds is not None else None,
        "failure": {"kind": job.failure.kind, "name": job.failure.name} if job and job.failure else None,
        "problem": problem.message if problem else None,
    }


def verdict(board: MatrixStatus) -> MxrError | None:
    """The error that a pipeline ends with: failed before no worker, that before try again, that before not yet."""
    counts, total = board.counts(), len(board.places)
    if counts[FAILED]:
        hint = "`mxr jobs ID` shows the log; --retry tries again in spite of the failures."
        return CompileFailed(f"{counts[FAILED]} of {total} cells failed to compile.", hint=hint)
    if counts[NO_WORKER]:
        first = next(place.problem for place in board.places if place.state == NO_WORKER)
        message = f"{counts[NO_WORKER]} of {total} cells can be compiled by nobody."
        return NoWorker(f"{message} {first.message}" if first else message, hint=first.hint if first else None)
    if counts[LATER]:
        return Temporary(f"{counts[LATER]} of {total} cells could not be asked for.", hint="Run the same again.")
    waiting = counts[QUEUED] + counts[RUNNING] + counts[CANCELLED]
    if waiting:
        hint = "Run the same again with --on-miss wait; `mxr jobs --state open` shows where they are."
        return NotCompiled(f"{waiting} of {total} cells are not compiled yet.", hint=hint)
    if counts[MISSING]:
        return NoSuchArtifact(f"{counts[MISSING]} of {total} cells are missing.", hint="--on-miss wait compiles them.")
    return None


def words(place: CellStatus) -> str:
    """Why a cell is not there, in one line; empty where it is."""
    job = place.job
    if place.problem is None:
        return f"job {job.id[:12]}" if job and job.id and place.artifact is None else ""
    kind = f"{job.failure.kind} ({job.failure.name}): " if job and job.failure else ""
    return kind + " ".join(place.problem.message.split())


def junit(board: MatrixStatus, file: Path) -> bytes:
    """JUnit's XML: a case for each cell, with the end of the log where one failed."""
    from xml.etree import ElementTree

    counts = board.counts()
    numbers = {
        "tests": len(board.places),
        "failures": counts[FAILED] + counts[MISSING],
        "errors": counts[NO_WORKER] + counts[LATER],
        "skipped": counts[QUEUED] + counts[RUNNING] + counts[CANCELLED],
    }
    written = {name: str(number) for name, number in numbers.items()}
    root = ElementTree.Element("testsuites", {"name": "mxr precompile", **written})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(str(file)), **written})
    for place in board.places:
        cell = place.wanted.cell
        case = {"classname": _xml(cell.name), "name": _xml(f"{cell.target} {cell.variant}")}
        where = {"file": _xml(str(file)), "line": str(cell.line), "time": f"{place.running() or 0:.3f}"}
        _outcome(ElementTree.SubElement(suite, "testcase", case | where), place)
    ElementTree.indent(root)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def _outcome(case: Any, place: CellStatus) -> None:
    from xml.etree import ElementTree

    tags = {FAILED: "failure", MISSING: "failure", NO_WORKER: "error", LATER: "error"}
    tags |= dict.fromkeys((QUEUED, RUNNING, CANCELLED), "skipped")
    tag = tags.get(place.state)
    if tag is None:
        return
    failure = place.job.failure if place.job else None
    kind = f"{failure.kind}:{failure.name}" if failure else place.state
    said = {"message": _xml(words(place) or place.state)} | ({} if tag == "skipped" else {"type": _xml(kind)})
    log = place.problem.detail.get("log", ()) if place.problem else ()
    ElementTree.SubElement(case, tag, said).text = _xml("\n".join(map(str, log))) or None


def _xml(text: str) -> str:
    return UNFIT.sub("?", text)


def step_summary(board: MatrixStatus, file: Path) -> str:
    """Markdown for the page of a run: numbers, then what is not there."""
    counts = {state: count for state, count in board.counts().items() if count}
    lines = [f"### mxr precompile {_cell(str(file))}", "", "| state | cells |", "|---|---|"]
    lines += [f"| {state} | {count} |" for state, count in counts.items()]
    rest = [place for place in board.places if place.artifact is None]
    if rest:
        lines += ["", "| cell | line | state | why |", "|---|---|---|---|"]
        lines += [_row(place) for place in rest[:MOST_ROWS]]
        lines += [f"| and {len(rest) - MOST_ROWS} more | | | |"] if len(rest) > MOST_ROWS else []
    return "\n".join([*lines, "", ""])


def _row(place: CellStatus) -> str:
    cell = place.wanted.cell
    name = f"{cell.name} {cell.target} {cell.variant}"
    return f"| {_cell(name)} | {cell.line} | {place.state} | {_cell(words(place))} |"


def _cell(text: str) -> str:
    """A text that stays one cell of a table, and is no markup."""
    return re.sub(r"([\\|`*_<>\[\]&#~])", r"\\\1", " ".join(text.split()))


def marks(board: MatrixStatus, file: Path) -> Iterable[str]:
    """GitHub's workflow commands that mark the lines of the matrix, one for each line and state."""
    told = set()
    for place in board.places:
        if place.state not in (FAILED, NO_WORKER, LATER, MISSING):
            continue
        line = place.wanted.cell.line
        if (line, place.state) not in told:
            told.add((line, place.state))
            cell = place.wanted.cell
            yield annotation(f"{cell.name} {cell.target} {cell.variant}: {words(place) or place.state}", file, line)


def annotation(message: str, file: object, line: object) -> str:
    """One workflow command. Source: GitHub, Actions documentation, "Workflow commands"; escapes as in its toolkit."""

    def plain(text: object) -> str:
        return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    where = plain(file).replace(":", "%3A").replace(",", "%2C")
    return f"::error file={where},line={line}::{plain(message)}"
