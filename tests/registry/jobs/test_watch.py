"""A watch of many jobs reads what changed, and not all of them at each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from mxr.protocol.surveys import WatchJobs
from mxr_registry.access.scopes import Caller
from mxr_registry.jobs.notifications import Subscription
from mxr_registry.jobs.survey import WatchResult
from mxr_registry.routes import pipelines
from mxr_registry.server.memory_budget import RESERVATION, MemoryBudget, Reservation

JOBS = {f"{number:032x}": 5 for number in range(800)}


class Notifier:
    """Hands out one subscription, which the test wakes."""

    def __init__(self) -> None:
        self.subscription = Subscription()

    @asynccontextmanager
    async def subscribe(self, topics: Mapping[str, int], receive: Any) -> AsyncIterator[Subscription]:
        assert set(topics) == set(JOBS)
        yield self.subscription

    async def read_for_watch(self, read: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, read)


async def watch(monkeypatch: pytest.MonkeyPatch, wakes: list[tuple[list[str], WatchResult]]) -> tuple[list[int], Any]:
    """The number of jobs that each read was about, and the reply, where these jobs wake the watch one after another."""
    notifier, reads = Notifier(), list[int]()
    everything = WatchResult({"jobs": [], "gone": []}, False, frozenset(JOBS))
    waiting = list(wakes)

    def changed(services: Any, namespace: str, known: Mapping[str, int]) -> WatchResult:
        reads.append(len(known))
        result = everything
        if len(reads) > 2:
            ids, result = waiting.pop(0)
            assert known == {id: JOBS[id] for id in ids}
        if len(reads) > 1 and waiting:
            loop.call_soon_threadsafe(lambda ids: [*map(notifier.subscription.wake, ids)], waiting[0][0])
        return result

    loop = asyncio.get_running_loop()

    async def admitted(request: Any) -> None:
        """The token is valid."""

    monkeypatch.setattr(pipelines, "_changed", changed)
    monkeypatch.setattr(pipelines, "admit_again", admitted)
    budget = MemoryBudget(1 << 20)
    message = WatchJobs(JOBS, 5 if wakes else 0.01)

    class Request:
        receive = None
        scope: ClassVar = {RESERVATION: Reservation(budget)}

    services = SimpleNamespace(notifier=notifier)
    reply = await pipelines.watch_jobs(message, Request(), services, Caller("local", "default", frozenset(), ""))
    assert budget.held == len(JOBS) * pipelines.TOPIC, "what it watches counts until its request is answered"
    return reads, reply


def test_a_wake_reads_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = list(JOBS)[:2]
    nothing = WatchResult({}, False, frozenset([first]))
    news = WatchResult({"jobs": [1], "gone": []}, True, frozenset())
    reads, reply = asyncio.run(watch(monkeypatch, [([first], nothing), ([first, second], nothing), ([second], news)]))
    assert reads == [800, 800, 1, 2, 1] and reply == {"jobs": [1], "gone": []}


def test_a_watch_ends_in_time_and_when_nothing_can_change_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, reply = asyncio.run(watch(monkeypatch, []))
    assert reads == [800, 800] and reply == {"jobs": [], "gone": []}
    closed = WatchResult({"jobs": [], "gone": []}, False, frozenset())
    reads, reply = asyncio.run(watch(monkeypatch, [(list(JOBS), closed)]))
    assert reads == [800, 800, 800] and reply == {"jobs": [], "gone": []}
