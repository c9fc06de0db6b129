"""Failed jobs: what is tried again, where and when, and what is remembered."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def own(parts: Any, name: str, **other: Any) -> dict[str, Any]:
    return parts.ref_key(env={"MIGRAPHX_" + name.upper(): "1"}, **other)


def other_can(parts: Any, build: str) -> dict[str, Any]:
    return {**parts.ref_can, "toolchain": {**parts.ref_can["toolchain"], "migraphx_build": build}}


def wait_until(registry: Any, id: str, *states: str, seconds: float = 15) -> Any:
    """The job, once it is in one of these states: by the registry's own long poll."""
    end = time.monotonic() + seconds
    job = registry.job(id)
    while job["state"] not in states and time.monotonic() < end:
        job = registry.ok("GET", f"/v1/jobs/{id}?wait=5&version={job['version']}")
    assert job["state"] in states, job
    return job


def test_a_permanent_failure_is_remembered_for_this_toolchain_alone(short: Any, parts: Any) -> None:
    key = own(parts, "permanent")
    first = short.worker("first")
    lease = short.claim(first) if short.ask(key) else None
    failed = short.fail(lease, "permanent", "unsupported_operator", "no such operator: Foo")
    assert failed["state"] == "failed"
    assert failed["failure"] == {
        "kind": "permanent",
        "message": "no such operator: Foo",
        "name": "unsupported_operator",
    }
    again = short.ask(key, wait=True)
    assert again["state"] == "failed" and again["attempts"] == 0 and again["failure"] == failed["failure"]
    assert short.ask(key)["id"] == again["id"], "one failed job tells all who ask"
    other = short.worker("other", other_can(parts, "b2"))
    free = short.ask(key, wait=True)
    assert free["state"] == "queued"
    assert short.claim(first) is None
    assert short.claim(other)["job"] == free["id"]


def test_retry_clears_what_is_remembered(short: Any, parts: Any) -> None:
    key = own(parts, "retry")
    worker = short.worker()
    short.ask(key)
    short.fail(short.claim(worker), "permanent")
    assert short.ask(key)["state"] == "failed"
    fresh = short.ask(key, retry=True)
    assert fresh["state"] == "queued"
    assert short.claim(worker)["job"] == fresh["id"]


def test_what_is_remembered_expires(start: Any, parts: Any) -> None:
    registry = start(parts.short + "remember = 3\nquarantine = 3\n")
    registry.give_model()
    worker = registry.worker()
    for kind in ("permanent", "poison"):
        key = own(parts, "expires_" + kind)
        registry.ask(key)
        registry.fail(registry.claim(worker), kind)
        assert registry.ask(key)["state"] == "failed"
        # A long poll that finds nothing is the pause between two looks.
        while registry.ask(key)["state"] == "failed":
            registry.claim(worker, wait=0.5, job=None)
        assert registry.claim(worker, wait=5) is not None


def test_a_pool_at_zero_with_the_same_toolchain_does_not_bring_a_failed_job_back(start: Any, parts: Any) -> None:
    pool = '[[pools]]\nname = "ref"\ntargets = [{arch = "ref", kind = "ref"}]\ntoolchain = {migraphx = "2.16.0"}\n'
    registry = start(parts.short + pool)
    registry.give_model()
    key = own(parts, "pool")
    registry.ask(key)
    registry.fail(registry.claim(registry.worker("one", other_can(parts, "b2"))), "permanent")
    assert registry.ask(key, wait=True)["state"] == "failed"


