"""What a registry was told of its database: read, refused where it cannot be, and shown without what is secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxr.display.redaction import redact_url
from mxr.errors import UsageError
from mxr_registry.config.connections import ConnectionSettings
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.session import Database


def written(folder: Path, words: str) -> Path:
    path = folder / "registry.toml"
    path.write_text(words)
    return path


def test_the_usual_ones_where_nothing_is_said() -> None:
    assert ConnectionSettings.read({}) == ConnectionSettings()


def test_the_file_and_the_environment_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "[work]\nlease = 5\n[database]\npool = 7\nstatement = 1.5\n")
    found = ConnectionSettings.read({"MXR_REGISTRY_CONFIG": str(path)})
    assert (found.pool, found.statement, found.lock) == (7, 1.5, ConnectionSettings().lock)
    assert ConnectionSettings.read({"MXR_DATABASE_POOL": "3"}, path).pool == 3
    settings = RegistrySettings.read({"HOME": str(tmp_path)}, config=path)
    assert settings.connections == found and settings.rules is not None and settings.rules.lease == 5


@pytest.mark.parametrize("words", ["pool = 0", "pool = 2.5", "kept = -1", "lock = 0", "statment = 3", 'wait = "long"'])
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(UsageError, match="database"):
        ConnectionSettings.read({}, written(tmp_path, f"[database]\n{words}\n"))


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
def test_a_pool_that_is_no_count_is_refused(count: str) -> None:
    with pytest.raises(UsageError, match=r"pool|POOL"):
        ConnectionSettings.read({"MXR_DATABASE_POOL": count})


@pytest.mark.parametrize("pool", [1, 2, 50])
@pytest.mark.parametrize("kept", [0, 1, 8])
def test_a_pool_is_as_large_as_was_said(pool: int, kept: int) -> None:
    found = Database("postgresql://h/d", ConnectionSettings(pool=pool, kept=kept)).engine.pool
    assert found.size() + found._max_overflow == pool  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/mxr?sslmode=require&password=secret", "postgresql://host:5432/mxr"),
        ("postgresql://me:se/cr@et@host/mxr", "postgresql://host/mxr"),
        ("postgresql://host/mxr?password=secret", "postgresql://host/mxr"),
        ("file:///srv/store", "file:///srv/store"),
    ],
)
def test_a_place_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown
