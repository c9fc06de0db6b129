"""Failed jobs: what is tried again, where and when, and what is remembered."""

from __future__ import annotations

import time
from typing import Any

import pytest
from harness.workers import sign_off
from registry.registry_client import Parts, Start, marked, on_sqlite

from mxr_registry.jobs import transitions


def own(parts: Parts, name: str, **other: Any) -> dict[str, Any]:
    return parts.ref_key(env=marked(name), **other)


def other_can(parts: Parts, build: str) -> dict[str, Any]:
    return {**parts.ref_capabilities, "toolchain": {**parts.ref_capabilities["toolchain"], "migraphx_build": build}}


def claimed_in_the_time_of_others(registry: Any, worker: str, job: str) -> Any:
    """What a worker gets of a job that it failed last, once it may be tried again but is left to others for seconds.

    Repeated where this machine took those seconds for the request.
    """
    while True:
        begun = time.time()
        registry.end_backoff(job, begun)
        lease = registry.claim(worker)
        if lease is None or time.time() < begun + transitions.RETRY_HEAD_START:
            return lease
        registry.ok("POST", f"/v1/jobs/{job}/handback", {"lease": lease["secret"]})


def test_a_permanent_failure_is_remembered_for_this_toolchain_alone(registry: Any, parts: Parts) -> None:
    key = own(parts, "permanent")
    first = registry.register_worker("first")
    lease = registry.claim(first) if registry.submit(key) else None
    failed = registry.fail(lease, "permanent", "unsupported_operator", "no such operator: Foo")
    assert failed["state"] == "failed"
    assert failed["failure"] == {
        "kind": "permanent",
        "message": "no such operator: Foo",
        "name": "unsupported_operator",
    }
    again = registry.submit(key, require_worker=True)
    assert again["state"] == "failed" and again["attempts"] == 0 and again["failure"] == failed["failure"]
    assert registry.submit(key)["id"] == again["id"], "one failed job tells all who ask"
    other = registry.register_worker("other", other_can(parts, "b2"))
    free = registry.submit(key, require_worker=True)
    assert free["state"] == "queued"
    assert registry.claim(first) is None
    assert registry.claim(other)["job"] == free["id"]


@pytest.mark.parametrize("kind", ["permanent", "poison"])
def test_one_worker_alone_cannot_fail_a_request_for_all(registry: Any, parts: Parts, kind: str) -> None:
    key, first, second = own(parts, f"alone_{kind}"), registry.register_worker("first"), registry.register_worker("two")
    job = registry.submit(key)
    assert registry.fail(registry.claim(first), kind)["state"] == "queued", "the other one could compile it"
    for _ in range(4):
        registry.end_backoff(job["id"])
        assert registry.claim(first) is None and registry.claim(first, job=job["id"]) is None
    assert registry.fail(registry.claim(second), "transient")["state"] == "queued", "what is not its own counts as such"
    registry.end_backoff(job["id"])
    assert registry.claim(first) is None
    failed = registry.fail(registry.claim(second), kind)
    assert (failed["state"], failed["failure"]["kind"], failed["attempts"]) == ("failed", kind, 3)
    assert registry.submit(key)["state"] == "failed", "now it is remembered"


def test_who_is_left_alone_decides(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "left_alone"))
    first, second = registry.register_worker("first"), registry.register_worker("two")
    assert registry.fail(registry.claim(first), "permanent")["state"] == "queued"
    sign_off(registry.ok, second)
    registry.end_backoff(job["id"])
    assert registry.fail(registry.claim(first), "permanent")["state"] == "failed"


def test_retry_clears_what_is_remembered(registry: Any, parts: Parts) -> None:
    key = own(parts, "retry")
    worker = registry.register_worker()
    registry.submit(key)
    registry.fail(registry.claim(worker), "permanent")
    assert registry.submit(key)["state"] == "failed"
    fresh = registry.submit(key, retry=True)
    assert fresh["state"] == "queued"
    assert registry.claim(worker)["job"] == fresh["id"]


