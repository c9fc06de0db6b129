"""`mxr-worker config`: check, show and sample; the file of a worker beside the configuration of the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
from harness.programs import run as run_program
from harness.registry import registry_environ

from mxr.errors import UsageError
from mxr_workers.settings import read_settings

TOKEN = "hunter2hunter2"


def run(home: Path, *words: object, **environ: str) -> Any:
    """A command of `mxr-worker` with this environment."""
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": ""}
    return run_program(["mxr-worker", *map(str, words)], env=registry_environ(homes | environ))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the worker's file."""
    return tmp_path / "worker.toml"


def test_the_sample_has_the_defaults(tmp_path: Path, path: Path) -> None:
    sample = run(tmp_path, "config", "sample")
    assert sample.returncode == 0 and tomllib.loads(sample.stdout) == {"worker": {}}
    path.write_text(sample.stdout)
    checked = run(tmp_path, "config", "check", "--config", path)
    assert (checked.returncode, checked.stdout) == (0, f"The configuration is valid ({path}).\n")
    environ = {"HOME": str(tmp_path)}
    assert read_settings(environ, {}, path) == read_settings(environ, {})


def test_each_value_is_shown_with_where_it_comes_from(tmp_path: Path, path: Path) -> None:
    client = tmp_path / ".config" / "mxr" / "config.toml"
    client.parent.mkdir(parents=True)
    client.write_text(f'registry = "http://client:1"\ntimeout = 5\ntoken = "{TOKEN}"\n')
    client.chmod(0o600)
    path.write_text('timeout = "2m"\n[worker]\nname = "one"\nmemory = "4GiB"\ngrace = 1\n')
    environ = {"MXR_WORKER_CONFIG": str(path), "MXR_WORKER_GRACE": "5s"}
    words = ("config", "show", "--kind", "ref", "--set", "worker.seconds=2h")
    done = run(tmp_path, *words, "--json", **environ)
    rows = json.loads(done.stdout)["settings"]
    assert {name: (row["value"], row["from"]) for name, row in rows.items() if row["from"] != "default"} == {
        "registry": ("http://client:1", str(client)),
        "timeout": (120.0, f"{path}:1"),
        "worker.name": ("one", f"{path}:3"),
        "worker.memory": (4 << 30, f"{path}:4"),
        "worker.grace": (5.0, "MXR_WORKER_GRACE"),
        "worker.kinds": (["ref"], "--kind"),
        "worker.seconds": (7200.0, "--set worker.seconds"),
    }
    assert rows["worker.spool"]["value"] == str(tmp_path / ".cache" / "mxr-worker")
    found = read_settings({"HOME": str(tmp_path)}, {}, path)
    assert (found.registry.registry, found.registry.timeout, found.name) == ("http://client:1", 120.0, "one")
    assert found.registry.token == TOKEN and TOKEN not in done.stdout + done.stderr + repr(found)


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path, path: Path) -> None:
    path.write_text(f'regstry = "http://me:{TOKEN}@r"\n[worker]\nmemory = "4GB"\nsecond = 1\n')
    done = run(tmp_path, "config", "check", "--config", path, MXR_WORKER_SPOL="/x", MXR_WORKER_KINDS="cpu")
    assert done.returncode == 2
    for part in (
        f"{path}:1: unknown table or setting 'regstry'.",
        "Did you mean registry?",
        f"{path}:3: worker.memory: expected bytes, or a size such as 64MiB",
        f"{path}:4: unknown setting 'second' in [worker].",
        "Did you mean seconds?",
        "MXR_WORKER_SPOL is no setting of mxr-worker.",
        "Did you mean MXR_WORKER_SPOOL?",
        "MXR_WORKER_KINDS: expected gpu, ref or both",
    ):
        assert part in done.stderr, part
    assert TOKEN not in done.stderr
    shown = run(tmp_path, "config", "show", "--config", path, MXR_WORKER_SPOL="/x", MXR_WORKER_NAME="one")
    assert shown.returncode == 2 and "The configuration has 4 problems: " in shown.stderr
    assert '"one"' in shown.stdout and TOKEN not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("words", "environ", "part"),
    [
        (["run"], {"MXR_WORKER_GRACE": "soon"}, "MXR_WORKER_GRACE: expected seconds"),
        (["run", "--set", f"token={TOKEN}"], {}, "There is no setting 'token'."),
        (["run", "--set", "worker.secnds=1"], {}, "Did you mean worker.seconds?"),
        (["run", "--config", "/there/is/none.toml"], {}, "There is no configuration file"),
        (["host"], {"MXR_WORKER_NAM": "x"}, "Did you mean MXR_WORKER_NAME?"),
        (["config", "check"], {"MXR_REGISTRY": f"http://me:{TOKEN}@r"}, "contains a user name or a password"),
        (["config", "show"], {"MXR_WORKER_MEMORY": "-1"}, "MXR_WORKER_MEMORY: expected bytes"),
    ],
)
def test_no_command_works_with_what_is_wrong(
    tmp_path: Path, words: list[str], environ: dict[str, str], part: str
) -> None:
    done = run(tmp_path, *words, **environ)
    assert done.returncode == 2 and part in done.stderr, done.stderr
    assert TOKEN not in done.stderr and "Traceback" not in done.stderr


def test_variables_of_a_registry_are_no_business_of_a_worker(tmp_path: Path) -> None:
    environ = {"MXR_DATABASE_URL": "postgresql://db/mxr", "MXR_LIMITS_BODY": "1", "MXR_REGISTRY_CONFIG": "/x"}
    links = {"MXR_WORKER_PORT": "tcp://10.0.0.1:1", "MXR_REGISTRY_SERVICE_HOST": "10.0.0.1"}
    assert run(tmp_path, "config", "check", **environ, **links).returncode == 0


def test_a_file_that_others_can_write_is_not_used(path: Path) -> None:
    path.write_text(f'token = "{TOKEN}"\n')
    path.chmod(0o666)
    with pytest.raises(UsageError, match="other users can write it") as caught:
        read_settings({}, {}, path)
    assert TOKEN not in str(caught.value.to_json())
