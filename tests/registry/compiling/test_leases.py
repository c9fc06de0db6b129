"""Leases: who may speak of a job, what happens when it fails, and what is remembered of that."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


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


def test_who_lost_a_lease_can_do_nothing_over_its_successor(short: Any, parts: Any) -> None:
    job = short.ask(own(parts, "lost"))
    first, second = short.worker("first"), short.worker("second")
    stale = short.claim(first)
    fresh = short.claim(second, wait=20)
    assert fresh["job"] == job["id"] and fresh["fence"] == stale["fence"] + 1 and fresh["attempt"] == 2
    artifact = short.publication(stale)
    calls = {
        "heartbeat": {"fence": stale["fence"]},
        "finish": {"fence": stale["fence"], "artifact": artifact},
        "fail": {"fence": stale["fence"], "failure": {"kind": "permanent", "message": "no"}},
        "handback": {"fence": stale["fence"]},
    }
    for verb, body in calls.items():
        refused = short.bad("POST", f"/v1/jobs/{job['id']}/{verb}", body)
        assert refused["code"] == "conflict" and "this lease is lost" in refused["message"]
    assert short.ok("GET", "/v1/artifacts")["artifacts"] == []
    assert short.finish(fresh)["state"] == "done"
    refused = short.bad("POST", f"/v1/jobs/{job['id']}/finish", calls["finish"])
    assert refused["code"] == "conflict"


def test_a_lease_whose_time_has_passed_is_lost_though_nobody_took_the_job(short: Any, parts: Any) -> None:
    short.ask(own(parts, "passed"))
    lease = short.claim(short.worker())
    short.claim(short.worker("elsewhere", parts.gpu_can()), wait=1.5)
    refused = short.bad("POST", f"/v1/jobs/{lease['job']}/finish", {"fence": 1, "artifact": short.publication(lease)})
    assert refused["code"] == "conflict"
    assert short.ok("GET", "/v1/artifacts")["artifacts"] == []


def test_heartbeats_keep_a_lease(short: Any, parts: Any) -> None:
    job = short.ask(own(parts, "kept"))
    lease = short.claim(short.worker())
    version, end = short.job(job["id"])["version"], time.monotonic() + 2.5
    while time.monotonic() < end:
        short.beat(lease)
        version = short.ok("GET", f"/v1/jobs/{job['id']}?wait=0.3&version={version}")["version"]
    assert short.finish(lease)["attempts"] == 1


def test_finish_twice_gives_the_same_answer(short: Any, parts: Any) -> None:
    short.ask(own(parts, "twice"))
    lease = short.claim(short.worker())
    assert short.finish(lease) == short.finish(lease)


def test_finish_publishes_and_closes_or_neither(short: Any, parts: Any) -> None:
    job = short.ask(own(parts, "neither"))
    lease = short.claim(short.worker())
    artifact = short.publication(lease)
    artifact["manifest"]["files"][0]["blobs"][0]["sha256"] = artifact["manifest"]["files"][0]["sha256"] = "1" * 64
    refused = short.bad("POST", f"/v1/jobs/{job['id']}/finish", {"fence": 1, "artifact": artifact})
    assert refused["code"] == "no_such_blob"
    assert short.job(job["id"])["state"] == "running"
    assert short.finish(lease)["state"] == "done"


@pytest.mark.parametrize("how", ["another program", "another key", "a truncated file", "other qualities"])
def test_a_wrong_program_is_refused_and_the_job_tried_again(short: Any, parts: Any, how: str) -> None:
    demands = {"migraphx_patch": "2.16.0"} if how == "other qualities" else {}
    job = short.ask(own(parts, "wrong"), demands=demands)
    worker = short.worker()
    lease = short.claim(worker)
    artifact = short.publication(lease)
    if how == "another program":
        artifact["manifest"] = short.manifest(parts.gfx908, "model.mxr")
    elif how == "another key":
        artifact["key"] = own(parts, "other_key")
    elif how == "a truncated file":
        artifact["manifest"] = short.manifest(parts.ref[:-1000], "model.mxr")
    else:
        artifact["qualities"] = {"migraphx_patch": "2.16.1"}
    refused = short.bad("POST", f"/v1/jobs/{job['id']}/finish", {"fence": 1, "artifact": artifact})
    assert refused["code"] == ("damaged" if how == "a truncated file" else "mismatch")
    assert short.ok("GET", "/v1/artifacts")["artifacts"] == []
    assert short.job(job["id"])["state"] == "queued"
    again = short.claim(worker, wait=10)
    assert again["attempt"] == 2
    assert short.finish(again)["state"] == "done"


def test_a_program_for_other_cus_than_the_claim_said_is_refused(short: Any, parts: Any) -> None:
    short.ask(parts.gpu_key())
    lease = short.claim(short.worker("gpu", parts.gpu_can()))
    short.ask(parts.gpu_key(), demands={"num_cu": 120})
    artifact = short.publication(lease, parts.gfx908, qualities={"num_cu": 110, "sramecc": "+", "xnack": "-"})
    refused = short.bad("POST", f"/v1/jobs/{lease['job']}/finish", {"fence": 1, "artifact": artifact})
    assert refused["detail"]["differences"] == [{"field": "num_cu", "asked": 120, "found": 110}]


def test_what_a_worker_leaves_unsaid_is_what_its_claim_said(short: Any, parts: Any) -> None:
    short.ask(parts.gpu_key())
    lease = short.claim(short.worker("gpu", parts.gpu_can()))
    done = short.finish(lease, data=parts.gfx908, qualities={"sramecc": "+", "xnack": "-"})
    qualities = short.ok("GET", f"/v1/artifacts/{done['artifact']}")["qualities"]
    assert (qualities["num_cu"], qualities["rocm_patch"], qualities["build"]) == (120, "7.2.1", "a1")


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


def test_handing_back_is_no_attempt(short: Any, parts: Any) -> None:
    job = short.ask(own(parts, "back"))
    worker = short.worker()
    lease = short.claim(worker)
    back = short.ok("POST", f"/v1/jobs/{job['id']}/handback", {"fence": lease["fence"]})
    assert back["state"] == "queued" and back["attempts"] == 0
    again = short.claim(worker)
    assert again["fence"] == 2 and again["attempt"] == 1


def test_cancelling(short: Any, parts: Any) -> None:
    queued = short.ask(own(parts, "cancel_queued"))
    assert short.ok("POST", f"/v1/jobs/{queued['id']}/cancel")["state"] == "cancelled"
    assert short.ok("POST", f"/v1/jobs/{queued['id']}/cancel")["state"] == "cancelled"
    worker = short.worker()
    assert short.claim(worker) is None
    job = short.ask(own(parts, "cancel_running"))
    lease = short.claim(worker)
    assert short.beat(lease)["cancelled"] is False
    assert short.ok("POST", f"/v1/jobs/{job['id']}/cancel")["state"] == "running"
    assert short.beat(lease)["cancelled"] is True
    assert short.fail(lease, "transient", "cancelled")["state"] == "cancelled"


def test_who_asks_for_a_job_that_is_being_cancelled_keeps_it(short: Any, parts: Any) -> None:
    key = own(parts, "revived")
    job = short.ask(key)
    lease = short.claim(short.worker())
    short.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    assert short.ask(key)["id"] == job["id"]
    assert short.beat(lease)["cancelled"] is False
    assert short.ok("POST", f"/v1/jobs/{job['id']}/handback", {"fence": 1})["state"] == "queued"


def test_a_named_job_is_claimed_alone(short: Any, parts: Any) -> None:
    short.ask(own(parts, "named_one"), priority=50)
    second = short.ask(own(parts, "named_two"))
    worker = short.worker()
    assert short.claim(worker, job=second["id"])["job"] == second["id"]
    assert short.claim(worker, job=second["id"]) is None
    unable = short.bad("POST", "/v1/jobs/claim", {"worker": short.worker("gpu", parts.gpu_can()), "job": second["id"]})
    assert unable["code"] == "no_worker"
    assert short.bad("POST", "/v1/jobs/claim", {"worker": "0" * 32})["code"] == "not_found"


def test_many_workers_get_each_job_once(registry: Any, parts: Any) -> None:
    wanted = {registry.ask(own(parts, f"each_{n}"))["id"] for n in range(30)}
    workers = [registry.worker(f"w{n}") for n in range(30)]
    together = threading.Barrier(30)

    def claim(worker: str) -> Any:
        together.wait()
        return registry.claim(worker, wait=10)

    with ThreadPoolExecutor(30) as pool:
        leases = list(pool.map(claim, workers))
    assert {lease["job"] for lease in leases} == wanted
    assert all(lease["fence"] == 1 for lease in leases)


def test_a_log_keeps_its_head_and_its_tail(registry: Any, parts: Any) -> None:
    job = registry.ask(own(parts, "long_log"))
    lease = registry.claim(registry.worker())
    lines = [f"line {n} {'x' * 90}\n" for n in range(30_000)]
    for at in range(0, len(lines), 2_000):
        registry.beat(lease, log="".join(lines[at : at + 2_000]))
    reply = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log")
    text = reply.data.decode()
    assert "== attempt 1 on one ==\nline 0 " in text and text.endswith(lines[-1])
    assert "bytes of the log were not kept" in text
    assert 1_250_000 < len(text) < 1_400_000
    size = int(reply.headers["mxr-log-next"])
    assert size == sum(map(len, lines)) + len("== attempt 1 on one ==\n")
    registry.beat(lease, log="and höher\n")
    more = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log?offset={size}")
    assert more.data.decode() == "and höher\n"
    with_nothing = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log?offset=99999999")
    assert with_nothing.data == b""


def test_workers_are_idle_busy_or_lost(start: Any, parts: Any) -> None:
    registry = start(parts.short.replace("lost_after = 20", "lost_after = 1"))
    registry.give_model()
    id = registry.worker("steady")
    assert registry.worker("steady") == id
    assert registry.ok("GET", "/v1/workers")["workers"][0]["state"] == "idle"
    registry.ask(own(parts, "states"))
    lease = registry.claim(id)
    shown = registry.ok("GET", "/v1/workers")["workers"][0]
    assert shown["state"] == "busy" and shown["job"] == lease["job"]
    registry.finish(lease)
    registry.claim(registry.worker("other", parts.gpu_can()), wait=1.4)
    states = {each["name"]: each["state"] for each in registry.ok("GET", "/v1/workers")["workers"]}
    assert states == {"other": "idle", "steady": "lost"}, "waiting keeps a worker alive"
    assert registry.refuse(own(parts, "nobody"), wait=True)["code"] == "no_worker"


@pytest.mark.parametrize(
    "can",
    [
        {"targets": [], "toolchain": {}},
        {"targets": [{"arch": "sm90"}], "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}},
        {"targets": [{"arch": "gfx908"}], "toolchain": {"rocm": "seven", "migraphx": "2.15.0"}},
        {"targets": [{"arch": "gfx908", "colour": "red"}], "toolchain": {}},
        {"targets": [{"arch": "gfx908", "kind": "tpu"}], "toolchain": {}},
    ],
)
def test_a_worker_that_says_nonsense_is_refused(registry: Any, can: Any) -> None:
    assert registry.bad("POST", "/v1/workers", {"name": "odd", "can": can})["code"] == "usage"


def test_metrics(start: Any, parts: Any) -> None:
    registry = start("")
    registry.give_model()
    key = own(parts, "metrics")
    assert registry.call("POST", "/v1/resolve", {"key": key})[0] == 404
    registry.ask(key)
    registry.ask(parts.gpu_key())
    registry.finish(registry.claim(registry.worker()))
    registry.ok("POST", "/v1/resolve", {"key": key})
    assert registry.call("POST", "/v1/resolve", {"key": own(parts, "metrics", fast_math=False)})[0] == 404
    reply = registry.http.request("GET", registry.url + "/metrics")
    lines = reply.data.decode().splitlines()
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'mxr_jobs{state="queued"} 1',
        'mxr_jobs{state="done"} 1',
        'mxr_queue_jobs{kind="gpu",vendor="amd",arch="gfx908",migraphx="2.15",rocm="7.2",state="queued"} 1',
        'mxr_workers{state="idle"} 1',
        'mxr_compile_seconds_sum{arch="ref"} 12.5',
        'mxr_compile_seconds_count{arch="ref"} 1',
        "mxr_resolve_hits_total 1",
        'mxr_resolve_misses_total{reason="nothing"} 1',
        'mxr_resolve_misses_total{reason="fast_math"} 1',
    ):
        assert line in lines, json.dumps(lines, indent=1)
