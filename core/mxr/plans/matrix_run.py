"""Runs the precompilation of a matrix: prepares the requests, looks up artifacts, queues the rest, follows the jobs.

    prepare         builds the request of each cell; reads each model once; errors name the line of the matrix
    matrix_status   asks the registry for the status of all requests, a few hundred per call
    queue_missing   queues only what is missing; uploads each model once
    follow          waits for changes of all open jobs in one call; tolerates an unreachable registry for a while

`MatrixStatus` holds the current status of all cells; a user interface redraws it after each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.attributes import Request
from mxr.artifact.limits import MAX_WATCHED
from mxr.artifact.matching import Match
from mxr.client.retry import OUTAGE, Attempts, until
from mxr.errors import CompileFailedError, MxrError, NotCompiledError, NoWorkerError, TemporaryError, UsageError
from mxr.host_facts import Host
from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import RequestStatus, WatchJobs
from mxr.request import builder, calibration, model
from mxr.request.builder import PreparedRequest
from mxr.request.model import ModelReference
from mxr.util.codec import canonical
from mxr.util.frozen import dataclass
from mxr.workflows import compile as compile_workflow
from mxr.workflows.survey import request_statuses

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.client.registry import Client
    from mxr.matrix import Cell

    from .plan import OnMiss

MIN_INTERVAL = 0.3
"""Minimum seconds between two calls that watch the jobs."""

AVAILABLE, MISSING, QUEUED, RUNNING = "available", "missing", "queued", "compiling"
COMPILED, FAILED, NO_WORKER, CANCELLED, LATER = "compiled", "failed", "no worker", "cancelled", "later"
STATES = (AVAILABLE, COMPILED, RUNNING, QUEUED, MISSING, CANCELLED, LATER, NO_WORKER, FAILED)
OPEN = (QUEUED, RUNNING)


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A cell of the matrix and its request."""

    cell: Cell
    prepared: PreparedRequest

    @property
    def request(self) -> Request:
        """The request with its key."""
        return self.prepared.request


@dataclass(frozen=True, slots=True)
class CellStatus:
    """The status of one cell. `updated`: the `time.monotonic()` of the last update of its job."""

    request: CellRequest
    state: str
    artifact: str | None = None
    job: job_protocol.Job | None = None
    problem: MxrError | None = None
    match: Match | None = None
    updated: float = 0.0

    def running(self) -> float | None:
        """Seconds since its compile started, by the clocks of the registry and this host; None before the start."""
        job = self.job
        if job is None or job.started_at is None:
            return None
        since = max(0.0, job.updated_at - job.started_at)
        return since + time.monotonic() - self.updated if self.state == RUNNING else since


class MatrixStatus:
    """The status of all cells in the order of the matrix; `away` says why the registry is currently unreachable."""

    def __init__(self, cells: Sequence[CellStatus]) -> None:
        self.cells = list(cells)
        self.away: str | None = None

    def counts(self) -> dict[str, int]:
        """The number of cells in each state."""
        found = dict.fromkeys(STATES, 0)
        for cell in self.cells:
            found[cell.state] += 1
        return found

    def jobs(self) -> dict[str, list[int]]:
        """The open jobs, each with the indices of the cells that wait for it."""
        found: dict[str, list[int]] = {}
        for at, cell in enumerate(self.cells):
            if cell.state in OPEN and cell.job is not None:
                found.setdefault(cell.job.id, []).append(at)
        return found


def prepare(
    cells: Iterable[Cell], file: Path, cache: Cache, connect: Callable[[], Client], *, follow_links: bool = False
) -> tuple[CellRequest, ...]:
    """Build the requests of all cells; reads each model once. Errors name the line of the matrix."""
    models: dict[str, ModelReference] = {}
    hashes: dict[Path, str | None] = {}

    def sha256(path: Path | None) -> str | None:
        if path is not None and path not in hashes:
            hashes[path] = calibration.sha256(path)
        return hashes[path] if path is not None else None

    found = []
    for cell in cells:
        name = str(cell.model)
        try:
            if name not in models:
                models[name] = model.find_model(name, cache, connect, follow_links=follow_links)
            prepared = builder.build_request(cell.options, models[name], Host(), sha256_of=sha256)
        except MxrError as problem:
            raise at_line(problem, file, cell.line) from problem
        found.append(CellRequest(cell, prepared))
    return tuple(found)


def at_line(problem: MxrError, file: Path, line: int) -> MxrError:
    """The same error with the file and line of the matrix."""
    context = problem.context | {"file": str(file), "line": line}
    return type(problem)(f"{file}:{line}: {problem.message}", hint=problem.hint, context=context)


