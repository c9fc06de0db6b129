"""The database: who waits, what is rolled back, what its troubles are called; services over real SQLite files."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from mxr.errors import MxrError, NoSuchArtifact, Temporary, Usage
from mxr.keys import Key
from mxr.qualities import Request
from mxr_registry import misses, resolution, schema
from mxr_registry.db import Database, now
from mxr_registry.tables import Blob


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    schema.upgrade(found)
    yield found
    found.close()


def row(name: str) -> dict[str, Any]:
    return {"namespace": "default", "sha256": name, "size": 1, "created_at": 1.0, "touched_at": 1.0}


def names(db: Database) -> list[str]:
    with db.reading() as session:
        return list(session.execute(select(Blob.sha256)).scalars())


def test_the_clock_is_the_databases(db: Database) -> None:
    with db.reading() as session:
        assert abs(now(session) - time.time()) < 5


def test_pragmas(db: Database) -> None:
    with db.reading() as session:
        found = [
            session.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


def test_an_error_takes_everything_back(db: Database) -> None:
    with pytest.raises(ZeroDivisionError), db.writing() as session:
        session.execute(insert(Blob), row("a"))
        raise ZeroDivisionError
    assert names(db) == []


def test_writers_take_turns_and_readers_do_not_wait(db: Database) -> None:
    inside, go = threading.Event(), threading.Event()

    def write() -> None:
        with db.writing() as session:
            session.execute(insert(Blob), row("first"))
            inside.set()
            go.wait(10)

    first = threading.Thread(target=write)
    first.start()
    inside.wait(10)
    assert names(db) == []
    with pytest.raises(Temporary, match="busy"), db.writing(patience=0.05):
        pass
    go.set()
    with db.writing() as session:
        session.execute(insert(Blob), row("second"))
    first.join()
    assert sorted(names(db)) == ["first", "second"]


def test_constraints_hold(db: Database) -> None:
    with db.writing() as session:
        session.execute(insert(Blob), row("a"))
    with pytest.raises(IntegrityError), db.writing() as session:
        session.execute(insert(Blob), row("a"))
    with pytest.raises(IntegrityError), db.writing() as session:
        session.exec_driver_sql("INSERT INTO artifact_blobs VALUES (1, 'nothing', 'default')")


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(MxrError, match="damaged"):
        schema.upgrade(Database(f"sqlite:///{path}"))


@pytest.mark.parametrize("url", ["", "nonsense", "oracle+nothing://x/y", "mysql://x:y"])
def test_urls_that_are_none_are_said(url: str) -> None:
    with pytest.raises(Usage, match="MXR_DATABASE_URL"):
        Database(url)


def asked(parts: Any, **change: Any) -> resolution.Asked:
    return resolution.Asked.of(Request(Key.from_json(parts.gpu_key(**change))))


def test_a_miss_is_a_miss_though_it_cannot_be_written_down(
    db: Database, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misses, "PATIENCE", 0.05)
    other = sqlite3.connect(db.engine.url.database or "")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(NoSuchArtifact):
        resolution.resolve(db, "default", asked(parts))
    other.rollback()
    other.close()
    with pytest.raises(NoSuchArtifact):
        resolution.resolve(db, "default", asked(parts))
    with db.reading() as session:
        assert '"count":1' in misses.listed(session, "default")


def test_a_miss_on_a_read_only_database_is_a_miss(db: Database, parts: Any) -> None:
    with db.reading() as session:
        session.exec_driver_sql("PRAGMA query_only=ON")
    with pytest.raises(NoSuchArtifact):
        resolution.resolve(db, "default", asked(parts))


def test_namespaces_do_not_see_each_other(db: Database, parts: Any) -> None:
    from mxr_registry import artifacts, blobs

    with db.writing() as session:
        session.execute(insert(Blob), {**row("a" * 64), "namespace": "theirs"})
    with db.reading() as session:
        assert blobs.sizes(session, "theirs", ["a" * 64]) == {"a" * 64: 1}
        assert blobs.sizes(session, "ours", ["a" * 64]) == {}
        assert artifacts.listed(session, "ours", artifacts.Filters()) == '{"artifacts":[],"next":null}'


def test_an_equal_request_is_read_once(parts: Any) -> None:
    import json

    body = json.dumps({"key": parts.gpu_key()}).encode()
    assert resolution.read(body) is resolution.read(body)
    assert resolution.read(body + b" " * 5000) == resolution.read(body)
