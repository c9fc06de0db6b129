"""A registry on PostgreSQL: how it starts and refuses to, and the bad days of its database."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import psycopg
import pytest
from harness.programs import run as run_program
from harness.waiting import until
from harness.workers import claim_of
from paths import DATA
from registry.registry_client import Parts, RegistryUnderTest, Start
from servers.postgresql import PostgreSQL, name_in
from servers.rows import Databases, Rows

SECRET = "s3cr%t/word"


@pytest.fixture(scope="module")
def engine() -> str:
    """This is about PostgreSQL alone."""
    return "postgresql"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_program(["mxr-registry", *words], env={**os.environ, **environ})


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines for a person; the log's are left out."""
    return [line for line in done.stderr.splitlines() if " WARNING " not in line]


# How it starts.


def test_it_refuses_a_schema_that_is_behind_and_says_what_to_do(postgresql: PostgreSQL, tmp_path: Path) -> None:
    url = postgresql.empty()
    environ = {"MXR_DATABASE_URL": url}
    refused = run("serve", "--port", "0", "--data", str(tmp_path / "data"), **environ)
    lines = said(refused)
    assert refused.returncode == 75 and "empty" in lines[0] and "mxr-registry migrate" in lines[1], refused
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run("migrate", "--json", **environ), range(3)))
    assert [each.returncode for each in done] == [0, 0, 0], done
    assert len({each.stdout for each in done}) == 1
    assert not (tmp_path / "data" / "registry.db").exists()
    postgresql.drop(url)


def test_it_says_where_rows_and_bytes_are(start: Start, rows_with_password: Rows) -> None:
    server = start(rows=rows_with_password)
    assert "database postgresql:///" in server.line and "store file:///" in server.line
    assert server.call("GET", "/readyz") == (200, {"database": "ok", "ok": True, "store": "ok"})
    assert SECRET not in server.line + server.log.read_text()


@pytest.fixture(scope="module")
def scram() -> Iterator[PostgreSQL]:
    """A server that asks for passwords of all but its superuser."""
    server = PostgreSQL(max_connections="13", superuser_reserved_connections="3")
    try:
        server.execute(f"CREATE ROLE fleet LOGIN PASSWORD '{SECRET}'")
        (server.folder / "data" / "pg_hba.conf").write_text("local all mxr trust\nlocal all all scram-sha-256\n")
        server.restart()
        yield server
    finally:
        server.remove()


@pytest.fixture
def rows_with_password(scram: PostgreSQL) -> Rows:
    """A migrated database of a user who has a password."""
    name = name_in(scram.migrated())
    scram.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO fleet", name)
    scram.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO fleet", name)
    url = scram.url(name, "fleet", SECRET)
    return Rows(url, {"MXR_DATABASE_URL": url})


def test_what_stands_in_the_way_is_said_without_the_password(scram: PostgreSQL) -> None:
    mine = scram.url("postgres", "fleet", SECRET)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        closed = f"postgresql://fleet:sesame@127.0.0.1:{nobody.getsockname()[1]}/mxr"
        cases = {
            closed: "Connection refused",
            scram.url("postgres", "fleet", "sesame"): "rejected the credentials",
            scram.url("nothing", "fleet", SECRET): "does not exist",
            mine: "lacks a permission",
            "postgresql://fleet:se@same@host/mxr": "%40",
            "postgresql://fleet:x@s3cr/et@host/mxr": "%40",
            "postgresql://fleet:sesame@host:sesame/mxr": "not a valid URL",
            "postgresql+nothing://fleet:sesame@host/mxr": "MXR_DATABASE_URL",
        }
        for url, words in cases.items():
            done = run("migrate", MXR_DATABASE_URL=url)
            assert done.returncode in (2, 75) and len(said(done)) == 2, done
            assert words in said(done)[0] + said(done)[1], done
            for secret in ("sesame", "same@", SECRET, "s3cr"):
                assert secret not in done.stdout + done.stderr


def test_an_owner_may_migrate_and_serve(scram: PostgreSQL, start: Start) -> None:
    scram.execute("CREATE DATABASE fleet OWNER fleet TEMPLATE template0")
    url = scram.url("fleet", "fleet", SECRET)
    assert run("migrate", MXR_DATABASE_URL=url).returncode == 0
    server = start(rows=Rows(url, {"MXR_DATABASE_URL": url}))
    assert server.call("GET", "/readyz")[0] == 200


