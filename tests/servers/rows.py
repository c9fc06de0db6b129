"""Where the registries of a test keep their rows: a SQLite file in the data directory, or a database in PostgreSQL."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import NullPool, create_engine, event, text

from .postgresql import PostgreSQLServer
from .shared import sqlite_template

ENGINES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Rows:
    """One database: its URL, and what tells the programs of it."""

    url: str
    environ: dict[str, str] = field(default_factory=dict)

    def execute(self, *words: str, checked: bool = False) -> list[tuple[Any, ...]]:
        """Run statements behind the registry's back, in one transaction; the rows that the last one gives.

        `checked`: under the foreign keys also on SQLite, which leaves that to each connection.
        """
        engine = create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout=10000"))
            event.listen(engine, "connect", lambda raw, _: raw.execute(f"PRAGMA foreign_keys={int(checked)}"))
        with engine.begin() as session:
            found: list[tuple[Any, ...]] = []
            for each in words:
                result = session.execute(text(each))
                found = [tuple(row) for row in result] if result.returns_rows else []
        return found


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of some tests on one engine: `databases(data)` is that of a data directory."""

    engine: str
    server: Callable[[], PostgreSQLServer]
    known: dict[Path, Rows] = field(default_factory=dict)

    def __call__(self, data: Path, *, migrated: bool = True) -> Rows:
        """The same for the same directory; a new one has its tables, unless told otherwise or embedded."""
        if data not in self.known:
            self.known[data] = self._new(data, migrated)
        return self.known[data]

    def _new(self, data: Path, migrated: bool) -> Rows:
        if self.engine == "sqlite":
            if migrated and not (data / "registry.db").exists():
                data.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(sqlite_template(), data / "registry.db")
                # A copy is another registry.
                with contextlib.closing(sqlite3.connect(data / "registry.db")) as session, session:
                    session.execute("UPDATE registry SET uuid = ?", (str(uuid4()),))
            return Rows(f"sqlite:///{data / 'registry.db'}")
        url = self.server().migrated() if migrated else self.server().empty()
        return Rows(url, {"MXR_DATABASE_URL": url})

    def drop(self) -> None:
        """Drop those in PostgreSQL: each takes some megabytes."""
        while self.known:
            _, rows = self.known.popitem()
            if rows.environ:
                self.server().drop(rows.url)
