"""The way of a matrix: cells -> requests -> what is there -> ask for the rest -> follow all jobs together.

    prepare   each model is read and hashed once; a cell that no request can be made of is refused with its line
    look      how all of them stand, some hundred requests in one question
    ask       what is missing, and nothing else; each model is uploaded once, by the first who lacks it
    follow    one question about all open jobs, answered when one of them changes; a registry that is away is borne

A board is what is known of all cells at a moment; whoever shows it draws it anew with each change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.qualities import Request
from mxr.errors import CompileFailed, MxrError, NotCompiled, NoWorker, Temporary, Unreachable, Usage
from mxr.host_facts import Host
from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import MOST_WATCHED, RequestStatus, WatchJobs
from mxr.request import builder, model
from mxr.request.model import ModelReference
from mxr.util.codec import canonical
from mxr.util.frozen import dataclass
from mxr.workflows import compile as compile_workflow

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.client.registry import Client
    from mxr.matrix import Cell
    from mxr.workflows.fetch import Watch as Bytes

AT_ONCE = 200
"""Requests in one survey: a tenth of a second of the registry's time."""

BREATH = 0.3
"""Seconds, at least, between two questions about all jobs."""

THERE, MISSING, QUEUED, RUNNING = "there", "missing", "queued", "compiling"
COMPILED, FAILED, NO_WORKER, CANCELLED, LATER = "compiled", "failed", "no worker", "cancelled", "later"
STATES = (THERE, COMPILED, RUNNING, QUEUED, MISSING, CANCELLED, LATER, NO_WORKER, FAILED)
OPEN = (QUEUED, RUNNING)


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A cell with the request that it stands for."""

    cell: Cell
    subject: ModelReference
    request: Request


@dataclass(frozen=True, slots=True)
class CellStatus:
    """How one cell stands. `heard`: when (of `time.monotonic`) its job was last heard of."""

    wanted: CellRequest
    state: str
    artifact: str | None = None
    job: job_protocol.Job | None = None
    problem: MxrError | None = None
    match: Mapping[str, Any] = field(default_factory=dict)
    heard: float = 0.0

    def running(self) -> float | None:
        """Seconds that its compile took so far, by the registry's clock and ours; None where it did not begin."""
        job = self.job
        if job is None or job.started_at is None:
            return None
        since = max(0.0, job.updated_at - job.started_at)
        return since + time.monotonic() - self.heard if self.state == RUNNING else since


class MatrixStatus:
    """What is known of all cells, in the order of the matrix; `away` says why the registry does not answer now."""

    def __init__(self, places: Sequence[CellStatus]) -> None:
        self.places = list(places)
        self.away: str | None = None

    def counts(self) -> dict[str, int]:
        """How many cells are in each state."""
        found = dict.fromkeys(STATES, 0)
        for place in self.places:
            found[place.state] += 1
        return found

    def jobs(self) -> dict[str, list[int]]:
        """The open jobs, each with the cells that wait for it."""
        found: dict[str, list[int]] = {}
        for at, place in enumerate(self.places):
            if place.state in OPEN and place.job is not None:
                found.setdefault(place.job.id, []).append(at)
        return found


@dataclass(frozen=True, slots=True)
class MissPolicy:
    """What to do on a miss: `ask` queues, `wait` also waits, at most until `deadline` (of `time.monotonic`)."""

    ask: bool = True
    wait: bool = True
    retry: bool = False
    deadline: float | None = None


def prepare(cells: Iterable[Cell], file: Path, cache: Cache, connect: Callable[[], Client]) -> tuple[CellRequest, ...]:
    """The requests of all cells; each model is read once. Raises what a model or a cell raises, with its line."""
    models: dict[str, ModelReference] = {}
    hashes: dict[Path, str | None] = {}

    def sha256(path: Path | None) -> str | None:
        if path is not None and path not in hashes:
            hashes[path] = builder.calibration_sha256(path)
        return hashes[path] if path is not None else None

    found = []
    for cell in cells:
        name = str(cell.model)
        try:
            if name not in models:
                models[name] = model.find(name, cache, connect)
            asked = builder.ask(cell.options, models[name], Host(), sha256_of=sha256)
        except MxrError as problem:
            raise at_line(problem, file, cell.line) from problem
        found.append(CellRequest(cell, models[name], asked.request))
    return tuple(found)


def at_line(problem: MxrError, file: Path, line: int) -> MxrError:
    """The same error, told of a line of the matrix."""
    detail = problem.detail | {"file": str(file), "line": line}
    return type(problem)(f"{file}:{line}: {problem.message}", hint=problem.hint, detail=detail)