def test_a_new_password_in_the_file_is_taken_without_a_restart(
    scram: PostgreSQL, rows_with_password: Rows, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "url"
    file.write_text(rows_with_password.url + "\n")
    server = start(rows=Rows(rows_with_password.url, {"MXR_DATABASE_URL_FILE": str(file)}))
    assert server.call("GET", "/v1/artifacts")[0] == 200
    assert SECRET not in server.line + server.log.read_text()
    try:
        scram.execute("ALTER ROLE fleet PASSWORD 'another'")
        close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fleet'"
        scram.execute(close)
        assert server.call("GET", "/v1/artifacts")[0] == 503
        file.write_text(scram.url(name_in(rows_with_password.url), "fleet", "another"))
        assert server.call("GET", "/v1/artifacts")[0] == 200
        # A Secret that is being replaced: the last that was read goes on.
        file.write_text("")
        scram.execute(close)
        assert server.call("GET", "/v1/artifacts")[0] == 200
    finally:
        scram.execute(f"ALTER ROLE fleet PASSWORD '{SECRET}'")


def test_the_file_of_the_url_is_named_where_it_is_of_no_use(tmp_path: Path) -> None:
    file = tmp_path / "url"
    for text, words in ((None, "No such file"), ("", "has no URL"), ("postgresql://a:sesame@b/c d", "more than one")):
        if text is not None:
            file.write_text(text)
        done = run("migrate", MXR_DATABASE_URL_FILE=str(file))
        assert (done.returncode, "sesame" in done.stderr) == (2, False)
        assert words in done.stderr and str(file) in done.stderr
    both = run("migrate", MXR_DATABASE_URL_FILE=str(file), MXR_DATABASE_URL="postgresql://a:sesame@b/c")
    assert both.returncode == 2 and "Set one of them" in both.stderr and "sesame" not in both.stderr


# Bad days.


def resolve(server: RegistryUnderTest, parts: Parts) -> tuple[int, Any]:
    return server.call("POST", "/v1/resolve", {"key": parts.gpu_key()})


@pytest.fixture(scope="module")
def restartable() -> Iterator[PostgreSQL]:
    """A server that tests may stop, restart and break; it logs all statements."""
    server = PostgreSQL(log_statement="all")
    yield server
    server.remove()


@pytest.fixture
def own(
    restartable: PostgreSQL, own_postgresql: Any, start: Start, parts: Parts, request: pytest.FixtureRequest
) -> tuple[PostgreSQL, Any]:
    """A server that may be stopped, and a registry on it with one artifact; with a parameter, a server of its own."""
    if hasattr(request, "param"):
        database: PostgreSQL = own_postgresql(**request.param)
    else:
        database = restartable
        if database.process is None:
            database.start()
    url = database.migrated()
    server = start(rows=Rows(url, {"MXR_DATABASE_URL": url}))
    assert server.publish(parts.gfx908, parts.gpu_key(), **parts.explicit)[0] == 201
    return database, server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_restart_between_requests_does_not_show(
    own: tuple[PostgreSQL, Any], parts: Parts, how: signal.Signals
) -> None:
    database, server = own
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: resolve(server, parts), range(16)))
        database.restart(how)
        assert {status for status, _ in pool.map(lambda _: resolve(server, parts), range(16))} == {200}
    database.restart(how)
    assert server.call("GET", "/v1/artifacts")[0] == 200
    database.restart(how)
    assert server.upload(b"after the restart")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_request_that_a_restart_cuts_off_is_told_to_come_again(
    own: tuple[PostgreSQL, Any], parts: Parts, how: signal.Signals
) -> None:
    database, server = own
    stated = server.registration()
    with contextlib.closing(psycopg.connect(server.rows.url)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE models")
        waiting = pool.submit(server.call, "POST", "/v1/models", stated)
        blocked = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'mxr-registry' AND wait_event_type = 'Lock'"
        until(lambda: database.execute(blocked))
        database.restart(how)
        status, error = waiting.result()
    assert (status, error["code"], error["retry"]) == (503, "temporary", True)
    assert server.call("POST", "/v1/models", stated)[0] == 201


def test_a_database_that_is_away_is_said_and_comes_back(own: tuple[PostgreSQL, Any], parts: Parts) -> None:
    database, server = own
    database.stop()
    for status, said in (resolve(server, parts), server.call("GET", "/readyz"), server.call("GET", "/v1/artifacts")):
        assert (status, said["code"], said["retry"]) == (503, "temporary", True)
    assert server.call("GET", "/healthz")[0] == 200
    database.start()
    assert resolve(server, parts)[0] == 200


def test_a_waiter_outlasts_a_restart(own: tuple[PostgreSQL, Any], parts: Parts) -> None:
    """Its long poll goes on, and hears what comes after."""
    database, server = own
    can = {"targets": [{"arch": "gfx908", "num_cu": 120, "sramecc": "+", "xnack": "-"}]}
    can |= {"toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}}
    worker = server.register_worker("one", can)
    looks = database.log.read_text().count("jobs.touched >")
    waiting = server.pending("POST", "/v1/jobs/claim", claim_of(worker, wait=60))
    # What it waits by: the looks for news, of which the first may come before the claim's own.
    until(lambda: database.log.read_text().count("jobs.touched >") >= looks + 4)
    database.restart(signal.SIGQUIT)
    stated = server.registration()
    assert server.call("POST", "/v1/models", stated)[0] == 201
    key = parts.gpu_key("gfx908", model=stated["model"])
    status, job = server.call("POST", "/v1/jobs", {"key": key})
    assert status == 202, job
    status, lease = waiting.reply()
    assert (status, lease["lease"]["job"]) == (200, job["id"])


def test_a_read_only_database_still_serves(own: tuple[PostgreSQL, Any], parts: Parts) -> None:
    database, server = own
    stated = server.registration()
    name = name_in(server.rows.url)
    database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database.restart()
    assert resolve(server, parts)[0] == 200
    assert server.call("POST", "/v1/resolve", {"key": parts.gpu_key("gfx90a")})[0] == 404
    status, said = server.call("POST", "/v1/models", stated)
    assert (status, said["code"]) == (503, "temporary") and "read-only" in said["detail"]
    database.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    database.restart()
    assert server.call("POST", "/v1/models", stated)[0] == 201


@pytest.mark.parametrize("own", [{"largest": 20 * 2**20}], indirect=True)
def test_a_full_database_takes_nothing_more_and_recovers(own: tuple[PostgreSQL, Any], parts: Parts, fsck: Any) -> None:
    """A limit on the size of its files stands in for the disk: it needs no rights."""
    database, server = own
    url = server.rows.url
    with pytest.raises(psycopg.Error, match="File too large"):
        database.execute(
            "INSERT INTO blobs SELECT 'filler', lpad(n::text, 64, '0'), n, 1, 1, NULL "
            "FROM generate_series(1, 400000) n",
            name_in(url),
        )
    data = b"one more"
    path = f"/v1/blobs/{sha256(data).hexdigest()}"
    status, said = server.call("PUT", path, data)
    assert (status, said["code"], said["retry"]) == (507, "disk_full", True), said
    assert resolve(server, parts)[0] == 200
    database.execute("VACUUM blobs", name_in(url))
    assert server.call("PUT", path, data)[0] == 201
    assert fsck(server.data, environ=server.rows.environ)[0] == 0


def test_too_many_connections_are_said_and_pass(
    scram: PostgreSQL, rows_with_password: Rows, start: Start, parts: Parts
) -> None:
    server = start("--set", "database.answer=5", rows=rows_with_password)
    assert server.call("GET", "/v1/artifacts")[0] == 200
    held = [psycopg.connect(rows_with_password.url) for _ in range(9)]
    with ThreadPoolExecutor(8) as pool:
        # It has the one connection that it opened at its start: all wait for that one.
        assert {status for status, _ in pool.map(lambda _: server.call("GET", "/v1/artifacts"), range(40))} == {200}
    scram.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mxr-registry'")
    # Its place is free some time after the call that ended it.
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mxr-registry'"
    until(lambda: int(scram.execute(left)[0][0]) == 0)
    held.append(psycopg.connect(rows_with_password.url))
    status, refused = server.call("GET", "/v1/artifacts")
    assert (status, refused["retry"]) == (503, True)
    assert "too many connections" in refused["detail"] and "pool" in refused["hint"]
    for each in held:
        each.close()
    with ThreadPoolExecutor(4) as pool:
        assert {status for status, _ in pool.map(lambda _: server.call("GET", "/v1/artifacts"), range(40))} == {200}


def test_a_small_pool_is_enough_for_many(databases: Databases, tmp_path: Path, start: Start, parts: Parts) -> None:
    rows = databases(tmp_path / "data")
    server = start(rows=Rows(rows.url, rows.environ | {"MXR_DATABASE_POOL": "2"}))
    with ThreadPoolExecutor(16) as pool:
        assert {status for status, _ in pool.map(lambda _: server.call("GET", "/v1/artifacts"), range(80))} == {200}
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'mxr%'"
    assert rows.execute(count)[0][0] <= 2


def onnx_named(name: str) -> bytes:
    """A model that differs from others in its name only."""
    model = onnx.load(str(DATA / "models" / "convnet.onnx"))
    model.graph.name = name
    return bytes(model.SerializeToString())


@pytest.fixture
def hasty(databases: Databases, tmp_path: Path, start: Start) -> Any:
    """A registry with one connection, for which nobody waits as long as it waits for a lock."""
    config = tmp_path / "registry.toml"
    config.write_text("[database]\nlock = 3\nstatement = 6\npool = 1\nwait = 0.2\n")
    rows = databases(tmp_path / "data")
    return start(rows=Rows(rows.url, rows.environ | {"MXR_REGISTRY_CONFIG": str(config)}))


def test_nobody_waits_for_a_lock_or_a_statement_for_ever(hasty: Any) -> None:
    stated = hasty.registration()
    # Registrations of one model follow one another: these are of several.
    others = [hasty.registration(onnx_named(name)) for name in ("one", "two", "three")]
    with psycopg.connect(hasty.rows.url) as other:
        other.execute("LOCK TABLE models IN SHARE MODE")
        status, said = hasty.call("POST", "/v1/models", stated)
        assert (status, said["detail"]) == (503, "The registry's database is busy.")
        with ThreadPoolExecutor(3) as pool:
            replies = list(pool.map(lambda each: hasty.call("POST", "/v1/models", each), others))
        assert any("too many requests" in said["detail"] for _, said in replies), replies
    assert hasty.call("POST", "/v1/models", stated)[0] == 201
