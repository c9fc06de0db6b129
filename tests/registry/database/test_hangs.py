"""A database server that hangs, or has no connection left: what requests wait for, and how long."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness.waiting import until
from registry.registry_client import ONNX_MODEL, Start, ref_key
from servers.postgresql import PostgreSQL
from servers.rows import Rows

ANSWER = 2.0
CLIENTS = 50


@pytest.fixture(scope="module")
def engine() -> str:
    """This is about PostgreSQL alone."""
    return "postgresql"


@pytest.fixture(scope="module")
def server_of_ours() -> Iterator[PostgreSQL]:
    """A server that a test may stop."""
    server = PostgreSQL()
    yield server
    server.remove()


@pytest.fixture
def rows(server_of_ours: PostgreSQL) -> Rows:
    """A migrated database there."""
    url = server_of_ours.migrated()
    return Rows(url, {"MXR_DATABASE_URL": url})


@contextlib.contextmanager
def hung(server: PostgreSQL) -> Iterator[None]:
    """All of its processes are stopped: the kernel takes connections, and nobody answers."""
    assert server.process is not None
    main = server.process.pid
    children = [int(each) for each in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
    for each in (main, *children):
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in (main, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def timed(call: Callable[[], tuple[int, Any]]) -> tuple[int, Any, float]:
    begun = time.monotonic()
    status, said = call()
    return status, said, time.monotonic() - begun


def test_every_request_ends_within_its_time(start: Start, server_of_ours: PostgreSQL, rows: Rows) -> None:
    server = start("--set", f"database.answer={ANSWER}", rows=rows)
    asks: list[Callable[[], tuple[int, Any]]] = [
        lambda: server.call("POST", "/v1/resolve", {"key": ref_key(ONNX_MODEL)}),
        lambda: server.call("GET", "/v1/artifacts"),
        lambda: server.call("GET", "/v1/jobs"),
        lambda: server.call("GET", "/v1/queue"),
        lambda: server.call("GET", "/readyz"),
    ]
    for each in asks:
        assert each()[0] in (200, 404)
    with hung(server_of_ours), ThreadPoolExecutor(CLIENTS) as pool:
        said = list(pool.map(timed, asks * (CLIENTS // len(asks))))
        assert {status for status, _, _ in said} == {503}, said
        assert {problem["code"] for _, problem, _ in said} == {"temporary"}
        # The connections that are there hang for `answer`, one that is made as long as libpq waits at least.
        assert max(seconds for _, _, seconds in said) < ANSWER + 15, sorted(seconds for *_, seconds in said)
        status, problem, seconds = timed(lambda: server.call("GET", "/readyz"))
        assert status == 503 and "database" in problem["detail"] and seconds < 5
        assert server.call("GET", "/healthz") == (200, {"ok": True})
        metrics = server.get("/metrics")
        # A token that was valid a moment ago reads them: they tell that the database is away.
        assert metrics.status == 200 and 'mxr_up{part="database"} 0.0' in metrics.data.decode()
        assert "mxr_fleet_jobs" not in metrics.data.decode() and 'mxr_up{part="store"} 1.0' in metrics.data.decode()
    until(lambda: server.call("GET", "/readyz")[0] == 200)
    assert {each()[0] for each in asks} <= {200, 404}


def test_one_slow_statement_is_no_hang(start: Start, server_of_ours: PostgreSQL, rows: Rows) -> None:
    """A lock that one request waits for keeps nobody else out."""
    server = start("--set", "database.answer=1", rows=rows)
    assert {server.call("GET", path)[0] for path in ("/v1/artifacts", "/v1/tokens")} == {200}
    with contextlib.closing(psycopg.connect(rows.url)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE artifacts")
        blocked = pool.submit(timed, lambda: server.call("GET", "/v1/artifacts"))
        others = []
        while not blocked.done():
            others.append(server.call("GET", "/v1/tokens")[0])
        status, said, seconds = blocked.result()
        assert (status, said["code"]) == (503, "temporary") and "took too long" in said["detail"] and seconds > 0.9
        others += [server.call("GET", "/v1/tokens")[0] for _ in range(10)]
        assert set(others) == {200} and len(others) > 12
    assert server.call("GET", "/v1/artifacts")[0] == 200


def test_a_burst_beyond_the_connections_waits_its_turn(start: Start, server_of_ours: PostgreSQL, rows: Rows) -> None:
    server_of_ours.execute("CREATE ROLE small LOGIN CONNECTION LIMIT 6")
    name = rows.url.partition("@/")[2].partition("?")[0]
    server_of_ours.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO small", name)
    server_of_ours.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO small", name)
    url = server_of_ours.url(name, "small")
    server = start(rows=Rows(url, {"MXR_DATABASE_URL": url}))
    asks: list[tuple[Any, ...]] = [("GET", "/v1/artifacts"), ("POST", "/v1/resolve", {"key": ref_key(ONNX_MODEL)})]
    assert [server.call(*each)[0] for each in asks] == [200, 404]
    with ThreadPoolExecutor(64) as pool:
        statuses = [each.result()[0] for each in [pool.submit(server.call, *each) for each in asks * 60]]
    assert set(statuses) == {200, 404}, statuses
    # What is written in the background may find none left, and says so.
    log = server.log.read_text()
    assert not [each for each in asks if f"{each[0]} {each[1]}: " in log]