def standings(client: Client, wanted: Sequence[CellRequest]) -> list[RequestStatus]:
    """How all of them stand. Raises `Unreachable`."""
    distinct = {canonical(each.request.to_json()): each.request for each in wanted}
    names, found = list(distinct), dict[str, RequestStatus]()
    for begin in range(0, len(names), AT_ONCE):
        some = names[begin : begin + AT_ONCE]
        requests = [distinct[name] for name in some]
        # Who is not there at all is told so at once; who went away between two questions is waited for.
        reply = compile_workflow.patiently(partial(client.survey, requests), compile_workflow.PATIENCE if begin else 0)
        found |= dict(zip(some, reply.standings, strict=True))
    return [found[canonical(each.request.to_json())] for each in wanted]


def look(client: Client, wanted: Sequence[CellRequest], file: Path) -> MatrixStatus:
    """The board before anything is asked for. Raises `Usage` with the line where a request has no one answer."""
    places = []
    for each, standing in zip(wanted, standings(client, wanted), strict=True):
        if standing.problem:
            raise at_line(Usage(standing.problem, hint="Say it in the target."), file, each.cell.line)
        state = THERE if standing.artifact else MISSING
        places.append(CellStatus(each, state, standing.artifact, match=standing.match))
    return MatrixStatus(places)


def ask(client: Client, board: MatrixStatus, plan: MissPolicy, bytes_: Bytes) -> Iterator[int]:
    """Asks for what is missing, in the order of the matrix; gives the place of each cell once it is asked for.

    What one cell is refused for stands in its place, and the others go on. Raises `Unreachable` when the registry
    stays away, and what an upload raises.
    """
    jobs: dict[str, CellStatus] = {}
    for at, place in enumerate(board.places):
        if place.state != MISSING:
            continue
        text = canonical(place.wanted.request.to_json())
        if text not in jobs:
            jobs[text] = _asked(client, place, plan, bytes_)
        found = jobs[text]
        board.places[at] = replace(found, wanted=place.wanted)
        yield at


def _asked(client: Client, place: CellStatus, plan: MissPolicy, bytes_: Bytes) -> CellStatus:
    wanted = place.wanted
    asked = job_protocol.CompileRequest(wanted.request, wait=plan.wait, retry=plan.retry)
    try:
        job = compile_workflow.ask(
            client, compile_workflow.CompileOrder(asked, wanted.subject, wanted.cell.options.calibration), bytes_
        )
    except NoWorker as problem:
        return replace(place, state=NO_WORKER, problem=problem)
    except Temporary as problem:
        return replace(place, state=LATER, problem=problem)
    return _moved(client, place, job)


def _moved(client: Client, place: CellStatus, job: job_protocol.Job) -> CellStatus:
    """The place of a cell after its job said something."""
    fresh = replace(place, job=job, heard=time.monotonic())
    if job.state in job_protocol.OPEN:
        return replace(fresh, state=RUNNING if job.state == job_protocol.RUNNING else QUEUED)
    try:
        return replace(fresh, state=COMPILED, artifact=compile_workflow.outcome(client, job))
    except CompileFailed as problem:
        return replace(fresh, state=FAILED, problem=problem)
    except NotCompiled as problem:
        return replace(fresh, state=CANCELLED, problem=problem)


def follow(
    client: Client, board: MatrixStatus, plan: MissPolicy, pace: float = compile_workflow.PACE
) -> Iterator[list[int]]:
    """The cells that changed, each time some did or `pace` seconds went by, until no job is open or time is up.

    A registry that goes away is asked again for `waiting.PATIENCE` seconds. Raises `Unreachable` then.
    """
    heard = time.monotonic()
    while jobs := board.jobs():
        left = pace if plan.deadline is None else min(pace, plan.deadline - time.monotonic())
        if left <= 0:
            return
        begun = time.monotonic()
        try:
            changed = _heard(client, board, jobs, left)
            heard, board.away = time.monotonic(), None
        except (Unreachable, Temporary) as problem:
            if time.monotonic() - heard > compile_workflow.PATIENCE + pace:
                raise
            changed, board.away = [], problem.message
        yield changed
        time.sleep(max(0.0, begun + BREATH - time.monotonic()))


def _heard(client: Client, board: MatrixStatus, jobs: Mapping[str, list[int]], wait: float) -> list[int]:
    known = {}
    for id, cells in list(jobs.items())[:MOST_WATCHED]:
        job = board.places[cells[0]].job
        known[id] = job.version if job else 0
    told = client.watch(WatchJobs(known, round(min(wait, 60.0), 3)))
    changed = []
    for job in told.jobs:
        for at in jobs.get(job.id, ()):
            board.places[at] = _moved(client, board.places[at], job)
            changed.append(at)
    for id in told.gone:
        for at in jobs.get(id, ()):
            lost = NotCompiled(f"The registry has no job {id[:12]} any longer.", hint="Run the same command again.")
            board.places[at] = replace(board.places[at], state=CANCELLED, problem=lost)
            changed.append(at)
    return changed