def survey(client: Client, requests: Sequence[CellRequest]) -> list[RequestStatus]:
    """The status of each request in the registry. Raises `UnreachableError`."""
    return request_statuses(client, [request.request for request in requests])


def matrix_status(client: Client, requests: Sequence[CellRequest], file: Path) -> MatrixStatus:
    """The status before anything is queued. Raises `UsageError` with the line of a request that is ambiguous."""
    cells = []
    for each, status in zip(requests, survey(client, requests), strict=True):
        if status.problem:
            raise at_line(UsageError(status.problem, hint="State it in the target."), file, each.cell.line)
        state = AVAILABLE if status.artifact else MISSING
        cells.append(CellStatus(each, state, status.artifact, match=status.match))
    return MatrixStatus(cells)


def queue_missing(client: Client, matrix: MatrixStatus, on_miss: OnMiss) -> Iterator[int]:
    """Queue the missing programs in the order of the matrix, and yield the index of each cell after it is queued.

    If the registry refuses a cell, its status records the error and the next cell follows. Raises `UnreachableError` if
    the registry stays unreachable, and what an upload raises.
    """
    jobs: dict[str, CellStatus] = {}
    for at, cell in enumerate(matrix.cells):
        if cell.state != MISSING:
            continue
        text = canonical(cell.request.request.to_json())
        if text not in jobs:
            jobs[text] = _queued(client, cell, on_miss)
        found = jobs[text]
        matrix.cells[at] = replace(found, request=cell.request)
        yield at


def _queued(client: Client, cell: CellStatus, on_miss: OnMiss) -> CellStatus:
    prepared, calibration = cell.request.prepared, cell.request.cell.options.calibration
    order = compile_workflow.CompileOrder.of(prepared, calibration, wait=on_miss.waits, retry=on_miss.retry)
    try:
        job = compile_workflow.request_compile(client, order)
    except NoWorkerError as problem:
        return replace(cell, state=NO_WORKER, problem=problem)
    except TemporaryError as problem:
        return replace(cell, state=LATER, problem=problem)
    return _updated(client, cell, job)


def _updated(client: Client, cell: CellStatus, job: job_protocol.Job) -> CellStatus:
    """The status of a cell after an update of its job."""
    fresh = replace(cell, job=job, updated=time.monotonic())
    if job.state in job_protocol.OPEN:
        return replace(fresh, state=RUNNING if job.state == job_protocol.RUNNING else QUEUED)
    try:
        return replace(fresh, state=COMPILED, artifact=compile_workflow.outcome(client, job))
    except CompileFailedError as problem:
        return replace(fresh, state=FAILED, problem=problem)
    except NotCompiledError as problem:
        return replace(fresh, state=CANCELLED, problem=problem)


def follow(
    client: Client, matrix: MatrixStatus, deadline: float | None, pace: float = compile_workflow.PACE
) -> Iterator[list[int]]:
    """Yield the indices of changed cells after each change, or an empty list every `pace` seconds.

    Ends when no job is open or the deadline (of `time.monotonic()`) has passed. Raises `UnreachableError` if the
    registry does not answer for longer than `retry.OUTAGE` allows.
    """
    attempts = Attempts(until(OUTAGE, longest=2.0))
    while jobs := matrix.jobs():
        left = pace if deadline is None else min(pace, deadline - time.monotonic())
        if left <= 0:
            return
        begun = time.monotonic()
        pause = 0.0
        try:
            changed = attempts.run(partial(_watch, client, matrix, jobs, left))
            matrix.away = None
        except MxrError as problem:
            pause = attempts.pause_after(problem)
            changed, matrix.away = [], problem.message
        yield changed
        time.sleep(max(pause, begun + MIN_INTERVAL - time.monotonic()))


def _watch(client: Client, matrix: MatrixStatus, jobs: Mapping[str, list[int]], wait: float) -> list[int]:
    known = {}
    for id, cells in list(jobs.items())[:MAX_WATCHED]:
        job = matrix.cells[cells[0]].job
        known[id] = job.version if job else 0
    reply = client.watch(WatchJobs(known, round(min(wait, 60.0), 3)))
    changed = []
    for job in reply.jobs:
        for at in jobs.get(job.id, ()):
            matrix.cells[at] = _updated(client, matrix.cells[at], job)
            changed.append(at)
    for id in reply.gone:
        for at in jobs.get(id, ()):
            lost = NotCompiledError(f"The registry no longer has job {id[:12]}.", hint="Run the same command again.")
            matrix.cells[at] = replace(matrix.cells[at], state=CANCELLED, problem=lost)
            changed.append(at)
    return changed
