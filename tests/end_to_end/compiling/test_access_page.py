"""docs/access.md, each command as written: from the first token to a team with CI and workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from end_to_end.stack import BIN, Host, Registry
from harness.scale import only_in_soak
from harness.waiting import until
from paths import ROOT
from servers.certificates import write_certificate

from .conftest import REF, asked, worker_environ

ON = ("embedded",)
PAGE = (ROOT / "docs" / "access.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Desk:
    """A folder in which the blocks of the page are pasted into a shell, one after another."""

    def __init__(self, home: Path, registry: Registry, ca_file: Path) -> None:
        home.mkdir()
        self.home, self.url, self.umask = home, registry.url, "022"
        self.environ = worker_environ(home) | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "MXR_SERVE_DATA": str(registry.data),
            "MXR_CA_FILE": str(ca_file),
            "MXR_WORKER_NAME": "gpu-host",
        }

    def paste(self, block: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a block; what it exports stays, and its umask."""
        block = block.replace("https://registry.example.com", self.url)
        script = f"set -eu\numask {self.umask}\n{block}\nenv -0 > {self.home}/.env\numask > {self.home}/.umask"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == expect, done
        if expect == 0:
            pairs = (self.home / ".env").read_bytes().decode().split("\0")
            self.environ = dict(each.split("=", 1) for each in pairs if each)
            self.umask = (self.home / ".umask").read_text().strip()
        return done


@pytest.fixture
def desk(own_registry: Callable[..., Registry], tmp_path: Path) -> tuple[Desk, Registry]:
    """A registry with TLS on another address than loopback would have, and the desk of its operator."""
    pem, key = write_certificate(tmp_path, "registry")
    environ = {"MXR_SERVE_TLS_CERT": str(pem), "MXR_SERVE_TLS_KEY": str(key)}
    registry = own_registry(environ=environ)
    return Desk(tmp_path / "desk", registry, pem), registry


def block_with(text: str) -> str:
    """The one block of the page that has these words."""
    (found,) = [block for block in BLOCKS if text in block]
    return found


@only_in_soak
def test_the_page_as_it_is_written(
    desk: tuple[Desk, Registry], host: Callable[..., Host], convnet: Path, tmp_path: Path
) -> None:
    shell, registry = desk
    place = "~/.local/state/mxr/run/$(hostname)_8765.sock"
    with tempfile.TemporaryDirectory() as short:
        # curl takes a path of at most 107 bytes.
        Path(short, "socket").symlink_to(registry.socket_path)
        done = shell.paste(block_with("curl --unix-socket").replace(place, f"{short}/socket"))
    assert json.loads(done.stdout)["name"] == "local"
    shell.paste(block_with("create alice"))
    token = (shell.home / "alice.token").read_text()
    assert (shell.home / "alice.token").stat().st_mode & 0o777 == 0o600
    done = shell.paste(block_with("mxr login"))
    assert (
        done.stdout == f"{registry.url}: alice (admin)\nalice (admin) at {registry.url}\n" and token not in done.stderr
    )

    shell.paste(block_with("create serving"))
    files = {each.stem: each.read_text() for each in shell.home.glob("*.token")}
    assert set(files) == {"alice", "serving", "ci", "release", "worker", "metrics"}
    assert all(each.stat().st_mode & 0o077 == 0 for each in shell.home.glob("*.token"))

    # CI asks for a compile, and the worker of the page does it.
    ci = host("ci", registry.url)
    ci.environ |= {
        "MXR_TOKEN": "",
        "MXR_TOKEN_FILE": str(shell.home / "ci.token"),
        "MXR_CA_FILE": shell.environ["MXR_CA_FILE"],
    }
    job = asked(ci, convnet)
    shell.paste(block_with("mxr-worker run"))
    found = ci("jobs", job, "--json").json
    assert (found["state"], found["worker"]) == ("done", "gpu-host/ref")

    done = shell.paste(block_with("mxr jobs"))
    assert job[:8] in done.stdout and found["artifact"][:8] in done.stdout
    refused = shell.paste("MXR_TOKEN_FILE=serving.token mxr jobs", expect=7)
    assert " of serving has the scope fetch; this needs ask." in refused.stderr
    serving = host("serving", registry.url)
    serving.environ |= ci.environ | {
        "MXR_TOKEN_FILE": str(shell.home / "serving.token"),
        "MXR_CACHE_DIR": str(tmp_path / "c"),
    }
    assert serving("fetch", convnet, *REF, "--json").json["id"] == found["artifact"]

    # Renewal and revocation.
    done = shell.paste(block_with("worker.new"))
    assert len(re.findall("of gpu-hosts: work", done.stdout)) == 2 and "of alice: admin, last used" in done.stdout
    shell.paste(block_with("revoke ci"))
    until(lambda: ci("jobs", expect=7), 2.0)
    assert "was revoked at" in ci("jobs", expect=7).err


def test_every_block_of_the_page_is_run() -> None:
    tried = Path(__file__).read_text()
    unseen = [
        block
        for block in BLOCKS
        if not any(
            f'"{words}"' in tried
            for words in re.findall(
                r"(?:curl --unix-socket|create \w+|mxr login|mxr-worker run|mxr jobs|worker\.new|revoke ci)", block
            )
        )
    ]
    assert unseen == [] and len(BLOCKS) == 8


def test_metrics_are_read_with_their_token(desk: tuple[Desk, Registry]) -> None:
    shell, registry = desk
    shell.paste(block_with("create serving"))
    script = 'printf "Authorization: Bearer %s" "$(cat metrics.token)" > header; '
    done = shell.paste(script + f'curl -sS --cacert "$MXR_CA_FILE" -H @header {registry.url}/metrics')
    assert "mxr_fleet_jobs" in done.stdout
    said: Any = json.loads(shell.paste(f'curl -sS --cacert "$MXR_CA_FILE" {registry.url}/metrics').stdout)
    assert said["code"] == "unauthenticated"
