"""Notify waiting requests of job changes without holding a thread or a database session per request.

    change in this process ──> notify ────────┐
                                              ├──> watcher ──> reads changes from the database ──> wakes subscriptions
    change in another process ──> poll 0.25 s ┘

Each process has one watcher, which runs only while there are subscriptions. A subscriber first subscribes, then reads
the current state, and then waits, so that it misses no change. The watcher reads the document of a changed job once for
all subscribers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from mxr.errors import MxrError
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database, Session, now

from . import lease_endings, leases, tracking, transitions, workers
from .tracking import JobDocument

log = logging.getLogger("mxr_registry")
T = TypeVar("T")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

POLL_INTERVAL = 0.25
"""Seconds between queries for changes by other processes."""

EXPIRY_INTERVAL = 1.0
"""Seconds between checks for expired leases and for jobs that became due."""

SEEN_INTERVAL = 10.0
"""Maximum seconds between updates of `seen_at` of the workers that wait in this process."""

THREADS = 2
"""Threads of the watcher, and as many that read jobs for watches."""


class Subscription:
    """One waiting request, subscribed to a job by its id or to lanes.

    `document` is the latest document of the job. `worker` is the namespace and id of a worker that waits for a job.
    `disconnected`: the client closed the connection, or the process shuts down.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.document: JobDocument | None = None
        self.worker: tuple[str, str] | None = None
        self.disconnected = False
        self._topics: set[str] = set()

    def wake(self, topic: str) -> None:
        """Set the event, and note the topic that it is about."""
        self._topics.add(topic)
        self.event.set()

    def take_topics(self) -> set[str]:
        """Return the topics with an event since the last call."""
        topics, self._topics = self._topics, set()
        return topics

    async def wait(self, seconds: float) -> bool:
        """Wait for an event. Returns False after the timeout, or if the client has disconnected."""
        if not await _wait_for(self.event, seconds):
            return False
        self.event.clear()
        return not self.disconnected


