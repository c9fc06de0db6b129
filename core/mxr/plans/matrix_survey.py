"""The plan of a matrix: which programs exist, which must be compiled and how long that takes, which no worker can.

A plan compiles, uploads and queues nothing. Estimates come from earlier compiles, and each states its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.key import TARGET
from mxr.display.text import counted, json_text
from mxr.errors import Json, NoWorkerError, UsageError
from mxr.protocol.surveys import RequestStatus
from mxr.util.frozen import dataclass
from mxr.workflows.survey import request_statuses

from .matrix_run import CellRequest

if TYPE_CHECKING:
    from mxr.artifact.attributes import Request
    from mxr.client.registry import Client
    from mxr.matrix import Cell

AVAILABLE, QUEUED, COMPILE, FAILED, NOBODY = "available", "queued", "compile", "failed before", "no worker"
STATES = (AVAILABLE, QUEUED, COMPILE, FAILED, NOBODY)
MAX_JOBS = 256
"""Maximum number of jobs in one matrix. Source: GitHub, Actions documentation, "Usage limits"."""


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell and its status in the registry. `crossable`: `allow: cross` would let a worker compile it."""

    request: CellRequest
    status: RequestStatus
    crossable: bool = False

    @property
    def state(self) -> str:
        """One of `STATES`."""
        seen = self.status
        if seen.artifact:
            return AVAILABLE
        if seen.job:
            return QUEUED if seen.able or seen.state == "running" else NOBODY
        return FAILED if seen.failure else COMPILE if seen.able else NOBODY

    @property
    def open(self) -> bool:
        """Whether it still has to be compiled."""
        return self.state in (QUEUED, COMPILE, NOBODY)

    def to_json(self) -> Json:
        """The cell in the JSON document of the plan."""
        cell, seen = self.request.cell, self.status
        return {
            "model": self.request.request.key.model,
            "path": cell.name,
            "line": cell.line,
            "target": cell.target,
            "variant": cell.variant,
            "state": self.state,
            "digest": self.request.request.key.digest,
            "artifact": seen.artifact,
            "job": seen.job,
            "estimate": seen.estimate if self.open else None,
            "estimate_from": seen.estimate_from if self.open else None,
            "failure": {"kind": seen.failure.kind, "name": seen.failure.name} if seen.failure else None,
            "problem": seen.problem,
            "crossable": self.crossable,
        }


@dataclass(frozen=True, slots=True)
class TargetWorkload:
    """The work of one target. `minutes` sums the compiles with an estimate, `unknown` counts those without."""

    target: str
    cell: Cell
    counts: dict[str, int]
    minutes: float
    unknown: int

    @property
    def open(self) -> int:
        """The number of outstanding compiles."""
        return sum(self.counts[state] for state in (QUEUED, COMPILE, NOBODY))

    def to_json(self) -> Json:
        """The target in the JSON document of the plan."""
        options = self.cell.options
        about = {name: getattr(options, name) for name in TARGET if name != "vendor"}
        sums = {"open": self.open, "minutes": self.minutes, "unknown": self.unknown, "counts": self.counts}
        return {"target": self.target, **about, "runner": list(self.cell.runner), **sums}


def plan_matrix(requests: Sequence[CellRequest], statuses: Sequence[RequestStatus]) -> tuple[PlannedCell, ...]:
    """Combine the cells with their statuses, which are in the same order."""
    return tuple(PlannedCell(*pair) for pair in zip(requests, statuses, strict=True))


def mark_crossable(client: Client, planned: Sequence[PlannedCell]) -> tuple[PlannedCell, ...]:
    """Mark the cells that no worker can compile on the GPU, and one could without it. Raises `UnreachableError`."""
    asked: dict[int, Request] = {}
    for at, each in enumerate(planned):
        request = each.request.request
        if each.state == NOBODY and request.key.kind == "gpu" and not request.constraints.exact:
            allowed = replace(request.constraints, allow=(*request.constraints.allow, "cross"))
            asked[at] = replace(request, constraints=allowed)
    able = {at for at, status in zip(asked, request_statuses(client, list(asked.values())), strict=True) if status.able}
    return tuple(replace(each, crossable=at in able) for at, each in enumerate(planned))


