"""The database: who waits, what is rolled back, what its troubles are called; on both kinds that there are."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from registry.registry_client import Parts
from servers.rows import Databases
from sqlalchemy import delete, insert, select, text
from sqlalchemy.exc import IntegrityError

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.errors import MxrError, NoSuchArtifactError, TemporaryError, UsageError
from mxr.util import codec
from mxr_registry.artifacts import misses, resolution
from mxr_registry.database import schema
from mxr_registry.database.session import MAX_AT_ONCE, Database, PreparedQuery, advisory_lock, now
from mxr_registry.database.tables import BlobRow


@pytest.fixture
def db(tmp_path: Path, databases: Databases) -> Iterator[Database]:
    found = Database(databases(tmp_path, migrated=False).url)
    schema.upgrade(found)
    yield found
    found.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    schema.upgrade(found)
    yield found
    found.close()


def row(name: str) -> dict[str, Any]:
    return {"namespace": "default", "sha256": name, "size": 1, "created_at": 1.0, "touched_at": 1.0}


def names(db: Database) -> list[str]:
    with db.reading() as session:
        return list(session.execute(select(BlobRow.sha256)).scalars())


def test_the_clock_is_the_databases(db: Database) -> None:
    with db.reading() as session:
        assert abs(now(session) - time.time()) < 5


def test_pragmas(sqlite: Database) -> None:
    with sqlite.reading() as session:
        found = [
            session.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


def test_an_error_takes_everything_back(db: Database) -> None:
    with pytest.raises(ZeroDivisionError), db.writing() as session:
        session.execute(insert(BlobRow), row("a"))
        raise ZeroDivisionError
    assert names(db) == []


def test_writers_take_turns_and_readers_do_not_wait(sqlite: Database) -> None:
    db = sqlite
    inside, go = threading.Event(), threading.Event()

    def write() -> None:
        with db.writing() as session:
            session.execute(insert(BlobRow), row("first"))
            inside.set()
            go.wait(10)

    first = threading.Thread(target=write)
    first.start()
    inside.wait(10)
    assert names(db) == []
    with pytest.raises(TemporaryError, match="busy"), db.writing(lock_timeout=0.05):
        pass
    go.set()
    with db.writing() as session:
        session.execute(insert(BlobRow), row("second"))
    first.join()
    assert sorted(names(db)) == ["first", "second"]


def test_readers_see_one_snapshot_and_never_wait(db: Database) -> None:
    with db.reading() as before:
        assert before.execute(select(BlobRow.sha256)).all() == []
        with db.writing() as session:
            session.execute(insert(BlobRow), row("a"))
            assert names(db) == []
        assert before.execute(select(BlobRow.sha256)).all() == []
    assert names(db) == ["a"]


def test_who_takes_turns_waits_for_the_end_of_the_other(db: Database) -> None:
    """And sees then what the other wrote."""
    inside, go = threading.Event(), threading.Event()

    def write() -> None:
        with db.writing() as session:
            advisory_lock(session, "this", "that")
            session.execute(insert(BlobRow), row("first"))
            inside.set()
            go.wait(10)

    first = threading.Thread(target=write)
    first.start()
    assert inside.wait(10)
    with pytest.raises(TemporaryError, match="busy"), db.writing(lock_timeout=0.05) as session:
        advisory_lock(session, "that")
    go.set()
    with db.writing() as session:
        advisory_lock(session, "that")
        assert session.execute(select(BlobRow.sha256)).scalars().all() == ["first"]
    first.join()


def test_constraints_hold(db: Database) -> None:
    with db.writing() as session:
        session.execute(insert(BlobRow), row("a"))
    with pytest.raises(IntegrityError), db.writing() as session:
        session.execute(insert(BlobRow), row("a"))
    with pytest.raises(IntegrityError), db.writing() as session:
        session.exec_driver_sql("INSERT INTO artifact_blobs VALUES (1, 'nothing', 'default')")


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(MxrError, match="damaged"):
        schema.upgrade(Database(f"sqlite:///{path}"))


@pytest.mark.parametrize("url", ["", "nonsense", "oracle+nothing://x/y", "mysql://x:y"])
def test_urls_that_are_none_are_said(url: str) -> None:
    with pytest.raises(UsageError, match="MXR_DATABASE_URL"):
        Database(url)


def asked(parts: Parts, **change: Any) -> Request:
    return Request(codec.decode(Key, parts.gpu_key(**change), "key"))


def test_a_miss_is_a_miss_though_it_cannot_be_written_down(
    db: Database, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misses, "LOCK_TIMEOUT", 0.05)
    with db.writing() as other:
        if not db.embedded:
            other.execute(text("LOCK TABLE misses"))
        with pytest.raises(NoSuchArtifactError):
            resolution.refuse(db, "default", asked(parts))
    with pytest.raises(NoSuchArtifactError):
        resolution.refuse(db, "default", asked(parts))
    with db.reading() as session:
        assert misses.list_misses(session, "default", misses.MissFilters(), None)["items"][0]["count"] == 1


def test_a_miss_on_a_read_only_database_is_a_miss(db: Database, parts: Parts) -> None:
    if db.embedded:
        with db.reading() as session:
            session.exec_driver_sql("PRAGMA query_only=ON")
    else:
        with db.engine.connect() as session:
            name = db.engine.url.database
            session.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
            session.commit()
        db.close()
    with pytest.raises(NoSuchArtifactError):
        resolution.refuse(db, "default", asked(parts))


def test_namespaces_do_not_see_each_other(db: Database, parts: Parts) -> None:
    from mxr_registry.artifacts import blobs, catalog

    with db.writing() as session:
        session.execute(insert(BlobRow), {**row("a" * 64), "namespace": "theirs"})
    with db.reading() as session:
        assert blobs.sizes(session, "theirs", ["a" * 64]) == {"a" * 64: 1}
        assert blobs.sizes(session, "ours", ["a" * 64]) == {}
        assert catalog.list_artifacts(session, "ours", catalog.ArtifactFilters()) == {"items": [], "next": None}


BLOBS = PreparedQuery(select(BlobRow.namespace, BlobRow.sha256).order_by(BlobRow.sha256))


def test_a_few_rows_are_read_at_once_where_the_database_is_embedded(db: Database) -> None:
    with db.writing() as session:
        session.execute(insert(BlobRow), [row("aa"), row("bb")])
    found = db.run_at_once(BLOBS, {})
    assert found == (db.run(BLOBS, {}) if db.embedded else None)
    with db.writing() as session:
        session.execute(insert(BlobRow), [row("cc")])
    # Each call sees what is committed.
    assert found is None or len(db.run_at_once(BLOBS, {}) or ()) == 3


@pytest.mark.parametrize(
    "names", [["x" * (MAX_AT_ONCE + 1)], [f"{n}".ljust(1_000, "x") for n in range(70)]], ids=["one", "together"]
)
def test_large_rows_are_not_read_at_once(sqlite: Database, names: list[str]) -> None:
    with sqlite.writing() as session:
        session.execute(insert(BlobRow), [row(name) for name in names])
    assert sqlite.run_at_once(BLOBS, {}) is None
    assert len(sqlite.run(BLOBS, {})) == len(names)
    with sqlite.writing() as session:
        session.execute(delete(BlobRow))
    assert sqlite.run_at_once(BLOBS, {}) == []


def test_a_database_that_another_program_locks_is_not_read_at_once(sqlite: Database) -> None:
    sqlite.close()
    other = sqlite3.connect(sqlite.engine.url.database or "", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    assert sqlite.run_at_once(BLOBS, {}) is None
    other.close()
    assert sqlite.run_at_once(BLOBS, {}) == []
