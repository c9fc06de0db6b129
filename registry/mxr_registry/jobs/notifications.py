"""Waiting for news of jobs, holding neither a thread nor a database session.

    change here ──> kick ──┐
                           ├──> the one watcher of the process ──> asks for larger numbers ──> wakes who listens
    change elsewhere  0.25 s ──┘

The watcher works only while somebody listens. Whoever listens looks first and then waits, so that no news is missed. A
job's document is read once for all who wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from mxr.errors import MxrError
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database, now

from . import lease_endings, leases, tracking, transitions, workers
from .tracking import JobDocument

log = logging.getLogger("mxr_registry")
T = TypeVar("T")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

LOOK = 0.25
"""Seconds between looks for what other processes changed."""

TIDY = 1.0
"""Seconds between looks for lost leases, and for jobs whose time has come."""

PRESENT = 10.0
"""Seconds, at most, between writing down which workers wait here."""


class Subscription:
    """One who listens: to a job by its id, or to a lane.

    `shown` is the job's latest document, `gone` a lost client, `worker` the namespace and id of a worker that waits.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.shown: JobDocument | None = None
        self.worker: tuple[str, str] | None = None
        self.gone = False

    async def news(self, seconds: float) -> bool:
        """Wait for news; whether there was any in time, and the client is still there."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.event.wait()
        except TimeoutError:
            return False
        self.event.clear()
        return not self.gone


class JobNotifier:
    """The news of one process: who listens to what, and the watcher."""

    def __init__(self, db: Database, rules: JobRules) -> None:
        self._db, self._rules = db, rules
        self._ears: dict[str, set[Subscription]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Future[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._number = 0
        self._tidied = self._counted = 0.0
        self._moment = 0.0
        self._failing = False
        self.closed = False

    def mark(self) -> int | None:
        """A number that changes with the news that were spread; None while nobody watches."""
        return self._number if self._task else None

    def kick(self) -> None:
        """Something changed in this process: look now. May be called from any thread."""
        loop = self._loop
        if loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._kicked.set)

    def close(self) -> None:
        """The process is about to end: nobody waits any longer. To be called in the loop's thread."""
        self.closed = True
        for ear in {ear for ears in self._ears.values() for ear in ears}:
            ear.gone = True
            ear.event.set()

    @contextlib.asynccontextmanager
    async def listen(self, topics: Iterable[str], receive: Receive) -> AsyncIterator[Subscription]:
        """Listen to these topics until the end of the block; `receive` tells when the client is gone."""
        ear, names = Subscription(), list(topics)
        ear.gone = self.closed
        for name in names:
            self._ears.setdefault(name, set()).add(ear)
        client = asyncio.ensure_future(_left(receive, ear))
        try:
            await self._watched()
            yield ear
        finally:
            client.cancel()
            for name in names:
                self._ears[name].discard(ear)
                if not self._ears[name]:
                    del self._ears[name]

    async def run(self, work: Callable[[], T]) -> T:
        """Do short work in one of the watcher's own threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(2, "mxr-watch")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _watched(self) -> None:
        """Returns when a watcher runs that began before."""
        while self._task is None:
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._start())
            # Shielded: the first one who came may leave while others wait for the same start.
            await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            self._kicked = asyncio.Event()
            self._number, self._moment = await self.run(self._begin)
            self._task = asyncio.create_task(self._watch())
        finally:
            self._starting = None

    def _begin(self) -> tuple[int, float]:
        with self._db.reading() as session:
            return transitions.latest(session), now(session)

    async def _watch(self) -> None:
        while self._ears:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._kicked.wait()
            self._kicked.clear()
            try:
                await self._look()
                self._failing = False
            except (MxrError, SQLAlchemyError) as problem:
                if not self._failing:
                    log.warning("looking for news of jobs: %s; trying again and again", problem)
                self._failing = True
                await asyncio.sleep(LOOK)
        self._task = None

    async def _look(self) -> None:
        assert self._loop is not None
        tidy = self._loop.time() - self._tidied >= TIDY
        if tidy:
            self._tidied = self._loop.time()
        wanted = set(self._ears)
        found, documents, lanes, self._moment = await self.run(lambda: self._read(wanted, tidy))
        if self._loop.time() - self._counted >= min(PRESENT, self._rules.lost_after / 4):
            self._counted = self._loop.time()
            staff = {ear.worker for ears in self._ears.values() for ear in ears if ear.worker}
            await self.run(lambda: self._present(staff))
        for each in found:
            self._number = max(self._number, each.touched)
            self._wake(each.id, documents.get(each.id))
            if each.state == "queued":
                lanes.add(f"{each.namespace} {each.lane}")
        for lane in lanes:
            self._wake(lane)
        for wide in {wide for lane in lanes if (wide := leases.wide_topic(lane))}:
            self._wake(wide)

    def _read(
        self, wanted: set[str], tidy: bool
    ) -> tuple[list[transitions.JobChange], dict[str, JobDocument], set[str], float]:
        """What changed, the documents of those jobs that somebody waits for, and the lanes whose jobs are due."""
        if tidy:
            lease_endings.expire(self._db, self._rules)
        with self._db.reading() as session:
            found = transitions.since(session, self._number)
            documents = {each.id: tracking.at(session, self._rules, each.seq) for each in found if each.id in wanted}
            moment = now(session) if tidy else self._moment
            due = transitions.due(session, self._moment, moment) if tidy else []
        return found, documents, {f"{namespace} {lane}" for namespace, lane in due}, moment

    def _present(self, staff: set[tuple[str, str]]) -> None:
        if staff:
            with self._db.writing() as session:
                workers.present(session, staff)

    def _wake(self, topic: str, shown: JobDocument | None = None) -> None:
        for ear in self._ears.get(topic, ()):
            ear.shown = shown or ear.shown
            ear.event.set()


async def _left(receive: Receive, ear: Subscription) -> None:
    """Marks the ear of a client that closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    ear.gone = True
    ear.event.set()
