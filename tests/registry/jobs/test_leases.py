"""Leases: who may speak of a job, and what a finished one must be."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.scale import crowd
from harness.waiting import until
from harness.workers import claim_of
from registry.registry_client import Parts, Start, marked, on_sqlite


def own(parts: Parts, name: str, **other: Any) -> dict[str, Any]:
    return parts.ref_key(env=marked(name), **other)


def test_who_lost_a_lease_can_do_nothing_over_its_successor(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "lost"))
    first, second = registry.register_worker("first"), registry.register_worker("second")
    stale = registry.claim(first)
    registry.lose_lease(job["id"], second)
    fresh = registry.claim(second)
    assert fresh["job"] == job["id"] and fresh["attempt"] == 2
    artifact = registry.publication(stale)
    calls = {
        "heartbeat": {"lease": stale["secret"]},
        "finish": {"lease": stale["secret"], "artifact": artifact},
        "fail": {"lease": stale["secret"], "failure": {"kind": "permanent", "message": "no"}},
        "handback": {"lease": stale["secret"]},
    }
    for verb, body in calls.items():
        refused = registry.error("POST", f"/v1/jobs/{job['id']}/{verb}", body)
        assert refused["code"] == "conflict" and "the lease is lost" in refused["detail"]
    assert registry.ok("GET", "/v1/artifacts")["items"] == []
    assert registry.finish(fresh)["state"] == "done"
    refused = registry.error("POST", f"/v1/jobs/{job['id']}/finish", calls["finish"])
    assert refused["code"] == "conflict"


def test_a_lease_whose_time_has_passed_is_lost_though_nobody_took_the_job(registry: Any, parts: Parts) -> None:
    """Whether the registry noticed already or not."""
    job = registry.submit(own(parts, "passed"))
    lease = registry.claim(registry.register_worker())
    finish = {"lease": lease["secret"], "artifact": registry.publication(lease)}
    registry.age_lease(job["id"])
    assert registry.error("POST", f"/v1/jobs/{lease['job']}/finish", finish)["code"] == "conflict"
    assert registry.job(job["id"])["state"] == "running"
    registry.claim(registry.register_worker("elsewhere", parts.gpu_capabilities()))
    assert registry.job(job["id"])["state"] == "queued"
    assert registry.error("POST", f"/v1/jobs/{lease['job']}/finish", finish)["code"] == "conflict"
    assert registry.ok("GET", "/v1/artifacts")["items"] == []


def test_a_lost_lease_is_noticed_while_somebody_waits(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "noticed"))
    registry.claim(registry.register_worker())
    waiting = registry.pending("GET", f"/v1/jobs/{job['id']}?wait=60")
    registry.handled(waiting)
    registry.age_lease(job["id"])
    assert waiting.reply()[1]["state"] == "queued"


def test_heartbeats_keep_a_lease(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "kept"))
    lease = registry.claim(registry.register_worker())
    for _ in range(3):
        before = registry.lease_end(job["id"])
        registry.age_lease(job["id"], 30)
        registry.heartbeat(lease)
        assert registry.lease_end(job["id"]) >= before
    assert registry.finish(lease)["attempts"] == 1


def test_a_claim_whose_reply_was_lost_gets_the_same_lease_again(registry: Any, parts: Parts) -> None:
    jobs = {registry.submit(own(parts, f"again_{n}"))["id"] for n in range(2)}
    worker, other = registry.register_worker("same"), registry.register_worker("other")
    body = claim_of(worker, wait=0)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: registry.ok("POST", "/v1/jobs/claim", body)["lease"], range(12)))
    assert found == [found[0]] * 12 and found[0]["job"] in jobs and found[0]["attempt"] == 1
    assert not {"secret", "fence", "lease"} & found[0].keys()
    theirs = registry.ok("POST", "/v1/jobs/claim", claim_of(other) | {"lease": body["lease"]})["lease"]
    assert {theirs["job"], found[0]["job"]} == jobs, "the secret of another worker's lease is none of its own"
    assert registry.finish(found[0] | {"secret": body["lease"]})["state"] == "done"
    assert registry.ok("POST", "/v1/jobs/claim", body)["lease"] is None, "the end of the lease is the end of its claim"


def test_a_repeated_claim_gives_no_lease_back_that_was_lost(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "lost_again"))
    worker, other = registry.register_worker("same"), registry.register_worker("other")
    body = claim_of(worker)
    assert registry.ok("POST", "/v1/jobs/claim", body)["lease"]["job"] == job["id"]
    registry.lose_lease(job["id"], other)
    assert registry.claim(other)["attempt"] == 2
    assert registry.ok("POST", "/v1/jobs/claim", body)["lease"] is None


def test_finish_twice_gives_the_same_answer(start: Start, parts: Parts) -> None:
    """Also after the registry was killed; and only who has the secret hears it."""
    registry = start()
    registry.register_model()
    registry.submit(own(parts, "twice"))
    lease = registry.claim(registry.register_worker())
    done = registry.finish(lease)
    registry.kill9()
    registry.start()
    assert registry.finish(lease) == done
    path, artifact = f"/v1/jobs/{lease['job']}/finish", registry.publication(lease)
    assert registry.error("POST", path, {"lease": "A" * 43, "artifact": artifact})["code"] == "conflict"


def test_finish_publishes_and_closes_or_neither(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "neither"))
    lease = registry.claim(registry.register_worker())
    artifact = registry.publication(lease)
    artifact["manifest"]["files"][0]["blobs"][0]["sha256"] = artifact["manifest"]["files"][0]["sha256"] = "1" * 64
    refused = registry.error("POST", f"/v1/jobs/{job['id']}/finish", {"lease": lease["secret"], "artifact": artifact})
    assert refused["code"] == "no_such_blob"
    assert registry.job(job["id"])["state"] == "running"
    assert registry.finish(lease)["state"] == "done"


@on_sqlite
@pytest.mark.parametrize("how", ["another program", "another key", "a truncated file", "other attributes"])
def test_a_wrong_program_is_refused_and_the_job_tried_again(registry: Any, parts: Parts, how: str) -> None:
    constraints = {"migraphx_patch": "2.16.0"} if how == "other attributes" else {}
    job = registry.submit(own(parts, "wrong"), constraints=constraints)
    worker = registry.register_worker()
    lease = registry.claim(worker)
    artifact = registry.publication(lease)
    if how == "another program":
        artifact["manifest"] = registry.manifest(parts.gfx908)
    elif how == "another key":
        artifact["key"] = own(parts, "other_key")
    elif how == "a truncated file":
        artifact["manifest"] = registry.manifest(parts.ref[:-1000])
    else:
        artifact["attributes"] = {"migraphx_patch": "2.16.1"}
    refused = registry.error("POST", f"/v1/jobs/{job['id']}/finish", {"lease": lease["secret"], "artifact": artifact})
    assert refused["code"] == ("damaged" if how == "a truncated file" else "mismatch")
    assert registry.ok("GET", "/v1/artifacts")["items"] == []
    assert registry.job(job["id"])["state"] == "queued"
    assert registry.claim(worker) is None, "not before its time"
    registry.end_backoff(job["id"])
    again = registry.claim(worker)
    assert again["attempt"] == 2
    assert registry.finish(again)["state"] == "done"


@on_sqlite
def test_a_program_for_other_cus_than_the_claim_said_is_refused(registry: Any, parts: Parts) -> None:
    registry.submit(parts.gpu_key())
    lease = registry.claim(registry.register_worker("gpu", parts.gpu_capabilities()))
    registry.submit(parts.gpu_key(), constraints={"num_cu": 120})
    artifact = registry.publication(lease, parts.gfx908, attributes={"num_cu": 110, "sramecc": "+", "xnack": "-"})
    refused = registry.error(
        "POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact}
    )
    assert refused["context"]["differences"] == [{"field": "num_cu", "asked": 120, "found": 110}]


@on_sqlite
def test_what_a_worker_leaves_unsaid_is_what_its_claim_said(registry: Any, parts: Parts) -> None:
    registry.submit(parts.gpu_key())
    lease = registry.claim(registry.register_worker("gpu", parts.gpu_capabilities()))
    done = registry.finish(lease, data=parts.gfx908, attributes={"sramecc": "+", "xnack": "-"})
    attributes = registry.ok("GET", f"/v1/artifacts/{done['artifact']}")["attributes"]
    assert (attributes["num_cu"], attributes["rocm_patch"], attributes["build"]) == (120, "7.2.1", "a1")


def test_handing_back_is_no_attempt(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "back"))
    worker = registry.register_worker()
    lease = registry.claim(worker)
    back = registry.ok("POST", f"/v1/jobs/{job['id']}/handback", {"lease": lease["secret"]})
    assert back["state"] == "queued" and back["attempts"] == 0
    again = registry.claim(worker)
    assert again["job"] == job["id"] and again["attempt"] == 1


def test_cancelling(registry: Any, parts: Parts) -> None:
    queued = registry.submit(own(parts, "cancel_queued"))
    assert registry.ok("POST", f"/v1/jobs/{queued['id']}/cancel")["state"] == "cancelled"
    assert registry.ok("POST", f"/v1/jobs/{queued['id']}/cancel")["state"] == "cancelled"
    worker = registry.register_worker()
    assert registry.claim(worker) is None
    job = registry.submit(own(parts, "cancel_running"))
    lease = registry.claim(worker)
    assert registry.heartbeat(lease)["cancelled"] is False
    assert registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")["state"] == "running"
    assert registry.heartbeat(lease)["cancelled"] is True
    assert registry.fail(lease, "transient", "cancelled")["state"] == "cancelled"


def test_who_asks_for_a_job_that_is_being_cancelled_keeps_it(registry: Any, parts: Parts) -> None:
    key = own(parts, "revived")
    job = registry.submit(key)
    lease = registry.claim(registry.register_worker())
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    assert registry.submit(key)["id"] == job["id"]
    assert registry.heartbeat(lease)["cancelled"] is False
    assert registry.ok("POST", f"/v1/jobs/{job['id']}/handback", {"lease": lease["secret"]})["state"] == "queued"


def test_a_named_job_is_claimed_alone(registry: Any, parts: Parts) -> None:
    registry.submit(own(parts, "named_one"), priority=50)
    second = registry.submit(own(parts, "named_two"))
    worker = registry.register_worker()
    assert registry.claim(worker, job=second["id"])["job"] == second["id"]
    assert registry.claim(worker, job=second["id"]) is None
    other = registry.register_worker("gpu", parts.gpu_capabilities())
    unable = registry.error("POST", "/v1/jobs/claim", claim_of(other, job=second["id"]))
    assert unable["code"] == "no_worker"
    assert registry.error("POST", "/v1/jobs/claim", claim_of("nobody"))["code"] == "not_found"


def test_the_time_without_a_registry_counts_against_nobody(start: Start, parts: Parts) -> None:
    registry = start()
    registry.register_model()
    job = registry.submit(own(parts, "away"))
    worker, other = registry.register_worker("at work"), registry.register_worker("idle")
    lease = registry.claim(worker)
    registry.kill9()
    registry.age_lease(job["id"])
    registry.age_workers()
    registry.start()
    assert registry.claim(other) is None, "nobody takes it at the first moment"
    assert registry.heartbeat(lease)["cancelled"] is False
    states = {each["name"]: each["state"] for each in registry.ok("GET", "/v1/workers")["items"]}
    assert states == {"at work": "busy", "idle": "idle"}
    registry.lose_lease(job["id"], other)
    assert registry.claim(other)["attempt"] == 2, "silent beside a registry, it loses its lease as usual"


def test_a_registry_that_starts_beside_another_lengthens_nothing(start: Start, parts: Parts) -> None:
    """A worker that waits at the other one was heard of, though it says nothing new."""
    first = start(config="[work]\nlost_after = 2\n")
    first.register_model()
    job = first.submit(own(parts, "beside"))
    lease = first.claim(first.register_worker("silent"))
    waiting = first.waiting_claim(first.register_worker("alive"))
    first.age_lease(job["id"], 20)
    before = first.lease_end(job["id"])
    first.age_workers()
    until(lambda: first.rows.execute(f"SELECT name FROM workers WHERE seen_at > {time.time() - 1800}"))
    second = start(data=first.data)
    assert second.ok("GET", "/readyz")["ok"]
    assert first.lease_end(job["id"]) == before
    first.age_lease(job["id"])
    until(lambda: first.job(job["id"])["state"] == "queued")
    first.end_backoff(job["id"], time.time() + 0.5)
    assert first.heard(waiting)["attempt"] == 2
    refused = first.error("POST", f"/v1/jobs/{job['id']}/heartbeat", {"lease": lease["secret"]})
    assert refused["code"] == "conflict"


def test_many_workers_get_each_job_once(registry: Any, parts: Parts) -> None:
    many = crowd(30)
    wanted = {registry.submit(own(parts, f"each_{n}"))["id"] for n in range(many)}
    workers = [registry.register_worker(f"w{n}") for n in range(many)]
    together = threading.Barrier(many)

    def claim(worker: str) -> Any:
        together.wait()
        return registry.claim(worker, wait=10)

    with ThreadPoolExecutor(many) as pool:
        leases = list(pool.map(claim, workers))
    assert {lease["job"] for lease in leases} == wanted
    assert all(lease["attempt"] == 1 for lease in leases)
