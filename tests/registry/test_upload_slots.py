"""The slots of uploads: so many at one time, three quarters for one client, and a bounded memory of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from mxr.util.hashing import CHUNK
from mxr_registry.routes import uploads
from mxr_registry.routes.upload_slots import CHUNKS_EACH, MAX_BUFFERED_BYTES, SLOTS, UploadSlots


async def upload(slots: UploadSlots, address: str, running: list[str], end: asyncio.Event) -> None:
    async with slots.slot(address):
        running.append(address)
        await end.wait()


async def settle() -> None:
    """Let every task run until it waits for another."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_one_client_leaves_slots_to_others() -> None:
    async def run() -> None:
        slots, running, end = UploadSlots(8), list[str](), asyncio.Event()
        tasks = [asyncio.create_task(upload(slots, "10.0.0.1", running, end)) for _ in range(20)]
        await settle()
        assert running == ["10.0.0.1"] * 6
        # One IPv6 network is one client.
        others = [asyncio.create_task(upload(slots, f"2001:db8::{n}", running, end)) for n in range(9)]
        await settle()
        assert len(running) == 8
        end.set()
        await asyncio.gather(*tasks, *others)
        assert len(running) == 29 and slots._shares == {}

    asyncio.run(run())


def test_an_upload_that_is_given_up_returns_its_slot() -> None:
    async def run() -> None:
        slots, running, end = UploadSlots(1), list[str](), asyncio.Event()
        first, second = (asyncio.create_task(upload(slots, "10.0.0.1", running, end)) for _ in range(2))
        await settle()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        end.set()
        await second
        assert len(running) == 2 and slots._shares == {}

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, 1, SLOTS // 4, SLOTS])
def test_the_chunks_of_all_uploads_fit_their_memory(count: int) -> None:
    async def run() -> None:
        slots = UploadSlots()
        async with AsyncExitStack() as stack:
            end = asyncio.Event()
            running: list[str] = []
            tasks = [asyncio.create_task(upload(slots, f"10.0.0.{n}", running, end)) for n in range(count)]
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
    monkeypatch.setattr(uploads, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    left = [2 * CHUNK + 1000]

    async def stream() -> AsyncIterator[bytes]:
        while left[0]:
            clock[0] += seconds
            part = min(left[0], 100_000 if seconds else CHUNK)
            left[0] -= part
            yield bytes(part)

    async def run() -> list[int]:
        request: Any = SimpleNamespace(stream=stream)
        return [len(chunk) async for chunk in uploads._chunks(request, UploadSlots())]

    assert asyncio.run(run()) == sizes
