"""Leases: who may speak of a job, and what a finished one must be."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


def own(parts: Any, name: str, **other: Any) -> dict[str, Any]:
    return parts.ref_key(env={"MIGRAPHX_" + name.upper(): "1"}, **other)


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
        assert refused["code"] == "conflict" and "the lease is lost" in refused["message"]
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


def lapsed(registry: Any, job: str) -> bool:
    """Whether a lease has passed, by the clock that this machine shares with its database."""
    ((until,),) = registry.rows.execute(f"SELECT lease_until FROM jobs WHERE id = '{job}'")
    return bool(until < time.time())


def test_the_time_without_a_registry_counts_against_nobody(start: Any, parts: Any) -> None:
    first = start(parts.short.replace("lost_after = 20", "lost_after = 2"))
    first.give_model()
    job = first.ask(own(parts, "away"))
    worker, other = first.worker("at work"), first.worker("idle")
    lease = first.claim(worker)
    first.stop(signal.SIGKILL)
    end = time.monotonic() + 3.0
    while not lapsed(first, job["id"]) or time.monotonic() < end:
        time.sleep(0.05)
    second = start(parts.short, data=first.data, port=first.port)
    assert second.claim(other) is None, "nobody takes it at the first moment"
    assert second.beat(lease)["cancelled"] is False
    states = {each["name"]: each["state"] for each in second.ok("GET", "/v1/workers")["workers"]}
    assert states == {"at work": "busy", "idle": "idle"}
    fresh = second.claim(other, wait=20)
    assert fresh["attempt"] == 2, "silent beside a registry, it loses its lease as usual"


def test_a_registry_that_starts_beside_another_lengthens_nothing(start: Any, parts: Any) -> None:
    rules = "[work]\nlease = 3.0\nlost_after = 2\nbackoff = 0.2\n"
    first = start(rules)
    first.give_model()
    job = first.ask(own(parts, "beside"))
    lease = first.claim(first.worker("silent"))
    other = first.worker("alive")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.claim, other, 30)
        while not waiting.done():
            start(rules, data=first.data).stop()
        assert waiting.result()["attempt"] == 2
    refused = first.bad("POST", f"/v1/jobs/{job['id']}/heartbeat", {"fence": lease["fence"]})
    assert refused["code"] == "conflict"


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
