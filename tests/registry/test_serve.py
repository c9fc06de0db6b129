"""The program: how it starts, what it refuses, how it stops, and how it says so."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from harness.registry import PROBLEM, RegistryProcess, registry_environ
from registry.registry_client import RegistryUnderTest, Start


@pytest.fixture(scope="module")
def engine() -> str:
    """What a server's database changes is in test_postgresql."""
    return "sqlite"


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_program(["mxr-registry", *words], env={**os.environ, **environ})


def test_it_says_where_it_listens_and_is_ready_then(start: Start) -> None:
    server = start()
    assert server.line == f"mxr-registry: listening on {server.url} (data in {server.data})\n"
    assert server.call("GET", "/healthz") == (200, {"ok": True})
    assert server.call("GET", "/readyz") == (200, {"database": "ok", "ok": True, "store": "ok"})


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_stops_when_told_to(start: Start, how: int, code: int) -> None:
    server = start()
    assert server.call("GET", "/healthz")[0] == 200
    assert server.stop(how) == code


def test_a_reload_without_a_certificate_ends_nothing(start: Start) -> None:
    """`systemctl reload`; a terminal that closes still ends it."""
    server = start()
    server.process.send_signal(signal.SIGHUP)
    assert server.call("GET", "/healthz")[0] == 200
    assert server.stop() == 0


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_hears_that_it_serves(tmp_path: Path, abstract: bool) -> None:
    name = f"mxr-{secrets.token_hex(8)}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        manager.settimeout(30)
        server = RegistryProcess(
            tmp_path / "data", registry_environ({"NOTIFY_SOCKET": f"@{name}" if abstract else name})
        )
        try:
            assert manager.recv(100) == b"READY=1"
        finally:
            server.stop()


def test_a_service_manager_that_does_not_listen_stops_nothing(tmp_path: Path) -> None:
    server = RegistryProcess(tmp_path / "data", registry_environ({"NOTIFY_SOCKET": str(tmp_path / "none")}))
    assert server.call("GET", "/healthz")[0] == 200
    assert server.stop() == 0


EARLY = """
import os, signal
real = signal.signal
def once(number, handler):
    before = real(number, handler)
    if number == signal.SIGTERM:
        signal.signal = real
        os.kill(os.getpid(), number)
    return before
signal.signal = once
"""
"""A SIGTERM at the first moment at which it does not simply end the process."""


def test_it_stops_when_told_to_before_it_serves(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    done = run("serve", "--port", "0", "--data", str(tmp_path / "data"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_nobody_finds_a_token_by_himself(start: Start, host: str) -> None:
    server = start("--host", host)
    assert server.url.startswith(f"http://{'[::]' if host == '::' else host}:")
    assert not server.socket_path.exists()
    bare = server.call("GET", "/v1/artifacts", headers={"authorization": ""})
    assert (bare[0], bare[1]["code"]) == (401, "unauthenticated")
    assert server.call("GET", "/v1/artifacts")[0] == 200


def test_a_port_that_is_taken_is_said(start: Start, tmp_path: Path) -> None:
    server = start()
    done = run("serve", "--port", str(server.port), "--data", str(tmp_path / "other"))
    assert (done.returncode, len(done.stderr.splitlines())) == (75, 2)
    assert f"Port {server.port}" in done.stderr


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MXR_DATABASE_URL": "nonsense"}, "MXR_DATABASE_URL"),
        ({"MXR_DATABASE_URL": "sqlite:////dev/null/x.db"}, "database cannot be opened"),
        ({"MXR_STORE_URL": "ftp://x/y"}, "MXR_STORE_URL"),
    ],
)
def test_settings_that_are_not_right_are_said_in_two_lines(tmp_path: Path, environ: Any, words: str) -> None:
    done = run("serve", "--port", "0", "--data", str(tmp_path / "data"), **environ)
    lines = [line for line in done.stderr.splitlines() if " WARNING " not in line]
    assert done.returncode in (2, 75) and words in lines[0] and len(lines) == 2, done.stderr


def test_many_may_start_on_one_new_folder_at_once(start: Start, databases: Any, tmp_path: Path) -> None:
    rows = databases(tmp_path / "shared", migrated=False)
    with ThreadPoolExecutor(4) as pool:
        servers = list(pool.map(lambda _: start(data=tmp_path / "shared", rows=rows), range(4)))
    data = b"through one, out of another"
    name = servers[0].upload(data)["sha256"]
    assert {server.get(f"/v1/blobs/{name}").data for server in servers} == {data}


def test_replies_in_our_form_for_what_is_not_there(server: RegistryUnderTest) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("PATCH", "/v1/artifacts", 405), ("GET", "/v1/", 404)):
        found, said = server.call(method, path)
        assert found == said["status"] == status and set(said) == {*PROBLEM, "request_id"}
    assert server.http.request("PATCH", server.url + "/v1/models").headers["allow"]


def test_migrate_may_run_again(tmp_path: Path) -> None:
    first, second = (run("migrate", "--json", "--data", str(tmp_path / "data")) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert json.loads(first.stdout) == json.loads(second.stdout)


@pytest.mark.parametrize("words", [(), ("serve",), ("migrate",), ("fsck",)])
def test_help(words: Any) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0 and "Usage:" in done.stdout


def test_a_flag_that_there_is_not_is_a_usage_error() -> None:
    assert run("serve", "--colour").returncode == 2
