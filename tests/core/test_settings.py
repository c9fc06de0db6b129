"""The settings: flags win over the environment, that over the file, that over the defaults; bad values are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mxr.errors import UsageError
from mxr.settings import DEFAULT_REGISTRY, VARIABLES, Settings, load

FILE = """
registry = "http://file:1"
token = "file"
cache_dir = "/file/cache"
consumer = "driver"
host_file = "/file/host.json"
timeout = 11
plaintext = false
kserve_allow = "env"
max_age = 5
max_stale = "2d"
cache_owners = [7]
state_dir = "/file/state"
"""
FROM_FILE = Settings(
    "http://file:1",
    "file",
    Path("/file/cache"),
    "driver",
    Path("/file/host.json"),
    11.0,
    False,
    ("env",),
    5.0,
    172800.0,
    (7,),
    Path("/file/state"),
)
ENVIRON = {
    "MXR_REGISTRY": "http://env:2/",
    "MXR_TOKEN": "env",
    "MXR_CACHE_DIR": "/env/cache",
    "MXR_CONSUMER": "ort",
    "MXR_HOST": "/env/host.json",
    "MXR_TIMEOUT": "22",
    "MXR_PLAINTEXT": "1",
    "MXR_KSERVE_ALLOW": "ask, wait",
    "MXR_MAX_AGE": "30m",
    "MXR_MAX_STALE": "8",
    "MXR_CACHE_OWNERS": "8, 9",
    "MXR_STATE_DIR": "/env/state",
}
FROM_ENVIRON = Settings(
    "http://env:2",
    "env",
    Path("/env/cache"),
    "ort",
    Path("/env/host.json"),
    22.0,
    True,
    ("ask", "wait"),
    1800.0,
    8.0,
    (8, 9),
    Path("/env/state"),
)
GIVEN = {
    "registry": "https://flag:3",
    "token": "flag",
    "cache_dir": Path("/flag/cache"),
    "consumer": "python",
    "host_file": "/flag/host.json",
    "timeout": 33,
    "plaintext": False,
    "kserve_allow": "path",
    "max_age": "1h",
    "max_stale": 0,
    "cache_owners": [0],
    "state_dir": "/flag/state",
}
FROM_FLAGS = Settings(
    "https://flag:3",
    "flag",
    Path("/flag/cache"),
    "python",
    Path("/flag/host.json"),
    33.0,
    False,
    ("path",),
    3600.0,
    0.0,
    (0,),
    Path("/flag/state"),
)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def write(home: dict[str, str], text: str | bytes) -> None:
    path = Path(home["HOME"]) / ".config" / "mxr" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_nothing_said(home: dict[str, str]) -> None:
    state = Path(home["HOME"]) / ".local" / "state" / "mxr"
    cache = Path(home["HOME"]) / ".cache" / "mxr"
    assert load(home) == Settings(DEFAULT_REGISTRY, None, cache, state_dir=state)


def test_every_setting_has_a_variable() -> None:
    assert set(VARIABLES) == set(Settings.__dataclass_fields__) == set(GIVEN)


def test_flags_then_environment_then_file(home: dict[str, str]) -> None:
    write(home, FILE)
    assert load(home) == FROM_FILE
    assert load(home | ENVIRON) == FROM_ENVIRON
    assert load(home | ENVIRON, GIVEN) == FROM_FLAGS


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_each_setting_for_itself(home: dict[str, str], name: str) -> None:
    write(home, FILE)
    one = load(home | {VARIABLES[name]: ENVIRON[VARIABLES[name]]}, {"token": None})
    assert {row: getattr(one, row) for row in VARIABLES} == {
        row: getattr(FROM_ENVIRON if row == name else FROM_FILE, row) for row in VARIABLES
    }
    two = load(home | ENVIRON, {name: GIVEN[name]})
    assert {row: getattr(two, row) for row in VARIABLES} == {
        row: getattr(FROM_FLAGS if row == name else FROM_ENVIRON, row) for row in VARIABLES
    }


def test_an_empty_variable_is_not_set(home: dict[str, str]) -> None:
    write(home, FILE)
    assert load(home | dict.fromkeys(VARIABLES.values(), "")) == FROM_FILE


def test_the_usual_places_can_be_moved(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "c"), "XDG_CONFIG_HOME": str(tmp_path / "f")}
    (tmp_path / "f" / "mxr").mkdir(parents=True)
    (tmp_path / "f" / "mxr" / "config.toml").write_text('token = "moved"')
    found = load(environ)
    assert (found.cache_dir, found.token) == (tmp_path / "c" / "mxr", "moved")


@pytest.mark.parametrize(
    "text",
    [
        *("registry =", "= 1", b"\xff\xfe", "[registry]\nurl = 'http://a'", "registri = 'http://a'", "registry = 5"),
        *("timeout = '60'", "timeout = true", "timeout = 0", "timeout = nan", "timeout = inf", "token = ['a']"),
        *("plaintext = 1", "plaintext = 'on'", "kserve_allow = ['env']", "kserve_allow = 'all'"),
        *("max_age = true", "max_age = 'soon'", "max_stale = [1]", "cache_owners = 5", "cache_owners = ['x']"),
        *("cache_dir = false", "registry = 'file:1'", "token = 'a'\ntoken = 'b'"),
    ],
)
def test_a_bad_file_is_named(home: dict[str, str], text: str | bytes) -> None:
    write(home, text)
    with pytest.raises(UsageError) as caught:
        load(home)
    assert caught.value.hint


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
        load(home, change)
    assert caught.value.hint


def test_a_file_that_is_not_there_or_no_file_is_no_file(home: dict[str, str]) -> None:
    (Path(home["HOME"]) / ".config" / "mxr" / "config.toml").mkdir(parents=True)
    assert load(home).registry == DEFAULT_REGISTRY


def test_no_settings_show_a_secret(tmp_path: Path) -> None:
    """Neither the repr nor an error of any settings (client, worker, registry) has a token or a password."""
    from mxr_registry.config.settings import RegistrySettings
    from mxr_workers.settings import read as read_worker

    secret = "hunter2hunter2"
    environ = {"HOME": str(tmp_path), "MXR_TOKEN": secret, "AWS_SECRET_ACCESS_KEY": secret}
    environ |= {"MXR_DATABASE_URL": f"postgresql://me:{secret}@host/mxr", "MXR_STORE_URL": f"s3://b/{secret}"}
    shown = [repr(load(environ)), repr(read_worker(environ, {})), repr(RegistrySettings.read(environ))]
    assert load(environ).token == secret and not any(secret in text for text in shown)
    errors = []
    for wrong in (f"http://me:{secret}@host", f"me:{secret}@host", f"ftp://{secret}@host", f"http://{secret}@"):
        with pytest.raises(UsageError) as caught:
            load(environ, {"registry": wrong})
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
    assert load({"MXR_TOKEN": "p@ss!w0rd\n"}).token == "p@ss!w0rd"
    for wrong in ("p@ss w0rd", "p@ss\nw0rd", "é€"):
        with pytest.raises(UsageError) as caught:
            load({"MXR_TOKEN": wrong})
        assert wrong not in str(caught.value.to_json())
