"""Waiting: long polls and streams that hear at once, over several registries and over their end."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.scale import crowd
from harness.tokens import authorization
from harness.waiting import PendingRequest
from harness.workers import claim_of, sign_off
from registry.registry_client import Parts, Start, marked, on_sqlite

from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database
from mxr_registry.jobs.notifications import JobNotifier


def own(parts: Parts, name: str) -> dict[str, Any]:
    return parts.ref_key(env=marked(name))


def stream(registry: Any, path: str, **headers: str) -> Iterator[tuple[str, Any, str]]:
    """Server-sent events as (kind, document, id)."""
    headers |= authorization(registry.url)
    reply = registry.http.request("GET", registry.url + path, preload_content=False, headers=headers)
    assert reply.status == 200, reply.data
    found: dict[str, str] = {}
    buffer = b""
    for data in reply.stream(1):
        buffer += data
        if not buffer.endswith(b"\n"):
            continue
        line, buffer = buffer.decode().rstrip("\n"), b""
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "data" in found:
            yield found["event"], json.loads(found["data"]), found["id"]
            found = {}
    reply.release_conn()


def test_a_waiter_hears_of_a_change(registry: Any, parts: Parts) -> None:
    """Long before the end of its wait; how soon is measured in bench/."""
    worker = registry.register_worker()
    job = registry.submit(own(parts, "hears"))
    lease = registry.claim(worker)
    for phase in [f"phase {n}" for n in range(3)]:
        version = registry.job(job["id"])["version"]
        waiting = registry.pending("GET", f"/v1/jobs/{job['id']}?wait=60&version={version}")
        registry.handled(waiting)
        registry.heartbeat(lease, phase=phase)
        found = waiting.reply()[1]
        # At the end of the wait it would be told the same: the registry reads the job again then.
        assert found["phase"] == phase and found["version"] > version
    registry.finish(lease)


def test_who_subscribes_while_changes_are_read_hears_of_them(
    registry: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = registry.register_worker()
    job = registry.submit(own(parts, "late"))
    lease = registry.claim(worker)
    db = Database(registry.rows.url)
    notifier = JobNotifier(db, JobRules())
    read, begun, go = notifier._read, threading.Event(), threading.Event()

    def slow_read(*arguments: Any) -> Any:
        begun.set()
        assert go.wait(30)
        return read(*arguments)

    async def connected() -> Any:
        await asyncio.Event().wait()

    async def hear() -> Any:
        async with notifier.subscribe(["another"], connected):
            monkeypatch.setattr(notifier, "_read", slow_read)
            await asyncio.to_thread(begun.wait, 30)
            async with notifier.subscribe([job["id"]], connected) as late:
                await asyncio.to_thread(registry.heartbeat, lease, phase="heard")
                go.set()
                assert await late.wait(30)
                return late.document

    document = asyncio.run(hear())
    assert document is not None and document.job["phase"] == "heard"
    db.close()
    registry.finish(lease)


def test_a_poll_does_not_wait_where_there_is_news_or_the_job_is_closed(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "news"))
    path = f"/v1/jobs/{job['id']}?wait=60"
    assert registry.pending("GET", f"{path}&version={job['version'] - 1}").reply(30)[1]["id"] == job["id"]
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    closed = registry.pending("GET", f"{path}&version=9007199254740991").reply(30)[1]
    assert closed["state"] == "cancelled"
    assert registry.error("GET", f"/v1/jobs/{job['id']}?wait=61")["code"] == "usage"


@on_sqlite
def test_a_poll_ends_with_its_time(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "quiet"))
    begun = time.monotonic()
    assert registry.ok("GET", f"/v1/jobs/{job['id']}?wait=0.5")["version"] == job["version"]
    assert time.monotonic() - begun > 0.45, "not before"
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")


def test_a_queued_job_says_whom_it_lacks(registry: Any, parts: Parts) -> None:
    """Also to one who polls for a change: that a worker left, or came, is none of the job."""
    worker = registry.register_worker("gpu", parts.gpu_capabilities())
    job = registry.submit(parts.gpu_key(), require_worker=True, constraints={"num_cu": 120})
    assert job["waiting_for"] is None
    waiting = registry.pending("GET", f"/v1/jobs/{job['id']}?wait=1&version={job['version']}")
    sign_off(registry.ok, worker)
    needed = "a worker for gpu gfx908, 120 CUs, with ROCm 7.2 and MIGraphX 2.15"
    found = waiting.reply()[1]
    assert (found["state"], found["version"], found["waiting_for"]) == ("queued", job["version"], needed)
    assert registry.submit(parts.gpu_key(), constraints={"num_cu": 120})["waiting_for"] == needed
    registry.register_worker("smaller", parts.gpu_capabilities(num_cu=104))
    assert registry.job(job["id"])["waiting_for"] == needed
    lease = registry.claim(registry.register_worker("gpu", parts.gpu_capabilities()))
    assert lease["job"] == job["id"] and registry.job(job["id"])["waiting_for"] is None


@on_sqlite
def test_a_declared_pool_is_somebody(start: Start, parts: Parts) -> None:
    pool = '[[pools]]\nname="mi100"\ntargets=[{arch="gfx908"}]\ntoolchain={rocm="7.2.1", migraphx="2.15.0"}\n'
    registry = start(config=pool)
    registry.register_model()
    assert registry.submit(parts.gpu_key())["waiting_for"] is None
    assert "the ref target with MIGraphX 2.16" in registry.submit(own(parts, "no_pool"))["waiting_for"]


def test_a_waiting_worker_gets_a_new_job(registry: Any, parts: Parts) -> None:
    waiting = registry.waiting_claim(registry.register_worker())
    job = registry.submit(own(parts, "waiting_worker"))
    assert registry.heard(waiting)["job"] == job["id"]


def test_a_worker_whose_connection_ended_is_given_nothing(registry: Any, parts: Parts) -> None:
    waiting = registry.waiting_claim(registry.register_worker())
    waiting.close()
    for _ in range(4):
        registry.ok("GET", "/v1/jobs?limit=1")
    job = registry.submit(own(parts, "left"))
    job = registry.ok("GET", f"/v1/jobs/{job['id']}?wait=1&version={job['version']}")
    assert job["state"] == "queued" and job["attempts"] == 0


def test_a_stream_tells_all_until_the_end(registry: Any, parts: Parts) -> None:
    worker = registry.register_worker()
    job = registry.submit(own(parts, "stream"))
    lease = registry.claim(worker)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(stream(registry, f"/v1/jobs/{job['id']}/events")))
        for n in range(3):
            registry.heartbeat(lease, phase=f"step {n}", log=f"doing {n}\n")
        registry.finish(lease)
        found = reading.result()
    log = "".join(document["text"] for kind, document, _ in found if kind == "log")
    assert log == "== attempt 1 on one ==\ndoing 0\ndoing 1\ndoing 2\n"
    states = [document["state"] for kind, document, _ in found if kind == "event"]
    assert states == ["queued", "running", "done"]
    last = [document for kind, document, _ in found if kind == "job"][-1]
    assert last == registry.job(job["id"])
    middle = next(id for kind, document, id in found if kind == "log")
    rest = list(stream(registry, f"/v1/jobs/{job['id']}/events", **{"Last-Event-ID": middle}))
    assert log.endswith("".join(document["text"] for kind, document, _ in rest if kind == "log"))
    assert [document["state"] for kind, document, _ in rest if kind == "event"][-1] == "done"


def test_two_registries_on_one_database(start: Start, parts: Parts, tmp_path: Any) -> None:
    left = start()
    right = start(data=left.data)
    left.register_model()
    key = own(parts, "two")
    with ThreadPoolExecutor(40) as pool:
        ids = set(pool.map(lambda n: (left, right)[n % 2].submit(key)["id"], range(40)))
    assert len(ids) == 1
    id = ids.pop()
    worker = left.register_worker()
    with ThreadPoolExecutor(2) as pool:
        leases = list(pool.map(lambda each: each.claim(worker), (left, right)))
    (lease,) = (lease for lease in leases if lease)
    waiting = right.pending("GET", f"/v1/jobs/{id}?wait=60&version={right.job(id)['version']}")
    right.handled(waiting)
    left.heartbeat(lease, phase="heard elsewhere")
    assert waiting.reply()[1]["phase"] == "heard elsewhere"
    assert right.finish(lease)["state"] == "done"
    assert left.job(id)["state"] == "done"


def test_a_job_asked_here_reaches_a_worker_that_waits_there(start: Start, parts: Parts) -> None:
    left = start()
    right = start(data=left.data)
    left.register_model()
    waiting = right.waiting_claim(right.register_worker())
    job = left.submit(own(parts, "here_there"))
    assert right.heard(waiting)["job"] == job["id"]


def test_many_who_wait_survive_a_registry_that_is_killed(start: Start, parts: Parts) -> None:
    registry, many = start(), crowd(50)
    registry.register_model()
    job = registry.submit(own(parts, "killed"))
    lease = registry.claim(registry.register_worker())
    path = f"/v1/jobs/{job['id']}?wait=60&version={2**53 - 1}"

    def wait() -> list[PendingRequest]:
        found = [registry.pending("GET", path) for _ in range(many)]
        registry.handled(*found)
        return found

    waiting = wait()
    registry.kill9()
    for each in waiting:
        with pytest.raises((OSError, http.client.HTTPException)):
            each.reply()
    registry.start()
    waiting = wait()
    assert registry.heartbeat(lease)["cancelled"] is False, "the lease outlives the registry"
    done = registry.finish(lease)
    assert {each.reply()[1]["artifact"] for each in waiting} == {done["artifact"]}


def test_waiters_hold_no_thread_and_no_session(start: Start, parts: Parts) -> None:
    """More waiters than the registry has threads (40) and database connections (32), and it still answers."""
    registry, polls, claims = start(), crowd(120, 60), crowd(80, 50)
    registry.register_model()
    job = registry.submit(own(parts, "crowd"))
    worker = registry.register_worker("elsewhere", parts.gpu_capabilities())
    path = f"/v1/jobs/{job['id']}?wait=60&version={job['version']}"
    polling = [registry.pending("GET", path) for _ in range(polls)]
    claiming = [registry.pending("POST", "/v1/jobs/claim", claim_of(worker, wait=60)) for _ in range(claims)]
    registry.handled(*polling, *claiming)
    for _ in range(20):
        assert registry.job(job["id"])["version"] == job["version"]
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    assert {each.reply()[1]["state"] for each in polling} == {"cancelled"}
    # The others wait still.
    registry.kill9()
    for each in claiming:
        with pytest.raises((OSError, http.client.HTTPException)):
            each.reply()
