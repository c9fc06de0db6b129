"""What a registry was told of its database: read, refused where it cannot be, and shown without what is secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxr.display.text import redact_url
from mxr_registry.config.connections import ConnectionSettings
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.database.session import Database


def test_the_settings_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text("[work]\nlease = 5\n[database]\npool = 7\nstatement = 1.5\n")
    settings = RegistrySettings.read({"HOME": str(tmp_path)}, file=path)
    assert settings.connections == ConnectionSettings(pool=7, statement=1.5)
    assert settings.rules.lease == 5


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
