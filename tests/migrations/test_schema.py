"""The steps of the schema: from nothing to what the tables say, and back; and what a server refuses to start on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from mxr.errors import MxrError, Temporary
from mxr_registry import schema
from mxr_registry.db import Database
from mxr_registry.tables import Base


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    yield found
    found.close()


def test_the_steps_lead_to_the_tables(db: Database) -> None:
    assert schema.upgrade(db) == schema.newest()
    with db.reading() as session:
        context = MigrationContext.configure(session, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    schema.check(db)


def test_again_changes_nothing(db: Database) -> None:
    schema.upgrade(db)
    assert schema.upgrade(db) == schema.newest()


def test_back_down_to_nothing(db: Database) -> None:
    schema.upgrade(db)
    with db.writing() as session:
        config = schema._config()
        config.attributes["connection"] = session
        command.downgrade(config, "base")
    with db.reading() as session:
        assert inspect(session).get_table_names() == ["alembic_version"]


def test_many_at_once_do_it_once(tmp_path: Path) -> None:
    databases = [Database(f"sqlite:///{tmp_path / 'one.db'}") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(schema.upgrade, databases)) == {schema.newest()}
    for each in databases:
        schema.check(each)
        each.close()


def test_a_schema_that_is_behind_is_said(db: Database) -> None:
    with pytest.raises(Temporary, match="empty") as caught:
        schema.check(db)
    assert "mxr-registry migrate" in caught.value.hint


def test_a_schema_of_a_newer_registry_is_left_alone(db: Database, tmp_path: Path) -> None:
    schema.upgrade(db)
    with sqlite3.connect(tmp_path / "registry.db") as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    for verb in (schema.check, schema.upgrade):
        with pytest.raises(MxrError, match="newer"):
            verb(db)


def test_a_step_that_fails_leaves_nothing_behind(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    create = op.create_table

    def fail_at_artifacts(name: str, *columns: object, **options: object) -> object:
        if name == "artifacts":
            raise ZeroDivisionError
        return create(name, *columns, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_table", fail_at_artifacts)
        with pytest.raises(ZeroDivisionError):
            schema.upgrade(db)
    with db.reading() as session:
        assert inspect(session).get_table_names() == []
    schema.upgrade(db)
