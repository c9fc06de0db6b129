"""The image of the registry, built and run: its user, its files, a read-only file system, its health check, SIGTERM."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.scale import only_in_soak
from harness.waiting import until
from paths import ROOT
from servers.images import Builder, Image
from servers.nginx import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(600), only_in_soak]

MOST = 200 << 20
"""Bytes that the image may add to its base."""
MOUNTS = ("etc/pip.conf", "run/ca.pem")
UNWANTED = re.compile(r"(^|/)(\.git|\.venv|\.env|\.cache)(/|$)|\.(whl|pem|key|toml)$")


@pytest.fixture
def image(tmp_path: Path) -> Iterator[tuple[Image, Path]]:
    """The image, and the folder of its base."""
    builder = Builder(tmp_path / "images")
    (tmp_path / "images").mkdir()
    try:
        yield builder.build(ROOT / "deploy/docker/registry.Dockerfile", ROOT, builder.base()), builder.folder / "base"
    finally:
        with contextlib.suppress(AssertionError):
            builder.run("umount", "--all")
        shutil.rmtree(builder.folder, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def check_files(image: Image, base: Path) -> None:
    """Only what the registry needs is there, and its user can change none of it."""
    assert size_of(image.root) - size_of(base) < MOST
    before = {path.relative_to(base) for path in base.rglob("*")}
    added = {path.relative_to(image.root) for path in image.root.rglob("*")} - before
    outside = {path for path in added if path.parts[:2] != ("opt", "mxr")}
    assert outside <= {Path(name) for name in ("data", "opt", "etc/hosts", *MOUNTS)}, outside
    named = {str(path) for path in added if "site-packages" not in path.parts}.difference(MOUNTS)
    assert not [name for name in named if UNWANTED.search(name)]
    packages = {path.name for path in image.root.glob("opt/mxr/lib/python3*/site-packages/*")}
    assert {"mxr", "mxr_registry", "mxr_migrations"} <= packages and not packages & {"pip", "setuptools", "pytest"}
    for path in image.root.rglob("*"):
        found = path.lstat()
        if path == image.root / "data":
            assert (found.st_uid, found.st_mode & 0o7777) == (65532, 0o700)
        elif (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)) and not found.st_mode & stat.S_ISVTX:
            assert found.st_uid != 65532 and not found.st_mode & stat.S_IWOTH, path
    # Mounts of the build leave empty files: what pip was told here is no part of it.
    assert all(
        (image.root / name).stat().st_size == 0 for name in ("etc/pip.conf", "run/ca.pem") if Path(name) in added
    )


def test_the_image_of_the_registry(image: tuple[Image, Path], tmp_path: Path) -> None:
    found, base = image
    assert found.config["User"] == "65532:65532" and found.config["WorkingDir"] == "/data"
    assert set(found.config["Volumes"]) == {"/data"} and set(found.config["ExposedPorts"]) == {"8765/tcp"}
    health = found.config["Healthcheck"]["Test"]
    assert health[0] == "CMD"
    check_files(found, base)

    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 65532, 65532)
    port = free_port()
    environ = {"MXR_SERVE_PORT": str(port)}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            found.command(argv, data, environ), capture_output=True, text=True, timeout=120, check=False
        )

    assert run(*health[1:]).returncode != 0
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(found.command(found.argv(), data, environ), stdout=stream, stderr=stream)
    try:
        until(lambda: "listening on http://0.0.0.0" in log.read_text() or process.poll() is not None, 60.0)
        assert process.poll() is None, log.read_text()
        assert run(*health[1:]).returncode == 0
        token = run(*found.argv("token", "create", "alice", "--scopes", "admin")).stdout.strip()
        url = f"http://127.0.0.1:{port}"
        headers = {"authorization": f"Bearer {token}", "content-type": "application/octet-stream"}
        body = b"x" * 100_000
        sha = hashlib.sha256(body).hexdigest()
        made = urllib3.request("PUT", f"{url}/v1/blobs/{sha}", body=body, headers=headers)
        assert made.status == 201, made.data
        who: dict[str, Any] = json.loads(urllib3.request("GET", f"{url}/v1/whoami", headers=headers).data)
        assert who["name"] == "alice"
        assert run("python3", "-c", "open('/opt/mxr/x', 'w')").stderr.rstrip().endswith("'/opt/mxr/x'")
        # unshare is process 1 to the registry; its child is the registry itself.
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(30)
    assert {path.name for path in data.iterdir()} >= {"registry.db", "store"}
    assert "Traceback" not in log.read_text()
