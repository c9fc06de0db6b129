"""Moving a registry to another database and store: all of it arrives and goes on there, or nothing does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from harness.registry import signing_key
from migrations.steps import contents, fill, reflected
from registry.registry_client import Parts, RegistryUnderTest, Start, on_sqlite
from servers.rows import ENGINES, Databases, Rows
from servers.swift import Bucket

from mxr.errors import UsageError
from mxr_registry.database import schema
from mxr_registry.database.session import Database
from mxr_registry.maintenance.move import SEEDED, Move

PATHS = ("/v1/artifacts", "/v1/models", "/v1/misses", "/v1/jobs", "/v1/workers", "/v1/blobs/{blob}")


def other(engine: str) -> str:
    return next(name for name in ENGINES if name != engine)


@pytest.fixture
def targets(engine: str, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of the other kind than the source's."""
    found = Databases(other(engine), lambda: request.getfixturevalue("postgresql"))
    yield found
    found.drop()


@pytest.fixture
def target(tmp_path: Path, targets: Databases) -> Rows:
    """An empty database with its tables."""
    (tmp_path / "there").mkdir()
    rows = targets(tmp_path / "there")
    db = Database(rows.url)
    schema.upgrade(db)
    db.close()
    return rows


@pytest.fixture(scope="module")
def snapshot(snapshot_of: Any, parts: Parts) -> Any:
    """A registry with a bit of everything; the facts are the name of a blob, and what it tells over HTTP."""

    def fill(server: RegistryUnderTest) -> tuple[str, dict[str, Any]]:
        first = server.publish(parts.gfx908, parts.gpu_key(), cut=5000, **parts.explicit)[1]
        gone = server.publish(parts.gfx942, parts.gpu_key("gfx942"), **parts.explicit)[1]
        server.call("POST", f"/v1/artifacts/{first['id']}/promote")
        server.call("DELETE", f"/v1/artifacts/{gone['id']}")
        server.call("POST", "/v1/resolve", {"key": parts.gpu_key("gfx90a")})
        can = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.16.0"}}
        server.register_worker("one", can)
        blob = first["manifest"]["files"][0]["blobs"][0]["sha256"]
        return blob, said(server, blob)

    return snapshot_of(fill)


@pytest.fixture
def source(tmp_path: Path, snapshot: Any, databases: Databases) -> Any:
    """What that registry keeps, for this test; it does not run."""
    found = snapshot.copy(tmp_path / "data", databases)
    found.blob, found.before = snapshot.facts
    return found


def said(server: RegistryUnderTest, blob: str) -> dict[str, Any]:
    """What a registry tells over HTTP."""
    paths = [path.format(blob=blob) for path in PATHS]
    replies = {path: server.get(path).data for path in paths}
    workers = json.loads(replies["/v1/workers"])
    for each in workers["items"]:
        del each["seen_at"], each["state"]
    return replies | {"/v1/workers": workers}


def move(server: RegistryUnderTest, *words: str, expect: int = 0) -> dict[str, Any]:
    """The document of `mxr-registry move --json`, or of its error."""
    command = ["mxr-registry", "move", "--json", "--data", str(server.data), *words]
    environ = os.environ | server.rows.environ
    done = run_program(command, env=environ)
    assert done.returncode == expect, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found.get("error", found)


def test_all_of_it_arrives_and_goes_on(source: Any, target: Rows, start: Start, parts: Parts, tmp_path: Path) -> None:
    there = tmp_path / "there"
    words = ("--to-database", target.url, "--to-store", f"file://{there / 'store'}")
    found = move(source, *words)
    assert found["copied"] == 5 and found["present"] == 0
    assert found["bytes"] == len(parts.gfx908) + len(parts.gfx942)
    moved = start(data=there, rows=target)
    assert said(moved, source.blob) == source.before
    # The key goes along by hand, as docs/operate.md says.
    own, given = source.data / "signing.key", signing_key(tmp_path)
    final = Path(moved.environ.get("MXR_SIGNING_KEY_FILE") or there / "signing.key")

    shutil.copy(own if own.exists() else given, final)
    # Numbers go on after the last that was ever given, that of the removed artifact.
    moved.publish(parts.ref, parts.ref_key())
    assert target.execute("SELECT max(seq) FROM artifacts") == [(3,)]
    moved.stop()
    # And the source is what it was.
    again = start()
    assert said(again, source.blob) == source.before


