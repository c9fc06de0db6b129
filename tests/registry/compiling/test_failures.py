"""Failed jobs: what is tried again, where and when, and what is remembered."""

from __future__ import annotations

import threading
import time
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
    registry = start(parts.short + "remember = 0.5\nquarantine = 0.5\n")
    registry.give_model()
    worker = registry.worker()
    for kind in ("permanent", "poison"):
        key = own(parts, "expires_" + kind)
        registry.ask(key)
        registry.fail(registry.claim(worker), kind)
        assert registry.ask(key)["state"] == "failed"
        # A long poll for a job that is not there is the wait for the half second.
        assert registry.claim(worker, wait=0.8) is None
        assert registry.ask(key)["state"] == "queued"
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


def test_a_failed_job_never_blocks_another_key(short: Any, parts: Any) -> None:
    worker = short.worker()
    short.ask(own(parts, "blocks"), priority=100)
    short.fail(short.claim(worker), "transient")
    other = short.ask(own(parts, "blocked"))
    assert short.claim(worker)["job"] == other["id"]
