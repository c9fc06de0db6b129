"""`mxr-registry config`: check, show and sample, and a registry that starts with what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomllib
from harness.programs import run as run_program
from harness.registry import registry_environ
from registry.registry_client import ONNX_MODEL, REF, Start, ref_key

PASSWORD = "hunter2hunter2"


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def run(*words: object, **environ: str) -> Any:
    """A command of `mxr-registry` with this environment."""
    return run_program(["mxr-registry", *map(str, words)], env=registry_environ(environ))


def test_a_registry_starts_with_the_sample(start: Start, tmp_path: Path) -> None:
    sample = run("config", "sample")
    assert sample.returncode == 0 and tomllib.loads(sample.stdout)
    server = start(config=sample.stdout)
    assert server.ok("GET", "/readyz")["ok"]
    path = tmp_path / "sample.toml"
    path.write_text(sample.stdout)
    checked = run("config", "check", "--config", path)
    assert (checked.returncode, checked.stdout) == (0, f"The configuration is valid ({path}).\n")


def test_each_value_is_shown_with_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text('[limits]\nbody = "16MiB"\n[work]\nlease = 30\n[[pools]]\nname = "x"\n')
    environ = {"MXR_REGISTRY_CONFIG": str(path), "MXR_WORK_LEASE": "2m"}
    environ["MXR_DATABASE_URL"] = f"postgresql://me:{PASSWORD}@db/mxr"
    words = ("config", "show", "--data", "/srv/mxr", "--set", "limits.blob=1GiB")
    done = run(*words, "--json", **environ)
    document = json.loads(done.stdout)
    rows = document["settings"]
    assert done.returncode == 0 and document["file"] == str(path) and document["lists"] == {"pools": 1}
    assert rows["serve.data"] == {"value": "/srv/mxr", "from": "--data"}
    assert rows["limits.body"] == {"value": 16 << 20, "from": f"{path}:2"}
    assert rows["limits.blob"] == {"value": 1 << 30, "from": "--set limits.blob"}
    assert rows["work.lease"] == {"value": 120.0, "from": "MXR_WORK_LEASE"}
    assert rows["database.url"] == {"value": "postgresql://db/mxr", "from": "MXR_DATABASE_URL"}
    assert rows["store.url"] == {"value": "file:///srv/mxr/store", "from": "default"}
    assert rows["limits.connections"]["from"] == "default"
    text = run(*words, **environ).stdout
    assert f"limits.body  16777216 {path}:2".split() in [line.split() for line in text.splitlines()]
    assert PASSWORD not in done.stdout + text


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(f'[limits]\nbdy = 1\nblob = -1\n[databse]\nurl = "postgresql://me:{PASSWORD}@db/mxr"\n')
    done = run("config", "check", "--config", path, MXR_DATABSE_POOL="3", MXR_WORK_LEASE="5min")
    assert done.returncode == 2
    for part in (
        f"{path}:2: unknown setting 'bdy' in [limits].",
        "Did you mean body?",
        f"{path}:3: limits.blob: expected bytes",
        f"{path}:4: unknown table or setting 'databse'.",
        "Did you mean database?",
        "MXR_DATABSE_POOL is no setting of mxr-registry.",
        "Did you mean MXR_DATABASE_POOL?",
        "MXR_WORK_LEASE: expected seconds, or a time such as 90s or 2h",
    ):
        assert part in done.stderr, part
    assert PASSWORD not in done.stderr
    shown = run("config", "show", "--config", path)
    assert shown.returncode == 2 and "work.lease" in shown.stdout and "3 problems" in shown.stderr


@pytest.mark.parametrize(
    ("words", "environ", "part"),
    [
        (["serve", "--port", "x"], {}, "--port: expected an integer, 0 to 65535"),
        (["serve", "--trusted-proxies", "10.0.0.0/99"], {}, "--trusted-proxies: expected IP addresses or networks"),
        (["serve", "--allowed-host", "*.example.com"], {}, "--allowed-host: expected names of hosts"),
        (["serve"], {"MXR_STORE_ULR": "s3://x"}, "Did you mean MXR_STORE_URL?"),
        (["serve"], {"MXR_STORE_URL": f"s3://key:{PASSWORD}@bucket"}, "user name or a password"),
        (["serve"], {"MXR_S3_ENDPOINT": "http://127.0.0.1:1"}, "the store is not in S3"),
        (["serve", "--set", f"database.url=postgresql://me:{PASSWORD}@db/x"], {}, "the command line of a process"),
        (["fsck", "--set", "limits.bdy=1"], {}, "Did you mean limits.body?"),
        (["sweep", "--unused-days", "-1"], {}, "retention.unused_days: expected days, 0 to 36500"),
        (["migrate", "--config", "/there/is/none.toml"], {}, "There is no configuration file"),
        (["config", "check", "--set", "work.backoff=10h"], {}, "no less than work.backoff"),
    ],
)
def test_no_command_works_with_what_is_wrong(
    tmp_path: Path, words: list[str], environ: dict[str, str], part: str
) -> None:
    done = run(*words, "--data", tmp_path / "data", **environ)
    assert done.returncode == 2, done.stderr
    assert part in done.stderr and PASSWORD not in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_links_of_kubernetes_do_no_harm(start: Start, databases: Any, tmp_path: Path) -> None:
    links = {
        "MXR_PORT": "tcp://10.0.0.1:80",
        "MXR_SERVE_PORT": "tcp://10.0.0.1:80",
        "MXR_REGISTRY_PORT_8765_TCP": "tcp://10.0.0.1:8765",
        "MXR_REGISTRY_SERVICE_HOST": "10.0.0.1",
    }
    rows = replace(databases(tmp_path / "data"), environ=links)
    assert start(rows=rows).ok("GET", "/readyz")["ok"]


def test_the_environment_configures_what_the_options_do(start: Start, databases: Any, tmp_path: Path) -> None:
    environ = {
        "MXR_SERVE_ALLOWED_HOSTS": "one.example two.example",
        "MXR_SERVE_TRUSTED_PROXIES": "10.0.0.0/8,127.0.0.1",
    }
    server = start(rows=replace(databases(tmp_path / "data"), environ=environ))
    for host, status in (("one.example", 200), ("two.example", 200), ("three.example", 403)):
        assert server.request("GET", "/readyz", headers={"host": host}).status == status
    _, artifact = server.publish(REF, ref_key(ONNX_MODEL))
    assert artifact["serve"] == "built"
