"""Jobs and the fleet: what waits and who could take it, where the time of a job went, and who sees whose."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import Parts, RegistryUnderTest, gpu_capabilities, marked, on_sqlite


@pytest.fixture
def parts(registry: RegistryUnderTest) -> Parts:
    """Keys of a model that the registry has."""
    return Parts(registry.register_model(name="night.onnx"))


def data(visitor: Visitor, path: str) -> Any:
    reply = visitor.send("GET", path)
    assert reply.status == 200, reply.data
    return json.loads(reply.data)


def test_a_job_shows_where_its_time_went(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    worker = registry.register_worker("node-04/9f2c", gpu_capabilities())
    job = registry.submit(parts.gpu_key())
    lease = registry.claim(worker)
    registry.heartbeat(lease, phase="compile", log="tuning \x1b[31m96</pre><b>kernels\n")
    visitor = signed_in()
    path = f"/jobs/{job['id'][:12]}"
    page, said = visitor.page(path), visitor.text(path)
    assert "night.onnx for gfx908" in said and "node-04/9f2c" in said and "tuning \\x1b[31m96" in page
    assert "<b>kernels" not in page and "\x1b" not in page and 'data-offset="' in page
    registry.fail(lease, "permanent", message="operator not supported")
    found = data(visitor, f"{path}.json")
    (attempt,) = found["attempts"]
    assert (attempt["state"], [each["phase"] for each in attempt["phases"]]) == ("failed", ["compile"])
    assert [each["state"] for each in found["events"]] == ["failed", "running", "queued"]
    assert "permanent: operator not supported" in visitor.text(path) and "data-offset" not in visitor.page(path)


def test_the_script_gets_the_rest_of_a_log(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    worker = registry.register_worker("one", gpu_capabilities())
    job = registry.submit(parts.gpu_key())
    lease = registry.claim(worker)
    visitor = signed_in()
    begin = data(visitor, f"/jobs/{job['id']}.json")["log"]["size"]
    registry.heartbeat(lease, phase="compile", log="more\n")
    reply = visitor.send("GET", f"/jobs/{job['id']}/log?offset={begin}")
    assert (reply.data, reply.headers["mxr-job-state"], reply.headers["mxr-log-next"]) == (
        b"more\n",
        "running",
        str(begin + 5),
    )
    assert reply.headers["content-type"].startswith("text/plain") and reply.headers["cache-control"] == "no-store"


def test_each_sees_its_own_jobs(registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts) -> None:
    job = registry.submit(parts.gpu_key())
    eve = signed_in("eve", "ask", "fetch")
    assert data(eve, "/jobs.json")["jobs"] == [] and "an administrator sees all" in eve.text("/jobs")
    for path in (f"/jobs/{job['id']}", f"/jobs/{job['id']}.json", f"/jobs/{job['id']}/log"):
        assert eve.send("GET", path).status == 404
    assert [each["id"] for each in data(signed_in(), "/jobs.json")["jobs"]] == [job["id"]]


def test_what_nobody_can_do_is_said(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    registry.register_worker("one", gpu_capabilities())
    registry.submit(parts.gpu_key())
    registry.submit(parts.gpu_key("gfx1100"))
    visitor = signed_in()
    lanes = {each["target"]: each for each in data(visitor, "/jobs.json")["lanes"]}
    assert (lanes["gfx908"]["served"], lanes["gfx1100"]["served"]) == (True, False)
    assert len(lanes["gfx1100"]["ages"]) == lanes["gfx1100"]["queued"] == 1
    assert "No live worker for gfx1100, ROCm 7.2, MIGraphX 2.15" in visitor.text("/fleet")
    assert "nobody" in visitor.text("/jobs")


def test_what_each_worker_did_in_a_day(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    worker = registry.register_worker("node-04/9f2c", gpu_capabilities())
    registry.submit(parts.gpu_key())
    registry.fail(registry.claim(worker), "permanent")
    registry.submit(parts.gpu_key(env=marked("2")))
    registry.claim(worker)
    visitor = signed_in()
    found = data(visitor, "/fleet.json")
    (seen,) = found["workers"]
    assert (seen["name"], seen["state"], seen["failed"], seen["done"]) == ("node-04/9f2c", "busy", 1, 0)
    assert {each["state"] for each in seen["day"]} == {"failed", "running"}
    assert found["counts"] == {"registered": 1, "live": 1}
    registry.age_workers()
    assert "0 of 1 workers are live" in visitor.text("/fleet")


@on_sqlite
def test_a_thousand_failures_and_workers_are_small_pages(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    worker = registry.register_worker("one", gpu_capabilities())
    registry.submit(parts.gpu_key())
    registry.fail(registry.claim(worker), "permanent", message="<" * 4_000)
    columns = [
        row[1] for row in registry.rows.execute("PRAGMA table_info(jobs)") if row[1] not in ("seq", "id", "terms")
    ]
    names = ", ".join(columns)
    registry.rows.execute(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000) "
        f"INSERT INTO jobs (id, terms, {names}) SELECT printf('%032x', x), printf('%064x', x), {names} FROM n, jobs",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000) "
        "INSERT INTO attempts (job, namespace, worker, started_at, ended_at, state, note, phases_json) "
        "SELECT job, namespace, worker, started_at - x, ended_at - x, state, note, phases_json FROM n, attempts",
    )
    visitor, seen, path = signed_in(), list[str](), "/jobs.json?state=failed"
    while path:
        found = data(visitor, path)
        seen += [each["id"] for each in found["jobs"]]
        path = f"/jobs.json?state=failed&after={found['next']}" if found["next"] else ""
    assert len(seen) == len(set(seen)) == 1_001 and found["ended"]["failed"] == 1_001
    for page in ("/jobs", "/fleet", "/"):
        assert len(visitor.page(page)) < 100_000, page


def test_a_form_sends_what_is_not_filled_in_too(signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in()
    for path in ("/jobs?name=&state=&arch=", "/?name=&arch=&by=&hours=24", "/fleet?after="):
        assert visitor.page(path)


@pytest.mark.parametrize("path", ["/jobs/x", "/jobs/" + "0" * 32, "/jobs/%22%3E", "/jobs/..%2f", "/jobs?state=x"])
def test_addresses_that_lead_nowhere(signed_in: Callable[..., Visitor], path: str) -> None:
    reply = signed_in().send("GET", path)
    assert reply.status in (404, 422) and (b"The first page" in reply.data or b"No such route" in reply.data)
