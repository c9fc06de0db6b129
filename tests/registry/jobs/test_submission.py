"""Asking for a compile: one job for many askers, and what has to be there first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.scale import crowd
from registry.registry_client import Parts, Start, marked, on_sqlite

from mxr.artifact.limits import MAX_OPEN_PER_KEY


def own(parts: Parts, name: str, **other: Any) -> dict[str, Any]:
    """A key that no other test has."""
    return parts.ref_key(env=marked(name), **other)


def test_a_compile_from_ask_to_resolve(registry: Any, parts: Parts) -> None:
    key = own(parts, "whole_way")
    job = registry.submit(key)
    assert job["state"] == "queued" and job["attempts"] == 0 and job["place"] == 1
    worker = registry.register_worker()
    lease = registry.claim(worker)
    assert lease["job"] == job["id"] and lease["attempt"] == 1
    assert lease["onnx"] == "model.onnx" and lease["model"]["files"][0]["name"] == "model.onnx"
    assert registry.job(job["id"])["state"] == "running"
    assert registry.claim(worker) is None
    assert registry.heartbeat(lease, phase="verify", log="half way\n") == {"seconds": 60.0, "cancelled": False}
    assert registry.job(job["id"])["phase"] == "verify"
    done = registry.finish(lease)
    assert done["state"] == "done" and done["failure"] is None
    hit = registry.ok("POST", "/v1/resolve", {"key": key})
    assert (hit["artifact"]["id"], hit["artifact"]["model"]) == (done["artifact"], "verified")
    again = registry.submit(key)
    assert again["id"] == job["id"] and again["artifact"] == done["artifact"]


def test_askers_share_a_job_only_where_every_result_would_serve(registry: Any, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_ENABLE_CK": "1"})
    any_cu = registry.submit(key)
    exact = registry.submit(key, constraints={"num_cu": 304})
    assert exact["id"] != any_cu["id"], "a job that permits any count may end with a program of another"
    assert registry.submit(key, constraints={"num_cu": 304})["id"] == exact["id"]
    assert registry.submit(key)["id"] == any_cu["id"]
    worker = registry.register_worker("cu120", parts.gpu_capabilities())
    lease = registry.claim(worker)
    assert lease["job"] == any_cu["id"], "the worker has 120 CUs"
    assert registry.submit(key, constraints={"num_cu": 120})["id"] == any_cu["id"], "the claim pinned the count"
    assert registry.submit(key, constraints={"num_cu": 130})["id"] not in (any_cu["id"], exact["id"])
    assert registry.claim(worker) is None
    large = registry.register_worker("cu304", parts.gpu_capabilities(num_cu=304))
    assert registry.claim(large)["job"] == exact["id"]


@on_sqlite
def test_a_principal_has_a_bound_of_open_jobs_of_one_key(registry: Any, parts: Parts) -> None:
    """Every request for the key is compared with all of them."""
    key = parts.gpu_key(env=marked("bound"))
    jobs = [registry.submit(key, constraints={"num_cu": 120 + number}) for number in range(MAX_OPEN_PER_KEY)]
    said = registry.submit_error(key, constraints={"num_cu": 400})
    assert (said["status"], said["code"], said["context"]["open_jobs"]) == (409, "conflict", MAX_OPEN_PER_KEY)
    assert registry.submit(key, constraints={"num_cu": 126})["id"] == jobs[6]["id"], "it joins an open one"
    assert registry.submit(parts.gpu_key(env=marked("free")))["state"] == "queued"
    made = registry.ok("POST", "/v1/tokens", {"name": "other", "scopes": ["ask"]})["secret"]
    body = {"key": key, "constraints": {"num_cu": 400}}
    reply = registry.request("POST", "/v1/jobs", body, headers={"authorization": f"Bearer {made}"})
    assert reply.status == 202, "the bound is for each principal"
    registry.ok("POST", f"/v1/jobs/{jobs[0]['id']}/cancel")
    assert registry.submit(key, constraints={"num_cu": 401})["state"] == "queued"


@on_sqlite
def test_a_running_job_is_shared_only_where_the_worker_knows_the_fact(registry: Any, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_ENABLE_NHWC": "1"})
    job = registry.submit(key)
    worker = registry.register_worker("no-count", parts.gpu_capabilities(num_cu=None))
    assert registry.claim(worker, job=job["id"])["job"] == job["id"]
    assert registry.submit(key, constraints={"num_cu": 120})["id"] != job["id"]


@on_sqlite
def test_an_asker_of_another_rocm_patch_shares_no_job_that_may_call_libraries(registry: Any, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_REWRITE_LRN": "1"})
    job = registry.submit(key)
    worker = registry.register_worker("patched", parts.gpu_capabilities())
    assert registry.claim(worker, job=job["id"])["job"] == job["id"]
    assert registry.submit(key, constraints={"rocm_patch": "7.2.1"})["id"] == job["id"]
    assert registry.submit(key, constraints={"rocm_patch": "7.2.9"})["id"] != job["id"]


@pytest.mark.parametrize("wait", [False, True])
def test_many_who_ask_at_once_make_one_job(registry: Any, parts: Parts, wait: bool) -> None:
    many = crowd(200)
    registry.register_worker()
    key = own(parts, f"many_{wait}")
    together = threading.Barrier(many)

    def ask(_: int) -> str:
        together.wait()
        return str(registry.submit(key, require_worker=wait)["id"])

    with ThreadPoolExecutor(many) as pool:
        ids = set(pool.map(ask, range(many)))
    assert len(ids) == 1
    listed = registry.ok("GET", f"/v1/jobs?digest={registry.job(ids.pop())['digest']}")["items"]
    assert len(listed) == 1


@on_sqlite
def test_the_model_and_the_calibration_data_must_be_there(registry: Any, parts: Parts) -> None:
    stranger = registry.submit_error(own(parts, "stranger") | {"model": "sha256:" + "0" * 64})
    assert stranger["code"] == "no_such_model" and "POST /v1/models" in stranger["hint"]
    swept = registry.register_model(parts.onnx + b"\x32\x07removed")
    registry.rows.execute(f"UPDATE models SET complete = false WHERE model = '{swept}'")
    without_bytes = registry.submit_error(own(parts, "said") | {"model": swept})
    assert without_bytes["code"] == "no_such_model" and "bytes" in without_bytes["detail"]
    uncalibrated = registry.submit_error(own(parts, "int8", precision="int8", calibration="9" * 64))
    assert uncalibrated["code"] == "no_such_blob" and uncalibrated["context"]["missing"] == ["9" * 64]
    part = registry.submit_error(own(parts, "form", form="ort:1"))
    assert part["code"] == "usage" and "GPU programs" in part["detail"]


@on_sqlite
def test_who_waits_is_refused_at_once_where_nobody_is_able(registry: Any, parts: Parts) -> None:
    key = parts.gpu_key(arch="gfx942")
    refused = registry.submit_error(key, require_worker=True, constraints={"num_cu": 304, "xnack": "-"})
    assert refused["code"] == "no_worker" and refused["retry"] is False
    for word in ("gpu", "gfx942:xnack-", "304 CUs", "ROCm 7.2", "MIGraphX 2.15"):
        assert word in refused["detail"]
    assert "GET /v1/workers" in refused["hint"]
    queued = registry.submit(key, constraints={"num_cu": 304, "xnack": "-"})
    assert queued["state"] == "queued"
    assert (
        registry.submit_error(key, require_worker=True, constraints={"num_cu": 304, "xnack": "-"})["code"]
        == "no_worker"
    )
    registry.ok("POST", f"/v1/jobs/{queued['id']}/cancel")


@on_sqlite
def test_a_declared_pool_counts_as_able(start: Start, parts: Parts) -> None:
    pools = (
        '[[pools]]\nname = "mi300"\ntargets = [{arch = "gfx942", num_cu = 304}]\n'
        'toolchain = {rocm = "7.2.1", migraphx = "2.15.0"}\n'
    )
    registry = start(config=pools)
    registry.register_model()
    job = registry.submit(parts.gpu_key(arch="gfx942"), require_worker=True, constraints={"num_cu": 304})
    assert job["state"] == "queued"
    assert (
        registry.submit_error(parts.gpu_key(arch="gfx942"), require_worker=True, constraints={"num_cu": 228})["code"]
        == "no_worker"
    )
    registry.submit(parts.gpu_key(arch="gfx942"), constraints={"num_cu": 228})
    shown = registry.ok("GET", "/v1/pools")
    assert [(pool["name"], pool["queued"], pool["running"]) for pool in shown["items"]] == [("mi300", 1, 0)]
    numbers = registry.ok("GET", "/v1/queue")
    assert numbers["queued"] == 2 and numbers["pools"]["mi300"]["queued"] == 1
    assert registry.ok("GET", "/v1/queue?num_cu=228")["queued"] == 1
    assert registry.ok("GET", "/v1/queue?arch=gfx908")["queued"] == 0
    registry.clear()
    for wrong in ("num_cu=0", "num_cu=65537", "num_cu=-1", "num_cu=x", "cu=1"):
        assert registry.call("GET", f"/v1/queue?{wrong}")[0] == 422, "an empty queue hides nothing"


def test_what_was_published_meanwhile_is_not_compiled(registry: Any, parts: Parts) -> None:
    key = own(parts, "meanwhile")
    job = registry.submit(key)
    published = registry.ok("POST", "/v1/artifacts", registry.publication({"key": key}))
    assert registry.claim(registry.register_worker("late")) is None
    closed = registry.job(job["id"])
    assert closed["state"] == "done" and closed["artifact"] == published["id"]


def test_a_program_that_nobody_asked_for_needs_no_job(registry: Any, parts: Parts) -> None:
    key = own(parts, "pushed")
    published = registry.ok("POST", "/v1/artifacts", registry.publication({"key": key}))
    job = registry.submit(key, require_worker=True)
    assert job["state"] == "done" and job["artifact"] == published["id"] and job["id"] == ""


def test_a_higher_priority_is_claimed_first_then_the_oldest(registry: Any, parts: Parts) -> None:
    first, second, third = (registry.submit(own(parts, f"p{n}"), priority=p) for n, p in enumerate((0, 0, 5)))
    assert registry.job(second["id"])["place"] == 3
    assert registry.submit(own(parts, "p1"), priority=7)["place"] == 1
    worker = registry.register_worker()
    order = [registry.claim(worker)["job"] for _ in range(3)]
    assert order == [second["id"], third["id"], first["id"]]


def test_lists_and_short_ids(registry: Any, parts: Parts) -> None:
    jobs = [registry.submit(own(parts, f"l{n}")) for n in range(5)]
    page = registry.ok("GET", "/v1/jobs?limit=2&state=queued")
    assert [job["id"] for job in page["items"]] == [jobs[4]["id"], jobs[3]["id"]]
    rest = registry.ok("GET", f"/v1/jobs?limit=9&state=open&after={page['next']}")
    assert [job["id"] for job in rest["items"]] == [job["id"] for job in jobs[2::-1]] and rest["next"] is None
    assert registry.ok("GET", f"/v1/jobs?model={parts.model}&digest={jobs[0]['digest']}")["items"][0] == {
        **jobs[0],
        "place": None,
        "waiting_for": None,
    }
    assert registry.ok("GET", "/v1/jobs?arch=gfx908")["items"] == []
    assert registry.job(jobs[1]["id"][:10])["id"] == jobs[1]["id"]
    assert registry.error("GET", "/v1/jobs/0123456789abcdef")["code"] == "not_found"
    assert registry.error("GET", "/v1/jobs/xyz")["code"] == "usage"
    assert registry.error("GET", "/v1/jobs?colour=red")["code"] == "usage"


def test_an_estimate_comes_from_what_it_took_before(registry: Any, parts: Parts) -> None:
    first = registry.submit(own(parts, "e1"))
    assert first["estimate"] is None and first["estimate_from"] is None
    registry.finish(registry.claim(registry.register_worker()))
    second = registry.submit(own(parts, "e2"))
    assert second["estimate"] == 12.5 and "this model" in second["estimate_from"]
