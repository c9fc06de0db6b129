"""A refused file costs nothing when it is sent again, and one client cannot hold all inspectors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from registry.registry_client import RegistryUnderTest

from mxr.errors import DamagedBlobError, DamagedError, TemporaryError, TooManyRequestsError
from mxr_registry.artifacts.inspection import (
    MAX_REFUSALS,
    SECONDS,
    SECONDS_AFTER_TIMEOUT,
    TIMED_OUT,
    RefusalMemory,
)
from mxr_registry.server.fair_places import CheckingPool, Requester, network_of


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


def test_a_refused_model_is_read_once(server: RegistryUnderTest) -> None:
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

    def start(self, address: str, count: int, turn: str | None = None, name: str = "") -> list[asyncio.Task[str]]:
        """Start calls of one address, each with a token of its own unless it has a name."""
        clients = [Requester(address, name or f"{address} {number}") for number in range(count)]
        return [asyncio.ensure_future(self.pool.run(each, self._work, address, turn=turn)) for each in clients]

    async def begun(self, count: int) -> None:
        while len(self.running) < count:
            await asyncio.sleep(0.001)


def test_one_client_holds_neither_all_threads_nor_all_places() -> None:
    async def run() -> None:
        calls = Calls(CheckingPool(4, 16))
        greedy = calls.start("10.0.0.1", 15)
        await calls.begun(3)
        more = calls.start("10.0.0.2", 3, name="eve")
        with pytest.raises(TooManyRequestsError) as caught:
            await calls.start("10.0.0.1", 1)[0]
        assert caught.value.retry_after
        with pytest.raises(TemporaryError, match="The registry has too many"):
            await calls.start("10.0.0.4", 1)[0]
        # A place and a thread are kept for workers.
        worker = asyncio.ensure_future(calls.pool.run(Requester("10.0.0.5", "w", works=True), calls._work, "10.0.0.5"))
        await calls.begun(4)
        assert calls.running == ["10.0.0.1"] * 3 + ["10.0.0.5"]
        calls.end.set()
        done = await asyncio.gather(*greedy, *more, worker)
        assert done == ["10.0.0.1"] * 15 + ["10.0.0.2"] * 3 + ["10.0.0.5"]
        assert not calls.pool._places._limiters and not calls.pool._places._requests and calls.pool._turns == {}

    asyncio.run(run())


def test_a_token_has_half_from_whatever_addresses() -> None:
    async def run() -> None:
        calls = Calls(CheckingPool(4, 16))
        greedy = [task for n in range(10) for task in calls.start(f"10.0.0.{n}", 1, name="eve")]
        await calls.begun(2)
        with pytest.raises(TooManyRequestsError):
            await calls.start("10.0.1.1", 1, name="eve")[0]
        other = calls.start("10.0.1.1", 1)
        await calls.begun(3)
        assert calls.running[2:] == ["10.0.1.1"]
        calls.end.set()
        await asyncio.gather(*greedy, *other)

    asyncio.run(run())


def test_who_waits_for_own_calls_does_not_hold_the_turn_of_others() -> None:
    async def run() -> None:
        calls = Calls(CheckingPool(2, 20))
        first = calls.start("10.0.0.1", 1, name="one")
        await calls.begun(1)
        waiting = calls.start("10.0.0.1", 1, turn="model", name="one")
        other = calls.start("10.0.0.2", 1, turn="model")
        await calls.begun(2)
        assert calls.running == ["10.0.0.1", "10.0.0.2"]
        calls.end.set()
        await asyncio.gather(*first, *waiting, *other)

    asyncio.run(run())


def test_addresses_of_one_network_of_ipv6_are_one_client() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2")
    assert network_of("10.0.0.1") == "10.0.0.1" and network_of("") == ""