class JobNotifier:
    """The subscriptions of one process, and its watcher."""

    def __init__(self, db: Database, rules: JobRules) -> None:
        self._db, self._rules = db, rules
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Future[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._number = 0
        self._expired_at = self._seen_at = 0.0
        self._moment = 0.0
        self._failing = False
        self.closed = False

    def sequence(self) -> int | None:
        """Return the number of the last change that was delivered, or None while no watcher runs."""
        return self._number if self._task else None

    def notify(self) -> None:
        """Make the watcher read changes now, after a change in this process. Thread-safe."""
        loop = self._loop
        if loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._notified.set)

    def close(self) -> None:
        """End all waits, because the process shuts down. Call this in the thread of the event loop."""
        self.closed = True
        for subscription in self._all_subscriptions():
            subscription.disconnected = True
            subscription.event.set()

    @contextlib.asynccontextmanager
    async def subscribe(self, topics: Iterable[str], receive: Receive) -> AsyncIterator[Subscription]:
        """Subscribe to topics until the end of the block. `receive` is the ASGI callable that reports a disconnect."""
        subscription, names = Subscription(), list(topics)
        subscription.disconnected = self.closed
        for name in names:
            self._subscriptions.setdefault(name, set()).add(subscription)
        client = asyncio.ensure_future(_wait_for_disconnect(receive, subscription))
        try:
            if names:
                # A watcher without subscriptions ends at once, so that this would start one after another.
                await self._ensure_watcher()
            yield subscription
        finally:
            client.cancel()
            for name in names:
                self._subscriptions[name].discard(subscription)
                if not self._subscriptions[name]:
                    del self._subscriptions[name]

    async def run(self, work: Callable[[], T]) -> T:
        """Run a short function in one of the watcher's own threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "mxr-watch")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def read_for_watch(self, read: Callable[[], T]) -> T:
        """Read the jobs of a watch in one of `THREADS` threads of their own.

        In the threads of all requests, some dozens of watches of hundreds of jobs would make the resolves wait.
        """
        if self._readers is None:
            self._readers = ThreadPoolExecutor(THREADS, "mxr-watch-read")
        return await asyncio.get_running_loop().run_in_executor(self._readers, read)

    def _all_subscriptions(self) -> set[Subscription]:
        return {subscription for subscriptions in self._subscriptions.values() for subscription in subscriptions}

    async def _ensure_watcher(self) -> None:
        """Start the watcher unless it is running. Returns when it runs."""
        while self._task is None:
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._start())
            # Shielded: the first subscriber may be cancelled while others wait for the same start.
            await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            self._notified = asyncio.Event()
            self._number, self._moment = await self.run(self._initial_position)
            self._task = asyncio.create_task(self._watch())
        finally:
            self._starting = None

    def _initial_position(self) -> tuple[int, float]:
        with self._db.reading() as session:
            return transitions.latest_number(session), now(session)

    async def _watch(self) -> None:
        try:
            while self._subscriptions:
                await _wait_for(self._notified, POLL_INTERVAL)
                self._notified.clear()
                await self._deliver_or_pause()
        finally:
            # The next subscriber starts another watcher, whatever ended this one.
            self._task = None

    async def _deliver_or_pause(self) -> None:
        try:
            await self._deliver_changes()
            self._failing = False
        except (MxrError, SQLAlchemyError) as problem:
            if not self._failing:
                log.warning("cannot read job changes: %s; retrying every %g s", problem, POLL_INTERVAL)
            self._failing = True
            await asyncio.sleep(POLL_INTERVAL)

    async def _deliver_changes(self) -> None:
        assert self._loop is not None
        expire = self._loop.time() - self._expired_at >= EXPIRY_INTERVAL
        if expire:
            self._expired_at = self._loop.time()
        topics = set(self._subscriptions)
        changes, documents, lanes, self._moment = await self.run(lambda: self._read(topics, expire))
        if self._loop.time() - self._seen_at >= min(SEEN_INTERVAL, self._rules.lost_after / 4):
            self._seen_at = self._loop.time()
            waiting = {each.worker for each in self._all_subscriptions() if each.worker}
            await self.run(lambda: self._mark_seen(waiting))
        # Who subscribed while this was read has seen the state before it.
        while late := [change for change in changes if change.id in self._subscriptions and change.id not in documents]:
            documents |= await self.run(partial(self._documents, late))
        for change in changes:
            self._number = max(self._number, change.touched)
            self._wake(change.id, documents.get(change.id))
            if change.state == "queued":
                lanes.add(f"{change.namespace} {change.lane}")
        for lane in lanes:
            self._wake(lane)
        for topic in {topic for lane in lanes if (topic := leases.cross_topic(lane))}:
            self._wake(topic)

    def _read(
        self, topics: set[str], expire: bool
    ) -> tuple[list[transitions.JobChange], dict[str, JobDocument], set[str], float]:
        """Return the changes, the documents of changed jobs with subscribers, the lanes with due jobs, and the time."""
        if expire:
            lease_endings.expire(self._db, self._rules)
        with self._db.reading() as session:
            changes = transitions.changes_since(session, self._number)
            documents = self._shown(session, [change for change in changes if change.id in topics])
            moment = now(session) if expire else self._moment
            due = transitions.due(session, self._moment, moment) if expire else []
        return changes, documents, {f"{namespace} {lane}" for namespace, lane in due}, moment

    def _documents(self, changes: Iterable[transitions.JobChange]) -> dict[str, JobDocument]:
        with self._db.reading() as session:
            return self._shown(session, changes)

    def _shown(self, session: Session, changes: Iterable[transitions.JobChange]) -> dict[str, JobDocument]:
        return {change.id: tracking.at(session, self._rules, change.seq) for change in changes}

    def _mark_seen(self, waiting: set[tuple[str, str]]) -> None:
        if waiting:
            with self._db.writing() as session:
                workers.mark_all_seen(session, waiting)

    def _wake(self, topic: str, document: JobDocument | None = None) -> None:
        for subscription in self._subscriptions.get(topic, ()):
            subscription.document = document or subscription.document
            subscription.wake(topic)


async def _wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set within this time. Does not clear it."""
    if not event.is_set() and seconds > 0:
        # Not asyncio.timeout, which Python 3.10 lacks. There, asyncio.TimeoutError is not the built-in one.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _wait_for_disconnect(receive: Receive, subscription: Subscription) -> None:
    """Mark the subscription as disconnected when the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    subscription.disconnected = True
    subscription.event.set()
