"""The steps of the schema: from nothing and each revision to what the tables say; interrupted, at once, refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from migrations.steps import (
    contents,
    fill,
    go_to,
    reflected,
    revision_of,
    revisions,
    statements,
    tables_of,
    upgrade_and_die,
)
from servers.rows import Rows

from mxr.errors import TemporaryError, UsageError
from mxr_registry.database import schema
from mxr_registry.database.session import Database

*EARLIER, NEWEST = revisions()
FROM = ["base", *EARLIER]
"""What an upgrade can begin with."""


def differences(db: Database) -> list[object]:
    with db.reading() as session:
        context = MigrationContext.configure(session, opts={"compare_type": True})
        return list(compare_metadata(context, schema.tables()[0].metadata))


def begin_at(db: Database, revision: str) -> None:
    if revision != "base":
        go_to(db, revision)


def test_the_steps_lead_to_the_tables(db: Database) -> None:
    assert schema.upgrade(db) == schema.newest()
    assert differences(db) == []
    schema.check_schema(db)


def test_again_changes_nothing(db: Database) -> None:
    schema.upgrade(db)
    before = fill(db)
    assert schema.upgrade(db) == schema.newest()
    with db.reading() as session:
        assert contents(session, reflected(session)) == before


@pytest.mark.parametrize("revision", revisions())
def test_from_each_revision_with_rows_in_every_table(db: Database, revision: str) -> None:
    """Every row is there still, and says the same in every column that is left."""
    go_to(db, revision)
    before = fill(db)
    assert all(before.values())
    schema.upgrade(db)
    assert differences(db) == []
    with db.reading() as session:
        after = contents(session, reflected(session))
    for table, rows in before.items():
        kept = [{name: value for name, value in row.items() if name in rows[0]} for row in after[table]]
        names = set(kept[0])
        assert kept == [{name: value for name, value in row.items() if name in names} for row in rows]


@pytest.mark.parametrize("revision", FROM)
@pytest.mark.parametrize("part", [0.5, 1.0])
def test_a_step_that_is_killed_leaves_all_as_it_was(rows: Rows, db: Database, revision: str, part: float) -> None:
    """Killed in the middle, and after the very last statement; then the same command again."""
    begin_at(db, revision)
    before = fill(db) if revision != "base" else {}
    tables = tables_of(db)
    needed = statements(db)
    assert tables_of(db) == tables
    upgrade_and_die(rows.url, max(1, int(needed * part)))
    assert revision_of(db) == (None if revision == "base" else revision)
    assert tables_of(db) == tables
    schema.upgrade(db)
    assert differences(db) == []
    with db.reading() as session:
        after = contents(session, reflected(session))
    assert {table: len(found) for table, found in after.items() if table in before} == {
        table: len(found) for table, found in before.items()
    }


def test_back_down_to_nothing(db: Database) -> None:
    schema.upgrade(db)
    go_to(db, "base")
    assert tables_of(db) == ["alembic_version"]


def test_many_at_once_do_it_once(rows: Rows) -> None:
    databases = [Database(rows.url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(schema.upgrade, databases)) == {schema.newest()}
    for each in databases:
        schema.check_schema(each)
        each.close()


@pytest.mark.parametrize("revision", FROM)
def test_a_schema_that_is_behind_is_said(db: Database, revision: str) -> None:
    begin_at(db, revision)
    with pytest.raises(TemporaryError, match="empty" if revision == "base" else revision) as caught:
        schema.check_schema(db)
    assert "mxr-registry migrate" in caught.value.hint


def test_a_schema_of_another_version_is_left_alone(db: Database, rows: Rows) -> None:
    schema.upgrade(db)
    rows.execute("UPDATE alembic_version SET version_num = '9999'", "UPDATE registry SET compatible = '9998'")
    for verb in (schema.check_schema, schema.upgrade):
        with pytest.raises(UsageError, match="does not know"):
            verb(db)
    rows.execute("ALTER TABLE registry DROP COLUMN compatible")
    with pytest.raises(UsageError, match="does not know"):
        schema.check_schema(db)


def test_the_schema_of_the_next_release_is_worked_on_and_not_copied(db: Database, rows: Rows) -> None:
    schema.upgrade(db)
    rows.execute("UPDATE alembic_version SET version_num = '9999'", f"UPDATE registry SET compatible = '{NEWEST}'")
    schema.check_schema(db)
    assert schema.upgrade(db) == "9999"
    with pytest.raises(UsageError, match="knows only a part"):
        schema.check_schema(db, copies=True)


def test_a_step_that_fails_leaves_nothing_behind(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    create = op.create_table

    def fail_at_artifacts(name: str, *columns: object, **options: object) -> object:
        if name == "artifacts":
            raise ZeroDivisionError
        return create(name, *columns, **options)

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_table", fail_at_artifacts)
        with pytest.raises(ZeroDivisionError):
            schema.upgrade(db)
    assert tables_of(db) == []
    schema.upgrade(db)