@pytest.mark.parametrize(("kind", "days"), [("permanent", 7), ("poison", 1)])
def test_what_is_remembered_expires(registry: Any, parts: Parts, kind: str, days: int) -> None:
    worker = registry.register_worker()
    key = own(parts, "expires_" + kind)
    job = registry.submit(key)
    registry.fail(registry.claim(worker), kind)
    if kind == "poison":
        registry.end_backoff(job["id"])
        registry.fail(registry.claim(worker), kind)
    registry.age_failures(days * 86400.0 - 3600)
    assert registry.submit(key)["state"] == "failed"
    registry.age_failures(3600)
    fresh = registry.submit(key)
    assert fresh["state"] == "queued"
    assert registry.claim(worker)["job"] == fresh["id"]


@on_sqlite
def test_a_pool_at_zero_with_the_same_toolchain_does_not_bring_a_failed_job_back(start: Start, parts: Parts) -> None:
    pool = '[[pools]]\nname = "ref"\ntargets = [{arch = "ref", kind = "ref"}]\ntoolchain = {migraphx = "2.16.0"}\n'
    registry = start(config=pool)
    registry.register_model()
    key = own(parts, "pool")
    registry.submit(key)
    registry.fail(registry.claim(registry.register_worker("one", other_can(parts, "b2"))), "permanent")
    assert registry.submit(key, require_worker=True)["state"] == "failed"


def test_a_transient_failure_goes_to_another_worker_up_to_a_limit(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "transient"))
    first, second = registry.register_worker("first"), registry.register_worker("second")
    registry.fail(registry.claim(first), "transient", "killed")
    queued = registry.job(job["id"])
    assert queued["state"] == "queued" and queued["attempts"] == 1 and queued["failure"] is None
    assert registry.claim(second) is None, "not before its time"
    registry.end_backoff(job["id"])
    registry.fail(registry.claim(second), "transient", "killed")
    lease = claimed_in_the_time_of_others(registry, second, job["id"])
    assert lease is None, "the first one is alive and idle"
    failed = registry.fail(registry.claim(first), "transient", "killed", "killed again")
    assert failed["state"] == "failed" and failed["attempts"] == 3
    assert failed["failure"]["kind"] == "transient" and failed["failure"]["message"] == "killed again"
    assert registry.submit(own(parts, "transient"))["state"] == "queued", "nothing is remembered"


@on_sqlite
def test_the_pause_doubles_up_to_a_limit(start: Start, parts: Parts) -> None:
    registry = start(config="[work]\nbackoff = 100\nbackoff_most = 150\n")
    registry.register_model()
    job = registry.submit(own(parts, "doubles"))
    worker = registry.register_worker()
    for pause in (100.0, 150.0):
        registry.fail(registry.claim(worker), "transient")
        ((next_at, updated_at),) = registry.rows.execute("SELECT next_at, updated_at FROM jobs")
        assert abs(next_at - updated_at - pause) < 30
        registry.end_backoff(job["id"])


def test_the_same_worker_tries_again_where_no_other_is_idle(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "busy_one"))
    first, second = registry.register_worker("first"), registry.register_worker("second")
    lease = registry.claim(first)
    registry.submit(own(parts, "busy_two"))
    assert registry.claim(second) is not None
    registry.fail(lease, "transient")
    again = claimed_in_the_time_of_others(registry, first, job["id"])
    assert again["job"] == lease["job"]


def test_poison_is_quarantined(registry: Any, parts: Parts) -> None:
    key = own(parts, "poison")
    job = registry.submit(key)
    worker = registry.register_worker()
    lease = registry.claim(worker)
    assert not lease["alone"]
    assert registry.fail(lease, "poison", "segfault")["state"] == "queued", "it may be the host's fault"
    registry.end_backoff(job["id"])
    lease = registry.claim(worker)
    assert lease["alone"] and b"alone after a crash" in registry.get(f"/v1/jobs/{job['id']}/log").data
    failed = registry.fail(lease, "poison", "segfault")
    assert failed["state"] == "failed" and failed["id"] == job["id"]
    assert registry.submit(key)["failure"]["kind"] == "poison"


