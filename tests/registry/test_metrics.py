"""What `/metrics` tells: of this process, of what it reaches, and of what the database has."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from harness.programs import run as run_program
from harness.waiting import until
from registry.registry_client import ONNX_MODEL, RegistryUnderTest, Start, gpu_key, marked, ref_key

from mxr.version import __version__


def own(name: str, **other: Any) -> dict[str, Any]:
    return ref_key(ONNX_MODEL, env=marked(name), **other)


def run(server: RegistryUnderTest, *words: str) -> None:
    done = run_program(["mxr-registry", *words, "--data", str(server.data)], env=os.environ | server.environ)
    assert done.returncode == 0, done


def test_compiles_and_resolves(start: Start) -> None:
    registry = start()
    registry.register_model()
    key = own("metrics")
    assert registry.call("POST", "/v1/resolve", {"key": key})[0] == 404
    registry.submit(key)
    registry.submit(gpu_key(ONNX_MODEL))
    worker = registry.register_worker()
    registry.finish(registry.claim(worker))
    registry.ok("POST", "/v1/resolve", {"key": key})
    assert registry.call("POST", "/v1/resolve", {"key": own("metrics", fast_math=False)})[0] == 404
    assert registry.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    lane = {"arch": "gfx908", "vendor": "amd", "kind": "gpu", "rocm": "7.2", "migraphx": "2.15"}
    miss = "mxr_resolve_misses_total"
    found = {
        "queued": registry.metric("mxr_fleet_jobs", state="queued"),
        "done": registry.metric("mxr_fleet_jobs", state="done"),
        "lane": registry.metric("mxr_fleet_queue_jobs", **lane, state="queued"),
        "unserved": registry.metric("mxr_fleet_unserved_jobs", **lane),
        "idle": registry.metric("mxr_fleet_workers", state="idle", arch="ref", migraphx="2.16.0", rocm=""),
        "artifacts": registry.metric("mxr_fleet_artifacts", state="intact"),
        "models": registry.metric("mxr_fleet_models"),
        "compiles": registry.metric("mxr_compile_seconds_count", arch="ref"),
        "done here": registry.metric("mxr_compiles_total", arch="ref", outcome="done"),
        "hits": registry.metric("mxr_resolve_hits_total"),
        "no program": registry.metric(miss, reason="no_program"),
        "options": registry.metric(miss, reason="options"),
        "database": registry.metric("mxr_up", part="database"),
        "store": registry.metric("mxr_up", part="store"),
    }
    assert found == dict.fromkeys(found, 1)
    assert registry.metric("mxr_compile_seconds_sum", arch="ref") == 12.5
    assert (registry.metric("mxr_fleet_queue_oldest_seconds", **lane) or 0) > 0
    # A lost artifact is a reason of its own, and the bytes that are gone are counted where it was found.
    artifact = registry.ok("POST", "/v1/resolve", {"key": key})["artifact"]
    registry.blob_path(artifact["sha256"]).unlink()
    assert registry.get(f"/v1/blobs/{artifact['sha256']}").status == 404
    assert registry.call("POST", "/v1/resolve", {"key": key})[0] == 404
    assert registry.metric(miss, reason="lost") == registry.metric("mxr_lost_blobs_total") == 1
    assert registry.metric("mxr_fleet_artifacts", state="lost") == 1


def test_ends_of_attempts(start: Start) -> None:
    registry = start()
    registry.register_model()
    worker = registry.register_worker()
    ends = []
    for number, kind in enumerate(("permanent", "transient", "poison")):
        registry.submit(own(f"end{number}"))
        lease = registry.claim(worker)
        registry.fail(lease, kind)
        ends.append(lease["job"])
    registry.end_backoff(ends[2])
    registry.fail(registry.claim(worker, job=ends[2]), "poison")
    registry.ok("POST", f"/v1/jobs/{ends[1]}/cancel")
    lost = registry.submit(own("lost"))["id"]
    assert registry.claim(worker)["job"] == lost
    registry.lose_lease(lost, worker)
    expected = {"failed": 1, "retried": 2, "quarantined": 1, "lost": 1}
    counted = {outcome: registry.metric("mxr_compiles_total", arch="ref", outcome=outcome) for outcome in expected}
    assert counted == expected


def test_requests_and_this_process(start: Start) -> None:
    registry = start()
    sent = b"some bytes" * 5000
    name = registry.upload(sent)["sha256"]
    route = {"route": "PUT /v1/blobs/{sha256}"}
    for _ in range(3):
        assert registry.get("/v1/artifacts/00000000").status == 404
    assert registry.get("/v1/blobs/" + name).data == sent
    for path in ("/nothing", "/wp-admin.php", "/nothing/else"):
        assert registry.get(path).status == 404
    assert registry.metric("mxr_http_requests_total", **route, status="201") == 1
    assert registry.metric("mxr_http_received_bytes_total", **route) == len(sent)
    assert registry.metric("mxr_http_sent_bytes_total", route="GET /v1/blobs/{sha256}") == len(sent)
    assert registry.metric("mxr_http_requests_total", route="GET /v1/artifacts/{id}", status="404") == 3
    assert registry.metric("mxr_http_request_seconds_count", route="GET /v1/artifacts/{id}") == 3
    # What nobody routes is one route, however many paths are tried.
    assert registry.metric("mxr_http_requests_total", route="none", status="404") == 3
    assert registry.metric("mxr_fleet_stored_bytes") == len(sent)
    assert (registry.metric("mxr_free_bytes", part="store") or 0) > 0
    assert (registry.metric("process_start_time_seconds") or 0) > time.time() - 600
    text = registry.get("/metrics").data.decode()
    assert f'version="{__version__}"' in text and "wp-admin" not in text and "_created" not in text
    run(registry, "token", "create", "soon", "--scopes", "fetch", "--expires", "5d")
    assert [registry.metric("mxr_fleet_tokens_expiring", within=each) for each in ("1d", "7d", "30d")] == [0, 1, 1]


def test_runs_of_maintenance(start: Start) -> None:
    registry = start()
    begun = time.time()
    run(registry, "sweep")
    run(registry, "sweep", "--dry-run")
    run(registry, "fsck")
    for kind in ("sweep", "fsck"):
        assert (registry.metric("mxr_fleet_last_run_timestamp_seconds", run=kind) or 0) > begun - 60
    assert registry.metric("mxr_fleet_last_run_timestamp_seconds", run="backup") is None
    (swept,) = registry.rows.execute("SELECT principal, detail_json FROM events WHERE kind = 'sweep'")
    assert swept[0] == "mxr-registry" and json.loads(swept[1])["artifacts"] == 0


def test_they_are_served_while_the_store_is_away(start: Start) -> None:
    registry = start()
    store = registry.data / "store"
    store.rename(registry.data / "elsewhere")
    until(lambda: registry.metric("mxr_up", part="store") == 0)
    assert registry.metric("mxr_up", part="database") == 1
    assert registry.metric("mxr_fleet_models") == 0
