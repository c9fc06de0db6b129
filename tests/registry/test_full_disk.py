"""A registry whose disk is full serves, says so, and lets room be made. A small file system in memory is the disk."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from harness.programs import BIN
from harness.registry import RegistryProcess, registry_environ
from servers.debian import missing

MOUNT = 'mount -t tmpfs -o size=24m,mode=700 tmpfs "$1" && shift && exec "$@"'
RESERVE = 4 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[RegistryProcess]:
    """A registry on a disk of 24 MiB, 4 of which are its reserve."""
    namespace = ("unshare", "--mount", "--propagation=private")
    if os.geteuid() != 0 or subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        missing("Only root with the right to mount can run this test.")
    data = tmp_path / "data"
    data.mkdir()
    environ = registry_environ({"MXR_LIMITS_RESERVE": str(RESERVE)})
    found = RegistryProcess(data, environ, through=(*namespace, "sh", "-c", MOUNT, "sh", str(data)))
    yield found
    found.stop()


def in_its_place(server: RegistryProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that sees the disk of the registry."""
    argv = ["nsenter", "--mount", "--target", str(server.process.pid), *words]
    return subprocess.run(argv, env=server.environ, capture_output=True, text=True, check=False, timeout=60)


TOKEN = {"name": "alice", "scopes": ["fetch"]}


def fill(server: RegistryProcess) -> None:
    """Upload until nothing more finds room."""
    for size in (1 << 20, 64 << 10, 4096):
        while True:
            data = secrets.token_bytes(size)
            status, said = server.call("PUT", f"/v1/blobs/{sha256(data).hexdigest()}", data)
            if status != 201:
                assert (status, said["code"]) == (507, "disk_full"), said
                break


def test_room_can_be_made_on_a_full_disk(small: RegistryProcess) -> None:
    reserve = small.data / "reserve"
    first = secrets.token_bytes(100_000)
    name = sha256(first).hexdigest()
    assert small.call("PUT", f"/v1/blobs/{name}", first)[0] == 201
    ids = [made["token"]["id"] for made in (small.call("POST", "/v1/tokens", TOKEN)[1] for _ in range(20))]
    assert in_its_place(small, "stat", "-c", "%s", str(reserve)).stdout == f"{RESERVE}\n"
    fill(small)
    status, ready = small.call("GET", "/readyz")
    assert status == 200 and ready["ok"] and "is full" in ready["store"]
    assert small.request("GET", f"/v1/blobs/{name}").data == first
    # What only adds finds no room; what takes away does, by the reserve.
    while (reply := small.call("POST", "/v1/tokens", TOKEN))[0] == 201:
        pass
    assert (reply[0], reply[1]["code"]) == (507, "disk_full")
    # The first removals may still find room in pages that are there.
    for id in ids:
        assert small.call("DELETE", f"/v1/tokens/{id}")[0] == 200
    assert "the reserve of 4194304 bytes is given up" in small.log.read_text()
    assert in_its_place(small, "stat", str(reserve)).returncode == 1
    done = in_its_place(small, str(BIN / "mxr-registry"), "sweep", "--data", str(small.data), "--json")
    assert done.returncode == 0, done


def test_it_starts_on_a_full_disk(small: RegistryProcess) -> None:
    fill(small)
    keep = subprocess.Popen(["nsenter", "--mount", "--target", str(small.process.pid), "sleep", "100"])
    try:
        small.stop()
        small.through = ("nsenter", "--mount", "--target", str(keep.pid))
        small.start()
        status, ready = small.call("GET", "/readyz")
        assert status == 200 and "is full" in ready["store"]
        assert small.call("GET", "/v1/artifacts")[0] == 200
    finally:
        keep.kill()
        keep.wait()