def test_what_crashed_is_tried_on_another_host(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "other_host"))
    first, beside = registry.register_worker("one/gpu0"), registry.register_worker("one/gpu1")
    other = registry.register_worker("two/gpu0")
    assert registry.fail(registry.claim(first), "poison")["state"] == "queued"
    registry.end_backoff(job["id"])
    for worker in (first, beside):
        assert registry.claim(worker) is None and registry.claim(worker, job=job["id"]) is None
    lease = registry.claim(other)
    assert lease["alone"]
    assert registry.fail(lease, "transient")["state"] == "queued", "that tells nothing of the crash"
    sign_off(registry.ok, other)
    registry.end_backoff(job["id"])
    assert registry.fail(registry.claim(beside), "poison")["failure"]["kind"] == "poison"


def test_a_job_that_loses_its_workers_again_and_again_is_poison(registry: Any, parts: Parts) -> None:
    key = own(parts, "killer")
    job = registry.submit(key)
    worker = registry.register_worker()
    for attempt in (1, 2, 3):
        assert registry.claim(worker)["attempt"] == attempt
        registry.lose_lease(job["id"], worker)
    failed = registry.job(job["id"])
    assert failed["failure"]["kind"] == "poison" and failed["failure"]["name"] == "lost_worker"
    assert registry.submit(key)["state"] == "failed"


def test_the_only_worker_tries_again_as_soon_as_the_pause_is_over(registry: Any, parts: Parts) -> None:
    """It waits in one long poll, whose own second look would come later than this one ends."""
    job = registry.submit(own(parts, "only_one"))
    worker = registry.register_worker()
    registry.fail(registry.claim(worker), "transient")
    waiting = registry.waiting_claim(worker)
    registry.end_backoff(job["id"], time.time() + 0.5)
    assert registry.heard(waiting)["attempt"] == 2


def test_the_only_one_that_is_left_tries_again_though_a_dead_one_counts_as_alive(registry: Any, parts: Parts) -> None:
    """Who died a moment ago is idle and alive as far as anybody knows: the job is left to it for a moment only."""
    job = registry.submit(own(parts, "left_alone"))
    registry.register_worker("dead")
    worker = registry.register_worker("alive")
    registry.fail(registry.claim(worker), "transient")
    waiting = registry.waiting_claim(worker)
    registry.end_backoff(job["id"], time.time() + 0.5 - transitions.RETRY_HEAD_START)
    assert registry.heard(waiting)["attempt"] == 2


def test_a_job_is_rather_tried_again_elsewhere(registry: Any, parts: Parts) -> None:
    """Of two who wait, the other gets it."""
    job = registry.submit(own(parts, "elsewhere"))
    one, two = registry.register_worker("one"), registry.register_worker("two")
    lease = registry.claim(one, job=job["id"])
    waiting = {worker: registry.waiting_claim(worker) for worker in (one, two)}
    registry.fail(lease, "transient")
    registry.end_backoff(job["id"], time.time() + 0.5)
    again = registry.heard(waiting[two])
    assert again["attempt"] == 2 and registry.finish(again)["state"] == "done"
    waiting[one].close()


def test_a_failed_job_never_blocks_another_key(registry: Any, parts: Parts) -> None:
    worker = registry.register_worker()
    job = registry.submit(own(parts, "blocks"), priority=100)
    registry.fail(registry.claim(worker), "transient")
    registry.end_backoff(job["id"], time.time() + 3600)
    other = registry.submit(own(parts, "blocked"))
    assert registry.claim(worker)["job"] == other["id"]
