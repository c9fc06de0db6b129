"""Threads of requests: resolves and probes have their own, and all that use the database find a connection."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest
from harness.waiting import requests_read
from registry.registry_client import ONNX_MODEL, REF, REF_CAPABILITIES, ref_key

from mxr_registry.config.connections import ConnectionSettings
from mxr_registry.config.limits import RequestLimits
from mxr_registry.jobs.notifications import THREADS as WATCHING
from mxr_registry.routes.threads import PROBES, RESOLVES, SHARED


@pytest.fixture(scope="module")
def engine() -> str:
    """The test holds the one write lock of SQLite."""
    return "sqlite"


def test_resolves_and_probes_do_not_wait_behind_other_requests(server: Any) -> None:
    key = ref_key(ONNX_MODEL)
    assert server.publish(REF, key)[0] == 201
    with contextlib.closing(sqlite3.connect(server.data / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = [
            server.pending("POST", "/v1/workers", {"name": f"w{number}", "can": REF_CAPABILITIES})
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


def test_a_resolve_finds_a_connection_whatever_other_threads_do() -> None:
    sweep = 1
    others = SHARED + PROBES + RequestLimits().inspections + 2 * WATCHING + sweep
    assert others + RESOLVES <= ConnectionSettings().pool