def workloads(planned: Sequence[PlannedCell]) -> tuple[TargetWorkload, ...]:
    """The workload of each target, in the order of the matrix. A request that several cells share counts once."""
    groups: dict[str, list[PlannedCell]] = {}
    for each in planned:
        groups.setdefault(each.request.cell.target, []).append(each)
    return tuple(_workload(target, some) for target, some in groups.items())


def _workload(target: str, some: list[PlannedCell]) -> TargetWorkload:
    counts = dict.fromkeys(STATES, 0)
    for each in some:
        counts[each.state] += 1
    compiles = list({each.request.request: each for each in some if each.open}.values())
    seconds = [each.status.estimate for each in compiles if each.status.estimate is not None]
    return TargetWorkload(
        target, some[0].request.cell, counts, round(sum(seconds) / 60, 2), len(compiles) - len(seconds)
    )


def plan_document(planned: Sequence[PlannedCell], file: Path) -> Json:
    """The JSON document of a plan: `{"matrix","cells","targets","summary"}`."""
    found = workloads(planned)
    counts = {state: sum(workload.counts[state] for workload in found) for state in STATES}
    sums = {
        "minutes": round(sum(workload.minutes for workload in found), 2),
        "unknown": sum(workload.unknown for workload in found),
    }
    return {
        "matrix": str(file),
        "cells": [each.to_json() for each in planned],
        "targets": [workload.to_json() for workload in found],
        "summary": {"cells": len(planned), **counts, **sums},
    }


def exit_error(planned: Sequence[PlannedCell]) -> NoWorkerError | None:
    """The error for a plan with cells that no worker can compile, else None."""
    nobody = [each for each in planned if each.state == NOBODY]
    if not nobody:
        return None
    targets = ", ".join(dict.fromkeys(each.request.cell.target for each in nobody))
    crossable = sum(each.crossable for each in nobody)
    hint = (
        f"`allow: cross` in the matrix would have {crossable} of them compiled without the GPU." if crossable else None
    )
    text = f"No worker can compile {len(nobody)} of {counted(len(planned), 'cell')}: {targets}."
    return NoWorkerError(text, hint=hint) if hint else NoWorkerError(text)


def github(planned: Sequence[PlannedCell]) -> Json:
    """The matrix of a GitHub job, `{"include": [...]}`, with one job for each target that has work.

    Raises `UsageError`.
    """
    found = [workload for workload in workloads(planned) if workload.open]
    if len(found) > MAX_JOBS:
        raise UsageError(
            f"The plan has {len(found)} targets, but GitHub allows {MAX_JOBS} jobs in a matrix.",
            hint="Split the matrix.",
        )
    return {
        "include": [
            workload.to_json() | {"runner": list(workload.cell.runner) or ["ubuntu-latest"]} for workload in found
        ]
    }


def gitlab(planned: Sequence[PlannedCell], file: Path) -> str:
    """A GitLab child pipeline with one job for each target that has work. JSON strings are valid YAML."""
    lines = ["# Made by `mxr plan --format gitlab`."]
    for workload in (workload for workload in workloads(planned) if workload.open):
        command = f"mxr precompile {_shell(str(file))} --target {_shell(workload.target)} --junit mxr-junit.xml"
        lines += [
            f"{json_text('precompile ' + workload.target)}:",
            *([f"  tags: {json_text(list(workload.cell.runner))}"] if workload.cell.runner else []),
            f"  script: [{json_text(command)}]",
            "  artifacts: {when: always, reports: {junit: mxr-junit.xml}}",
        ]
    if len(lines) == 1:
        # GitLab rejects a child pipeline without jobs.
        lines += ['"nothing to precompile":', '  script: ["true"]']
    return "\n".join(lines) + "\n"


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(text)