@on_sqlite
def test_bytes_move_to_s3(
    source: Any, target: Rows, bucket: Bucket, fsck: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = dict(bucket.environ)
    store = environ.pop("MXR_STORE_URL")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert move(source, "--to-database", target.url, "--to-store", store)["copied"] == 5
    code, found = fsck(source.data, environ={"MXR_DATABASE_URL": target.url, "MXR_STORE_URL": store})
    assert (code, found["artifacts"], found["findings"]) == (0, 1, [])


def test_bytes_may_stay_where_they_are(source: Any, target: Rows, fsck: Any) -> None:
    assert move(source, "--to-database", target.url)["copied"] == 0
    assert fsck(source.data, environ={"MXR_DATABASE_URL": target.url})[1]["artifacts"] == 1


def test_a_move_that_broke_off_goes_on(source: Any, target: Rows, tmp_path: Path) -> None:
    """Blobs that are there and right are left; one of other bytes is replaced."""
    words = ("--to-database", target.url, "--to-store", f"file://{tmp_path / 'there' / 'store'}")
    move(source, *words)
    target.execute(
        *("DELETE FROM tallies", "DELETE FROM miss_askers", "DELETE FROM statements", "DELETE FROM signing_keys"),
        *(f"DELETE FROM {name}" for name in ("artifact_blobs", "artifact_inputs", "artifacts", "misses", "tombstones")),
        *(f"DELETE FROM {name}" for name in ("uploads", "blobs", "workers", "job_events", "jobs", "tokens", "events")),
    )
    blobs = sorted((tmp_path / "there" / "store" / "blobs").glob("*/*/*"))
    blobs[0].unlink()
    blobs[1].chmod(0o644)
    blobs[1].write_bytes(blobs[1].read_bytes()[::-1])
    found = move(source, *words)
    assert (found["copied"], found["present"]) == (2, 3)


def test_a_target_with_rows_is_refused(source: Any, target: Rows) -> None:
    target.execute(
        "INSERT INTO blobs (namespace, sha256, size, created_at, touched_at) VALUES ('default', 'x', 5, 1, 1)"
    )
    assert "not empty" in move(source, "--to-database", target.url, expect=6)["detail"]
    assert target.execute("SELECT count(*) FROM artifacts") == [(0,)]


def test_a_target_without_tables_is_refused(source: Any, targets: Databases, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    bare = targets(tmp_path / "bare", migrated=False)
    error = move(source, "--to-database", bare.url, expect=75)
    assert "target database is not prepared" in error["detail"]
    assert "mxr-registry migrate" in error["hint"] and "--to-database" in error["hint"]


@on_sqlite
def test_lost_bytes_are_said_and_nothing_is_moved(source: Any, target: Rows, tmp_path: Path) -> None:
    source.corrupt(source.blob)
    words = ("--to-database", target.url, "--to-store", f"file://{tmp_path / 'there' / 'store'}")
    error = move(source, *words, expect=65)
    assert source.blob in error["detail"] and "fsck" in error["hint"]
    assert target.execute("SELECT count(*) FROM artifacts") == [(0,)]


@on_sqlite
def test_a_registry_that_is_served_is_not_moved(source: Any, target: Rows, start: Start) -> None:
    running = start()
    error = move(source, "--to-database", target.url, expect=75)
    assert "in use" in error["detail"]
    running.stop()
    move(source, "--to-database", target.url)


def test_rows_in_every_table_arrive(tmp_path: Path, databases: Databases, target: Rows) -> None:
    """Of this schema, and of any later one."""
    here, there = Database(databases(tmp_path).url), Database(target.url)
    schema.upgrade(here)
    before = fill(here)

    def stop(words: str) -> None:
        if words.startswith("jobs"):
            raise UsageError("enough")

    with pytest.raises(UsageError, match="enough"):
        Move(here, there, None, stop).run()
    with there.reading() as session:
        found = contents(session, reflected(session))
    assert not any(rows for name, rows in found.items() if name not in SEEDED)
    moved = Move(here, there, None, lambda _: None).run()
    with there.reading() as session:
        assert contents(session, reflected(session)) == before
    assert moved.rows == sum(map(len, before.values()))
    here.close()
    there.close()
