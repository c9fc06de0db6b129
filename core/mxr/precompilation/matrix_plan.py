"""What a matrix would cost: what is there, what would be compiled and for how long, what nobody can compile.

Nothing is compiled, uploaded or queued. Minutes are those that compiles took before; how sure they are is said.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.errors import Json, NoWorker, Usage
from mxr.protocol.surveys import RequestStatus
from mxr.util.frozen import dataclass

from .run import CellRequest

if TYPE_CHECKING:
    from mxr.matrix import Cell

THERE, QUEUED, COMPILE, FAILED, NOBODY = "there", "queued", "compile", "failed before", "no worker"
STATES = (THERE, QUEUED, COMPILE, FAILED, NOBODY)
MOST_JOBS = 256
"""Jobs of one matrix. Source: GitHub, Actions documentation, "Usage limits"."""


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell and how it stands."""

    wanted: CellRequest
    standing: RequestStatus

    @property
    def state(self) -> str:
        """One of `STATES`."""
        seen = self.standing
        if seen.artifact:
            return THERE
        if seen.job:
            return QUEUED if seen.able or seen.state == "running" else NOBODY
        return FAILED if seen.failure else COMPILE if seen.able else NOBODY

    @property
    def open(self) -> bool:
        """Whether a compile of it is still to come."""
        return self.state in (QUEUED, COMPILE, NOBODY)

    def to_json(self) -> Json:
        """One cell of the plan's document."""
        cell, seen = self.wanted.cell, self.standing
        return {
            "model": self.wanted.request.key.model,
            "path": cell.name,
            "line": cell.line,
            "target": cell.target,
            "variant": cell.variant,
            "state": self.state,
            "digest": self.wanted.request.key.digest,
            "artifact": seen.artifact,
            "job": seen.job,
            "estimate": seen.estimate if self.open else None,
            "estimate_from": seen.estimate_from if self.open else None,
            "failure": {"kind": seen.failure.kind, "name": seen.failure.name} if seen.failure else None,
            "problem": seen.problem,
        }


@dataclass(frozen=True, slots=True)
class TargetWorkload:
    """What one target has to do. `minutes` is of those compiles that have an estimate, `unknown` counts the others."""

    target: str
    cell: Cell
    counts: dict[str, int]
    minutes: float
    unknown: int

    @property
    def open(self) -> int:
        """Compiles to come."""
        return sum(self.counts[state] for state in (QUEUED, COMPILE, NOBODY))

    def to_json(self) -> Json:
        """One target of the plan's document."""
        said = self.cell.options
        about = {"kind": said.kind, "arch": said.arch, "rocm": said.rocm, "migraphx": said.migraphx}
        sums = {"open": self.open, "minutes": self.minutes, "unknown": self.unknown, "counts": self.counts}
        return {"target": self.target, **about, "runner": list(self.cell.runner), **sums}


def plan(wanted: Sequence[CellRequest], standings: Sequence[RequestStatus]) -> tuple[PlannedCell, ...]:
    """The cells with how they stand."""
    return tuple(PlannedCell(*pair) for pair in zip(wanted, standings, strict=True))


def lots(planned: Sequence[PlannedCell]) -> tuple[TargetWorkload, ...]:
    """The cells by target, in the order of the matrix; what several cells have in common is counted once in minutes."""
    groups: dict[str, list[PlannedCell]] = {}
    for each in planned:
        groups.setdefault(each.wanted.cell.target, []).append(each)
    return tuple(_lot(target, some) for target, some in groups.items())


def _lot(target: str, some: list[PlannedCell]) -> TargetWorkload:
    counts = dict.fromkeys(STATES, 0)
    for each in some:
        counts[each.state] += 1
    compiles = list({each.wanted.request: each for each in some if each.open}.values())
    seconds = [each.standing.estimate for each in compiles if each.standing.estimate is not None]
    return TargetWorkload(
        target, some[0].wanted.cell, counts, round(sum(seconds) / 60, 2), len(compiles) - len(seconds)
    )


def document(planned: Sequence[PlannedCell], file: Path) -> Json:
    """The JSON of a plan: `{"matrix","cells","targets","summary"}`."""
    found = lots(planned)
    counts = {state: sum(lot.counts[state] for lot in found) for state in STATES}
    sums = {"minutes": round(sum(lot.minutes for lot in found), 2), "unknown": sum(lot.unknown for lot in found)}
    return {
        "matrix": str(file),
        "cells": [each.to_json() for each in planned],
        "targets": [lot.to_json() for lot in found],
        "summary": {"cells": len(planned), **counts, **sums},
    }


def verdict(planned: Sequence[PlannedCell]) -> NoWorker | None:
    """The error that a plan ends with: cells that nobody can compile."""
    nobody = [each for each in planned if each.state == NOBODY]
    if not nobody:
        return None
    targets = ", ".join(dict.fromkeys(each.wanted.cell.target for each in nobody))
    return NoWorker(f"{len(nobody)} of {len(planned)} cells can be compiled by nobody: {targets}.")


def github(planned: Sequence[PlannedCell]) -> Json:
    """`{"include": [...]}` for `fromJSON`: a job for each target that has something to compile. Raises `Usage`."""
    found = [lot for lot in lots(planned) if lot.open]
    if len(found) > MOST_JOBS:
        raise Usage(
            f"These are {len(found)} targets; GitHub runs {MOST_JOBS} jobs of a matrix.", hint="Cut the matrix."
        )
    return {"include": [lot.to_json() | {"runner": list(lot.cell.runner) or ["ubuntu-latest"]} for lot in found]}


def gitlab(planned: Sequence[PlannedCell], file: Path) -> str:
    """A child pipeline: a job for each target that has something to compile; JSON's texts are YAML's as well."""
    lines = ["# Made by `mxr plan --format gitlab`."]
    for lot in (lot for lot in lots(planned) if lot.open):
        command = f"mxr precompile {_shell(str(file))} --target {_shell(lot.target)} --junit mxr-junit.xml"
        lines += [
            f"{json.dumps('precompile ' + lot.target)}:",
            *([f"  tags: {json.dumps(list(lot.cell.runner))}"] if lot.cell.runner else []),
            f"  script: [{json.dumps(command)}]",
            "  artifacts: {when: always, reports: {junit: mxr-junit.xml}}",
        ]
    if len(lines) == 1:
        # A child pipeline without a job is an error.
        lines += ['"nothing to precompile":', '  script: ["true"]']
    return "\n".join(lines) + "\n"


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(text)
