"""Databases of either kind, without a table in them yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.rows import ENGINES, Databases, Rows

from mxr_registry.database.session import Database


@pytest.fixture(params=ENGINES)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    """An empty database."""
    found = Databases(request.param, lambda: request.getfixturevalue("postgresql"))
    yield found(tmp_path, migrated=False)
    found.drop()


@pytest.fixture
def db(rows: Rows) -> Iterator[Database]:
    """The same, open."""
    found = Database(rows.url)
    yield found
    found.close()