def test_a_transient_failure_goes_to_another_worker_up_to_a_limit(short: Any, parts: Any) -> None:
    job = short.ask(own(parts, "transient"))
    first, second = short.worker("first"), short.worker("second")
    short.fail(short.claim(first), "transient", "killed")
    queued = short.job(job["id"])
    assert queued["state"] == "queued" and queued["attempts"] == 1 and queued["failure"] is None
    assert short.claim(second) is None, "not before its time"
    lease = short.claim(second, wait=10)
    short.fail(lease, "transient", "killed")
    assert short.claim(second, wait=1) is None, "the first one is alive and idle"
    lease = short.claim(first, wait=10)
    failed = short.fail(lease, "transient", "killed", "killed again")
    assert failed["state"] == "failed" and failed["attempts"] == 3
    assert failed["failure"]["kind"] == "transient" and failed["failure"]["message"] == "killed again"
    assert short.ask(own(parts, "transient"))["state"] == "queued", "nothing is remembered"


def test_the_same_worker_tries_again_where_no_other_is_idle(short: Any, parts: Any) -> None:
    short.ask(own(parts, "busy_one"))
    first, second = short.worker("first"), short.worker("second")
    lease = short.claim(first)
    short.ask(own(parts, "busy_two"))
    other = short.claim(second)
    short.fail(lease, "transient")
    stop = threading.Event()

    def keep() -> None:
        while not stop.wait(0.3):
            short.beat(other)

    keeper = threading.Thread(target=keep)
    keeper.start()
    again = short.claim(first, wait=10)
    stop.set()
    keeper.join()
    assert again["job"] == lease["job"]


def test_poison_is_quarantined(short: Any, parts: Any) -> None:
    key = own(parts, "poison")
    job = short.ask(key)
    worker = short.worker()
    failed = short.fail(short.claim(worker), "poison", "segfault")
    assert failed["state"] == "failed" and failed["id"] == job["id"]
    assert short.ask(key)["failure"]["kind"] == "poison"


def test_a_job_that_loses_its_workers_again_and_again_is_poison(short: Any, parts: Any) -> None:
    key = own(parts, "killer")
    job = short.ask(key)
    worker = short.worker()
    for attempt in (1, 2, 3):
        assert short.claim(worker, wait=15)["attempt"] == attempt
    failed = wait_until(short, job["id"], "failed")
    assert failed["failure"]["kind"] == "poison" and failed["failure"]["name"] == "lost_worker"
    assert short.ask(key)["state"] == "failed"


def test_the_only_worker_tries_again_as_soon_as_the_pause_is_over(short: Any, parts: Any) -> None:
    """It waits in one long poll, whose own second look would come later than this one ends."""
    short.ask(own(parts, "only_one"))
    worker = short.worker()
    short.fail(short.claim(worker), "transient")
    assert short.claim(worker, wait=10)["attempt"] == 2


def test_the_only_one_that_is_left_tries_again_though_a_dead_one_counts_as_alive(short: Any, parts: Any) -> None:
    """Who died a moment ago is idle and alive as far as anybody knows: the job is left to it for a moment only."""
    short.ask(own(parts, "left_alone"))
    short.worker("dead")
    worker = short.worker("alive")
    short.fail(short.claim(worker), "transient")
    assert short.claim(worker, wait=10)["attempt"] == 2


def test_a_job_is_rather_tried_again_elsewhere(short: Any, parts: Any) -> None:
    """Of two who wait, the other gets it."""
    job = short.ask(own(parts, "elsewhere"))
    one, two = short.worker("one"), short.worker("two")
    lease = short.claim(one, job=job["id"])
    with ThreadPoolExecutor(2) as pool:
        waiting = {}
        for worker in (one, two):
            waiting[worker] = pool.submit(short.claim, worker, 4)
        short.fail(lease, "transient")
        again = waiting[two].result()
        assert again["attempt"] == 2 and short.finish(again)["state"] == "done"
        assert waiting[one].result() is None


def test_a_failed_job_never_blocks_another_key(start: Any, parts: Any) -> None:
    # So patient that its time does not come again before the other is asked for, however slow the machine.
    registry = start("[work]\nbackoff = 250\n")
    registry.give_model()
    worker = registry.worker()
    registry.ask(own(parts, "blocks"), priority=100)
    registry.fail(registry.claim(worker), "transient")
    other = registry.ask(own(parts, "blocked"))
    assert registry.claim(worker)["job"] == other["id"]
