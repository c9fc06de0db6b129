"""The slots of uploads: so many at one time, a share for each client, a bounded time and a bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from mxr.errors import InterruptionError
from mxr.util.hashing import CHUNK
from mxr_registry.routes import blobs
from mxr_registry.server.fair_places import CHUNKS_EACH, MAX_BUFFERED_BYTES, SLOTS, SLOWEST, Requester, UploadSlots


async def upload(slots: UploadSlots, client: Requester, running: list[str], end: asyncio.Event) -> None:
    async with slots.slot(client, 1000):
        running.append(client.principal)
        await end.wait()


async def settle() -> None:
    """Let every task run until it waits for another."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_client_leaves_slots_to_others() -> None:
    """By its address three quarters, by its token half, and an eighth is for workers."""

    async def run() -> None:
        slots, running, end = UploadSlots(60, 8), list[str](), asyncio.Event()

        def start(*clients: Requester) -> list[asyncio.Task[None]]:
            return [asyncio.create_task(upload(slots, each, running, end)) for each in clients]

        tasks = start(*(Requester(f"10.0.0.{n}", "eve") for n in range(20)))
        await settle()
        assert running == ["eve"] * 4
        # One IPv6 network is one client.
        tasks += start(*(Requester(f"2001:db8::{n}", f"{n}") for n in range(9)))
        await settle()
        assert running[4:] == ["0", "1", "2"]
        tasks += start(Requester("10.0.1.1", "alice"), Requester("10.0.1.1", "worker", works=True))
        await settle()
        assert running[7:] == ["worker"]
        end.set()
        await asyncio.gather(*tasks)
        assert len(running) == 31 and not slots._places._requests and not slots._places._limiters

    asyncio.run(run())


def test_two_addresses_do_not_stop_the_uploads_of_others() -> None:
    """48 slow uploads from one address and 16 from another, with one token, held all 64 slots."""

    async def run() -> None:
        slots, running, end = UploadSlots(60), list[str](), asyncio.Event()
        eve = [Requester("127.0.0.2" if n < 48 else "127.0.0.3", "eve") for n in range(64)]
        tasks = [
            asyncio.create_task(upload(slots, each, running, end)) for each in (*eve, Requester("127.0.0.1", "bob"))
        ]
        await settle()
        assert running.count("eve") == SLOTS // 2 and "bob" in running
        end.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_an_upload_has_a_deadline_that_follows_its_size() -> None:
    async def run() -> None:
        slots, client = UploadSlots(0.01, 1), Requester("10.0.0.1", "eve")
        with pytest.raises(InterruptionError, match="took longer than 0 s, the limit for 1000 bytes"):
            async with slots.slot(client, 1000):
                await asyncio.sleep(60)
        async with slots.slot(client, SLOWEST):
            await asyncio.sleep(0.02)

    asyncio.run(run())


def test_an_upload_that_is_given_up_returns_its_slot() -> None:
    async def run() -> None:
        slots, running, end = UploadSlots(60, 1), list[str](), asyncio.Event()
        first, second = (
            asyncio.create_task(upload(slots, Requester("10.0.0.1", "eve"), running, end)) for _ in range(2)
        )
        await settle()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        end.set()
        await second
        assert len(running) == 2 and not slots._places._limiters

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, 1, SLOTS // 4, SLOTS])
def test_the_chunks_of_all_uploads_fit_their_memory(count: int) -> None:
    async def run() -> None:
        slots = UploadSlots(60)
        async with AsyncExitStack() as stack:
            end = asyncio.Event()
            running: list[str] = []
            tasks = [
                asyncio.create_task(upload(slots, Requester(f"10.0.0.{n}", f"{n}", works=True), running, end))
                for n in range(count)
            ]
            stack.callback(end.set)
            await settle()
            assert len(running) == count
            assert slots.chunk == CHUNK or count > 25
            assert max(1, count) * CHUNKS_EACH * slots.chunk <= MAX_BUFFERED_BYTES
            assert slots.chunk >= 256 << 10
        await asyncio.gather(*tasks)

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "sizes"), [(0.0, [CHUNK, CHUNK, 1000]), (6.0, [100_000] * 20 + [98_152])])
def test_a_slow_client_is_written_in_small_chunks(
    monkeypatch: pytest.MonkeyPatch, seconds: float, sizes: list[int]
) -> None:
    """`seconds` pass between two parts of the body: an S3 server closes a connection that is silent for long."""
    clock = [0.0]
    monkeypatch.setattr(blobs, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    left = [2 * CHUNK + 1000]

    async def stream() -> AsyncIterator[bytes]:
        while left[0]:
            clock[0] += seconds
            part = min(left[0], 100_000 if seconds else CHUNK)
            left[0] -= part
            yield bytes(part)

    async def run() -> list[int]:
        request: Any = SimpleNamespace(stream=stream)
        return [len(chunk) async for chunk in blobs._chunks(request, UploadSlots(60))]

    assert asyncio.run(run()) == sizes
