"""Threads of requests: resolves and probes have their own, and all that use the database find a connection."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from harness.waiting import requests_read
from harness.workers import registration_of
from registry.registry_client import ONNX_MODEL, REF, REF_CAPABILITIES, RegistryUnderTest, gpu_key, ref_key

from mxr.artifact.limits import MAX_OPEN_PER_KEY
from mxr_registry.config.connections import ConnectionSettings
from mxr_registry.config.limits import RequestLimits
from mxr_registry.jobs.notifications import THREADS as WATCHING
from mxr_registry.server.threads import LEASES, RESOLVES, SHARED, SURVEYS


@pytest.fixture(scope="module")
def engine() -> str:
    """The test holds the one write lock of SQLite."""
    return "sqlite"


def test_resolves_and_probes_do_not_wait_behind_other_requests(server: RegistryUnderTest) -> None:
    key = ref_key(ONNX_MODEL)
    assert server.publish(REF, key)[0] == 201
    with contextlib.closing(sqlite3.connect(server.data / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = [
            server.pending("POST", "/v1/workers", registration_of(f"w{number}", REF_CAPABILITIES))
            for number in range(3 * SHARED)
        ]
        # These need no lock, or not for long, but a place among the shared threads.
        miss = {"key": ref_key(ONNX_MODEL, precision="fp32"), "constraints": {}}
        behind = [server.pending("POST", "/v1/resolve", miss) for _ in range(3 * RESOLVES)]
        behind.append(server.pending("GET", "/v1/jobs?limit=1"))
        requests_read(*waiting, *behind)
        assert server.call("POST", "/v1/resolve", {"key": key, "constraints": {}})[0] == 200
        assert server.call("GET", "/readyz")[0] == 200
        assert not any(each.answered for each in behind)
        other.execute("ROLLBACK")
    assert [each.reply()[0] for each in behind] == [404] * 3 * RESOLVES + [200]
    # 503 where a slow machine held the lock longer than a write waits.
    assert {each.reply()[0] for each in waiting} <= {200, 201, 503}


def test_surveys_keep_no_worker_from_its_lease(server: RegistryUnderTest) -> None:
    """They held all shared threads, for almost an hour, and every lease expired meanwhile."""
    server.clear()
    model = server.register_model()
    server.submit(ref_key(model))
    lease = server.claim(server.register_worker())
    key = gpu_key(model)
    for number in range(MAX_OPEN_PER_KEY):
        server.submit(key, constraints={"num_cu": 120 + number})
    requests = [{"key": key, "constraints": {"num_cu": 1000 + number}} for number in range(150)]
    surveys = [server.pending("POST", "/v1/survey", {"requests": requests}) for _ in range(16)]
    requests_read(*surveys)
    assert server.heartbeat(lease)["cancelled"] is False
    assert server.finish(lease)["state"] == "done"
    assert sum(each.answered for each in surveys) < len(surveys) / 2, "they are not done yet"
    assert {each.reply()[0] for each in surveys} == {200}


def test_a_resolve_finds_a_connection_whatever_other_threads_do() -> None:
    sweep = probe = 1
    others = SHARED + LEASES + SURVEYS + probe + RequestLimits().inspections + 2 * WATCHING + sweep
    assert others + RESOLVES <= ConnectionSettings().pool
