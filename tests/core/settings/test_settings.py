"""The settings: flags win over the environment, that over the file, that over the defaults; bad values are named."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paths import ROOT

from mxr.cache.store import Cache
from mxr.configuration.schema import VARIABLES
from mxr.errors import NotAllowedError, UsageError
from mxr.settings import DEFAULT_REGISTRY, Settings, load_settings, read_stored, write_stored

FILE = """
registry = "http://file:1"
cache_dir = "/file/cache"
consumer = "driver"
host_file = "/file/host.json"
timeout = 11
plaintext = false
kserve_allow = ["env"]
max_age = 5
max_stale = "2d"
cache_size = "3MiB"
cache_owners = [7]
state_dir = "/file/state"
rocm = "7.1"
migraphx = "2.14"
batch = [8, 1]
token_file = "/file/token"
ca_file = "/file/ca.pem"
registry_id = "11111111-1111-4111-8111-111111111111"
retry = "1m"
"""
FROM_FILE = Settings(
    "http://file:1",
    None,
    Path("/file/cache"),
    "driver",
    Path("/file/host.json"),
    11.0,
    False,
    ("env",),
    5.0,
    172800.0,
    3145728,
    (7,),
    Path("/file/state"),
    "7.1",
    "2.14",
    (1, 8),
    Path("/file/token"),
    Path("/file/ca.pem"),
    "11111111-1111-4111-8111-111111111111",
    60.0,
)
ENVIRON = {
    "MXR_REGISTRY": "http://env:2/",
    "MXR_TOKEN_FILE": "/env/token",
    "MXR_CA_FILE": "/env/ca.pem",
    "MXR_CACHE_DIR": "/env/cache",
    "MXR_CONSUMER": "ort",
    "MXR_HOST": "/env/host.json",
    "MXR_TIMEOUT": "22",
    "MXR_RETRY": "7",
    "MXR_REGISTRY_ID": "22222222-2222-4222-8222-222222222222",
    "MXR_PLAINTEXT": "1",
    "MXR_KSERVE_ALLOW": "ask, wait",
    "MXR_MAX_AGE": "30m",
    "MXR_MAX_STALE": "8",
    "MXR_CACHE_SIZE": "9KiB",
    "MXR_CACHE_OWNERS": "8, 9",
    "MXR_STATE_DIR": "/env/state",
    "MXR_ROCM": "7.2.1",
    "MXR_MIGRAPHX": "2.15",
    "MXR_BATCH": "4, 2",
}
FROM_ENVIRON = Settings(
    "http://env:2",
    None,
    Path("/env/cache"),
    "ort",
    Path("/env/host.json"),
    22.0,
    True,
    ("ask", "wait"),
    1800.0,
    8.0,
    9216,
    (8, 9),
    Path("/env/state"),
    "7.2.1",
    "2.15",
    (2, 4),
    Path("/env/token"),
    Path("/env/ca.pem"),
    "22222222-2222-4222-8222-222222222222",
    7.0,
)
GIVEN = {
    "registry": "https://flag:3",
    "token_file": "/flag/token",
    "ca_file": "/flag/ca.pem",
    "cache_dir": Path("/flag/cache"),
    "consumer": "python",
    "host_file": "/flag/host.json",
    "timeout": 33,
    "retry": 0,
    "registry_id": "33333333-3333-4333-8333-333333333333",
    "plaintext": False,
    "kserve_allow": "path",
    "max_age": "1h",
    "max_stale": 0,
    "cache_size": "1GiB",
    "cache_owners": [0],
    "state_dir": "/flag/state",
    "rocm": "7.3",
    "migraphx": "2.16",
    "batch": [16],
}
FROM_FLAGS = Settings(
    "https://flag:3",
    None,
    Path("/flag/cache"),
    "python",
    Path("/flag/host.json"),
    33.0,
    False,
    ("path",),
    3600.0,
    0.0,
    2**30,
    (0,),
    Path("/flag/state"),
    "7.3",
    "2.16",
    (16,),
    Path("/flag/token"),
    Path("/flag/ca.pem"),
    "33333333-3333-4333-8333-333333333333",
    0.0,
)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def values(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in VARIABLES}


def write(home: dict[str, str], text: str | bytes) -> None:
    path = Path(home["HOME"]) / ".config" / "mxr" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)


def test_nothing_said(home: dict[str, str]) -> None:
    state = Path(home["HOME"]) / ".local" / "state" / "mxr"
    cache = Path(home["HOME"]) / ".cache" / "mxr"
    folders = {"state_dir": state, "config_dir": Path(home["HOME"]) / ".config" / "mxr", "home": Path(home["HOME"])}
    sockets = (Path(f"/run/user/{os.geteuid()}/mxr"), state / "run")
    found = load_settings(home)
    assert found == Settings(DEFAULT_REGISTRY, None, cache, socket_dirs=sockets, hub=found.hub, **folders)


def test_the_home_folder_is_what_the_user_database_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir="/home/alice"))
    for environ in ({}, {"HOME": ""}, {"HOME": "here"}):
        found = load_settings(environ)
        assert found.cache_dir == Path("/home/alice/.cache/mxr") and found.config_dir == Path("/home/alice/.config/mxr")


def test_a_user_without_a_home_folder_leaves_nothing_in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for environ in ({}, {"HOME": "/"}, {"HOME": "//"}):
        found = load_settings(environ)
        with pytest.raises(NotAllowedError, match="no home folder") as caught:
            Cache.of(found).prepare_file("0" * 64)
        assert "MXR_CACHE_DIR=" in caught.value.hint
        assert (found.home, found.config_dir, found.state_dir) == (None, None, None)
        assert read_stored(found.config_dir) == {}
        with pytest.raises(UsageError, match="no home folder"):
            write_stored(found.config_dir, {})
    assert load_settings({"HOME": "/", "MXR_CACHE_DIR": "/cache"}).cache_dir == Path("/cache")


def test_a_file_that_begins_with_a_byte_order_mark(home: dict[str, str]) -> None:
    write(home, b'\xef\xbb\xbfrocm = "7.2"\r\n')
    assert load_settings(home).rocm == "7.2"


def test_every_setting_has_a_variable() -> None:
    derived = {"home", "sources", "unused", "withheld", "config_dir", "socket_dirs", "proxies", "hub", "others"}
    assert set(VARIABLES) == set(Settings.__dataclass_fields__) - derived == {*GIVEN, "token"}


def test_flags_then_environment_then_file(home: dict[str, str]) -> None:
    write(home, FILE)
    path = str(Path(home["HOME"]) / ".config" / "mxr" / "config.toml")
    for settings, expected, source in (
        (load_settings(home), FROM_FILE, path),
        (load_settings(home | ENVIRON), FROM_ENVIRON, "MXR_"),
        (load_settings(home | ENVIRON, GIVEN), FROM_FLAGS, "--"),
    ):
        assert values(settings) == values(expected)
        assert set(settings.sources) == set(VARIABLES) - {"token"}
        assert all(each.startswith(source) for each in settings.sources.values())


@pytest.mark.parametrize("name", sorted({*VARIABLES} - {"token", "registry"}))
def test_each_setting_for_itself(home: dict[str, str], name: str) -> None:
    write(home, FILE)
    one = load_settings(home | {VARIABLES[name]: ENVIRON[VARIABLES[name]]})
    assert {row: getattr(one, row) for row in VARIABLES} == {
        row: getattr(FROM_ENVIRON if row == name else FROM_FILE, row) for row in VARIABLES
    }
    two = load_settings(home | ENVIRON, {name: GIVEN[name]})
    assert {row: getattr(two, row) for row in VARIABLES} == {
        row: getattr(FROM_FLAGS if row == name else FROM_ENVIRON, row) for row in VARIABLES
    }


def test_an_empty_variable_is_not_set(home: dict[str, str]) -> None:
    write(home, FILE)
    assert values(load_settings(home | dict.fromkeys(VARIABLES.values(), ""))) == values(FROM_FILE)


def test_the_usual_places_can_be_moved(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "c"), "XDG_CONFIG_HOME": str(tmp_path / "f")}
    (tmp_path / "f" / "mxr").mkdir(parents=True)
    (tmp_path / "f" / "mxr" / "config.toml").write_text('consumer = "ort"')
    found = load_settings(environ)
    assert (found.cache_dir, found.consumer) == (tmp_path / "c" / "mxr", "ort")


@pytest.mark.parametrize(
    "text",
    [
        *("registry =", "= 1", b"\xff\xfe", "[registry]\nurl = 'http://a'", "registri = 'http://a'", "registry = 5"),
        *("timeout = '60x'", "timeout = true", "timeout = 0", "timeout = nan", "timeout = inf", "token = ['a']"),
        *("plaintext = 1", "plaintext = 'on'", "kserve_allow = 'env'", "kserve_allow = ['all']"),
        *(
            "max_age = true",
            "max_age = 'soon'",
            "max_stale = [1]",
            "cache_size = -1",
            "cache_owners = 5",
            "cache_owners = ['x']",
        ),
        *("cache_dir = false", "registry = 'file:1'", "token = 'a'\ntoken = 'b'", "inputs.x = [1]"),
        *("rocm = 7.2", "rocm = 'seven'", "migraphx = ''", "batch = 0", "batch = []", "batch = 'x'", "batch = [true]"),
    ],
)
def test_a_bad_file_is_named(home: dict[str, str], text: str | bytes) -> None:
    write(home, text)
    with pytest.raises(UsageError) as caught:
        load_settings(home)
    assert caught.value.hint


def test_a_wrong_setting_is_named_with_its_line(home: dict[str, str]) -> None:
    path = Path(home["HOME"]) / ".config" / "mxr" / "config.toml"
    write(home, 'registry = "http://a"\n\nregistri = "hunter2"\n')
    with pytest.raises(UsageError) as caught:
        load_settings(home)
    assert caught.value.message == f"{path}:3: unknown setting 'registri'."
    assert caught.value.hint.startswith("Did you mean registry? Known settings: batch, ca_file, cache_dir")
    assert "hunter2" not in str(caught.value.to_json())
    path.write_text('# comment\n"timeout" = "soon"')
    with pytest.raises(UsageError, match=r"config\.toml:2: timeout: expected seconds"):
        load_settings(home)


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602])
def test_a_file_that_others_can_write_is_not_used(home: dict[str, str], mode: int) -> None:
    write(home, 'registry = "http://evil"')
    path = Path(home["HOME"]) / ".config" / "mxr" / "config.toml"
    path.chmod(mode)
    found = load_settings(home)
    assert (found.registry, found.sources) == (DEFAULT_REGISTRY, {})
    (line,) = found.unused
    assert line == f"{path} is not used: other users can write it (mode {mode:04o}; fix it with `chmod go-w`)"


def test_a_link_to_the_file_is_followed(home: dict[str, str], tmp_path: Path) -> None:
    write(home, "")
    path = Path(home["HOME"]) / ".config" / "mxr" / "config.toml"
    (tmp_path / "dotfiles.toml").write_text("timeout = 5")
    path.unlink()
    path.symlink_to(tmp_path / "dotfiles.toml")
    assert load_settings(home).timeout == 5.0


@pytest.mark.parametrize(
    "change",
    [
        *({"registry": url} for url in ("", "localhost:8765", "http://", "http:///x", "ftp://a", "/a", "http:a")),
        *({"timeout": value} for value in (0, -1, "soon", "", float("nan"), float("inf"), 86400, [])),
        *({"plaintext": "maybe"}, {"kserve_allow": "env,registry"}),
        *({"max_age": value} for value in ("soon", "", -1, "1y", "nan", "inf")),
        *({"cache_owners": value} for value in ("me", [-1], [2**32], [None])),
        {"cache_dir": "~nobody-of-this-name/cache"},
        {"host_file": "~nobody-of-this-name/host.json"},
    ],
    ids=repr,
)
def test_bad_values_are_a_usage_error(home: dict[str, str], change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(home, change)
    assert caught.value.hint


def test_a_file_that_is_not_there_or_no_file_is_no_file(home: dict[str, str]) -> None:
    (Path(home["HOME"]) / ".config" / "mxr" / "config.toml").mkdir(parents=True)
    assert load_settings(home).registry == DEFAULT_REGISTRY


def test_no_settings_show_a_secret(tmp_path: Path) -> None:
    """Neither the repr nor an error of any settings (client, worker, registry) has a token or a password."""
    from mxr_registry.config.settings import RegistrySettings
    from mxr_workers.settings import read_settings as read_worker

    secret = "hunter2hunter2"
    environ = {"HOME": str(tmp_path), "MXR_TOKEN": secret, "AWS_SECRET_ACCESS_KEY": secret}
    environ |= {"MXR_DATABASE_URL": f"postgresql://me:{secret}@host/mxr", "MXR_STORE_URL": f"s3://b/{secret}"}
    shown = [repr(load_settings(environ)), repr(read_worker(environ, {})), repr(RegistrySettings.read(environ))]
    assert load_settings(environ).token == secret and not any(secret in text for text in shown)
    errors = []
    for wrong in (f"http://me:{secret}@host", f"me:{secret}@host", f"ftp://{secret}@host", f"http://{secret}@"):
        with pytest.raises(UsageError) as caught:
            load_settings(environ, {"registry": wrong})
        errors.append(caught.value)
    for name in ("MXR_S3_ENDPOINT", "MXR_S3_PUBLIC_ENDPOINT"):
        with pytest.raises(UsageError) as caught:
            RegistrySettings.read(environ | {name: f"http://me:{secret}@s3.example:9000"})
        errors.append(caught.value)
    for url in (f"s3://me:{secret}@bucket", f"me:{secret}@host", f"ftp://me:{secret}@host/x"):
        from mxr_registry.storage import open_store

        with pytest.raises(UsageError) as caught:
            open_store(url)
        errors.append(caught.value)
    assert not [error for error in errors if "://" in str(error) and secret in str(error.to_json()) + repr(error)]


def test_a_token_of_a_mounted_secret() -> None:
    assert load_settings({"MXR_TOKEN": "p@ss!w0rd\n"}).token == "p@ss!w0rd"
    for wrong in ("p@ss w0rd", "p@ss\nw0rd", "é€"):
        with pytest.raises(UsageError) as caught:
            load_settings({"MXR_TOKEN": wrong})
        assert wrong not in str(caught.value.to_json())


def test_the_page_lists_every_setting() -> None:
    table = (ROOT / "docs" / "configuration.md").read_text().partition("## Settings")[2]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    cells = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]
    assert {name: variable for row in cells for name, variable in zip(*row, strict=True)} == VARIABLES
