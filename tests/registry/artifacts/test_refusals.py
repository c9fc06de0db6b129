"""A refused file costs nothing when it is sent again, and one client cannot hold all inspectors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mxr.errors import DamagedBlobError, DamagedError, TemporaryError
from mxr_registry.artifacts.refusals import (
    MAX_REFUSALS,
    SECONDS,
    SECONDS_AFTER_TIMEOUT,
    TIMED_OUT,
    RefusalMemory,
)
from mxr_registry.routes.checking_pool import CheckingPool, client_of


def raising(problem: Exception, calls: list[int]) -> Callable[[], Any]:
    def read() -> Any:
        calls.append(1)
        raise problem

    return read


@pytest.mark.parametrize(("context", "seconds"), [({}, SECONDS), ({TIMED_OUT: True}, SECONDS_AFTER_TIMEOUT)])
def test_a_refusal_is_remembered_for_its_time(context: dict[str, Any], seconds: float) -> None:
    moment, calls = [1000.0], list[int]()
    memory = RefusalMemory(lambda: moment[0])
    for _ in range(3):
        with pytest.raises(DamagedError, match="not a model"):
            memory.run("a", raising(DamagedError("It is not a model.", context=context), calls))
    assert calls == [1] and memory.run("b", lambda: 7) == 7
    moment[0] += seconds
    assert memory.run("a", lambda: 8) == 8


def test_what_may_pass_is_not_remembered() -> None:
    memory, calls = RefusalMemory(), list[int]()
    for problem in (DamagedBlobError("x"), TemporaryError("x"), MemoryError()):
        for _ in range(2):
            with pytest.raises(type(problem)):
                memory.run("a", raising(problem, calls))
    assert len(calls) == 6


def test_refusals_are_bounded_and_the_oldest_go_first() -> None:
    memory, calls = RefusalMemory(), list[int]()
    for name in [*map(str, range(MAX_REFUSALS + 1)), "1", "0"]:
        with pytest.raises(DamagedError):
            memory.run(name, raising(DamagedError("x"), calls))
    assert len(calls) == MAX_REFUSALS + 2


def test_a_refused_model_is_read_once(server: Any) -> None:
    stated = server.registration(b"<!doctype html>" * 99)
    first, second = (server.error("POST", "/v1/models", stated) for _ in range(2))
    assert first.pop("request_id") != second.pop("request_id")
    assert first == second and first["code"] == "damaged"
    server.register_model()


class Calls:
    """Calls in a pool that run until they are told to end."""

    def __init__(self, pool: CheckingPool) -> None:
        self.pool, self.running, self.end = pool, list[str](), threading.Event()

    def _work(self, client: str) -> str:
        self.running.append(client)
        self.end.wait(60)
        return client

    def start(self, client: str, count: int, turn: str | None = None) -> list[asyncio.Task[str]]:
        return [asyncio.ensure_future(self.pool.run(client, self._work, client, turn=turn)) for _ in range(count)]

    async def begun(self, count: int) -> None:
        while len(self.running) < count:
            await asyncio.sleep(0.001)


def test_one_client_holds_neither_all_threads_nor_all_places() -> None:
    async def run() -> None:
        calls = Calls(CheckingPool(4, 16))
        greedy = calls.start("10.0.0.1", 15)
        await calls.begun(3)
        other = calls.start("10.0.0.2", 2)
        await calls.begun(4)
        assert sorted(calls.running) == ["10.0.0.1"] * 3 + ["10.0.0.2"]
        with pytest.raises(TemporaryError) as caught:
            await calls.start("10.0.0.1", 1)[0]
        assert caught.value.retry_after
        more = calls.start("10.0.0.3", 3)
        await asyncio.sleep(0)
        with pytest.raises(TemporaryError):
            await calls.start("10.0.0.4", 1)[0]
        calls.end.set()
        done = await asyncio.gather(*greedy, *other, *more)
        assert done == ["10.0.0.1"] * 15 + ["10.0.0.2"] * 2 + ["10.0.0.3"] * 3
        assert calls.pool._shares == {} and calls.pool._turns == {}

    asyncio.run(run())


def test_who_waits_for_own_calls_does_not_hold_the_turn_of_others() -> None:
    async def run() -> None:
        calls = Calls(CheckingPool(2, 20))
        first = calls.start("10.0.0.1", 1)
        await calls.begun(1)
        waiting = calls.start("10.0.0.1", 1, turn="model")
        other = calls.start("10.0.0.2", 1, turn="model")
        await calls.begun(2)
        assert calls.running == ["10.0.0.1", "10.0.0.2"]
        calls.end.set()
        await asyncio.gather(*first, *waiting, *other)

    asyncio.run(run())


def test_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:10.0.0.1") != client_of("::ffff:10.0.0.2")
    assert client_of("10.0.0.1") == "10.0.0.1" and client_of("") == ""
