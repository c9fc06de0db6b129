"""The tokens that a registry on loopback keeps for the user who runs it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxr.protocol import local_tokens
from mxr_registry.access.tokens import make_token


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def file_of(server: Any) -> Path:
    """The file with the tokens."""
    (found,) = Path(server.environ["XDG_CONFIG_HOME"]).rglob("*.json")
    return found


def test_only_its_user_can_read_them(start: Callable[..., Any]) -> None:
    server = start()
    path = file_of(server)
    assert path.name == f"127.0.0.1_{server.port}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == server.tokens
    assert not any(token in server.log.read_text() + server.line for token in server.tokens.values())
    assert server.rows.execute("SELECT count(*) FROM tokens") == [(0,)], "they are in no database"


def test_each_has_one_scope(start: Callable[..., Any]) -> None:
    server = start()
    for scope in ("admin", "work"):
        header = {"authorization": f"Bearer {server.tokens[scope]}"}
        said = server.call("GET", "/v1/whoami", headers=header)[1]
        assert (said["name"], said["scopes"], said["expires_at"]) == ("local", [scope], None)


def test_they_stay_when_it_starts_again_and_are_good_nowhere_else(start: Callable[..., Any], tmp_path: Path) -> None:
    server = start()
    before = file_of(server).read_bytes()
    server.restart()
    assert file_of(server).read_bytes() == before
    other = start(data=tmp_path / "other" / "data")
    header = {"authorization": f"Bearer {server.tokens['admin']}"}
    assert other.call("GET", "/v1/whoami", headers=header)[0] == 401


@pytest.mark.parametrize("spoil", ["readable", "damaged", "removed"])
def test_a_file_that_is_not_right_is_made_anew(start: Callable[..., Any], spoil: str) -> None:
    server = start()
    path, old = file_of(server), dict(server.tokens)
    server.stop()
    if spoil == "readable":
        path.chmod(0o644)
    elif spoil == "damaged":
        path.write_text("{")
    else:
        path.unlink()
    server.tokens = {}
    server.start()
    assert set(server.tokens.values()).isdisjoint(old.values())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert server.call("GET", "/v1/whoami", headers={"authorization": f"Bearer {old['admin']}"})[0] == 401


def test_where_no_file_can_be_written_it_serves_all_the_same(
    start: Callable[..., Any], databases: Any, tmp_path: Path
) -> None:
    rows = databases(tmp_path / "data")
    server = start(rows=replace(rows, environ={**rows.environ, "XDG_CONFIG_HOME": "/proc/mxr"}))
    assert "programs of this user find no token by themselves" in server.log.read_text()
    assert server.ok("GET", "/v1/whoami")["name"] == "tests"


def test_what_is_kept_is_whole_or_nothing(tmp_path: Path) -> None:
    path = local_tokens.path_of(tmp_path, "::1", 8765)
    made = local_tokens.keep(path, make_token)
    assert set(made) == {"admin", "work"} and local_tokens.keep(path, make_token) == made == local_tokens.read(path)
    assert [each.name for each in path.parent.iterdir()] == ["::1_8765.json"]
