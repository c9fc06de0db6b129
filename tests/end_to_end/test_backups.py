"""Backup and restore by the commands of docs/operate.md, while hosts publish; and what came after the backup."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import tokens
from paths import ROOT
from servers.postgresql import binaries
from servers.swift import Bucket

from .conftest import Programs, unique
from .stack import Host, Registry, Stack

ON = ("embedded", "engines")

PAGE = ROOT / "docs" / "operate.md"
BACKUP = "mxr-registry backup /backup/mxr --data /var/lib/mxr"
RESTORE_ROWS = "mxr-registry restore /backup/mxr --data /var/lib/mxr"
DUMP = 'pg_dump --format=custom --file=/backup/mxr.dump "$MXR_DATABASE_URL"'
RESTORE = (
    "pg_restore --no-owner --exit-on-error "
    "--dbname='postgresql://mxr:PASSWORD@db.example.com/mxr_restored' /backup/mxr.dump"
)
Start = Callable[..., Registry]


def run(words: str, put: dict[str, str], environ: dict[str, str]) -> None:
    """Run a command of the page with other places in it."""
    assert words in PAGE.read_text()
    for name, place in put.items():
        words = words.replace(name, place)
    done = subprocess.run(["sh", "-ec", words], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done)


def embedded(registry: Registry, backup: Path, _: Stack) -> dict[str, Any]:
    """Rows, then bytes; where the restored registry finds them is the folder of the next one that is started."""
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(BACKUP, {"/var/lib/mxr": str(registry.data), "/backup/mxr": str(backup)}, environ)
    there = registry.data.parents[1] / "registry-1" / "data"
    run(RESTORE_ROWS, {"/var/lib/mxr": str(there), "/backup/mxr": str(backup)}, environ)
    # The key is in no backup: it comes from where secrets are kept.
    assert not list(backup.rglob("*.key"))
    shutil.copy(registry.data / "signing.key", there)
    return {}


def engines(registry: Registry, backup: Path, stack: Stack) -> dict[str, Any]:
    """The same with PostgreSQL's tools; the objects are copied as `aws s3 sync` does."""
    server, bucket = stack.databases.server(), stack.buckets[registry.data]
    environ = registry.environ | {"PATH": f"{binaries()}:{os.environ['PATH']}"}
    restored, copy = server.empty(), Bucket(bucket.client, f"{bucket.name}copy", bucket.endpoint)
    put = {
        "/backup": str(backup),
        "postgresql://mxr:PASSWORD@db.example.com/mxr_restored": restored,
    }
    run(DUMP, put, environ)
    copy.client.create_bucket(Bucket=copy.name)
    for name in bucket.names():
        copy.client.copy_object(Bucket=copy.name, Key=name, CopySource={"Bucket": bucket.name, "Key": name})
    run(RESTORE, put, environ)
    return {"environ": {**copy.environ, "MXR_DATABASE_URL": restored}, "spoil": copy.spoil}


def test_a_registry_is_backed_up_while_it_serves_and_restored(
    own_registry: Start,
    stack: Stack,
    model: Path,
    programs: Programs,
    gpu: tuple[str, ...],
    tmp_path: Path,
) -> None:
    registry = own_registry()
    publisher = Host(tmp_path / "publisher", registry.url)

    def publish(at: Path) -> str:
        words = ("push", programs.gfx908, "--model", at, "--rocm", "7.2", "--for", "python", "--json")
        return str(publisher(*words).json["id"])

    before = publish(model)
    publisher("lock", model, *gpu)
    publisher("lock", "--register", "prod")

    enough = threading.Event()

    def go_on() -> None:
        for number in range(1000):
            if enough.is_set():
                return
            publish(unique(model, tmp_path / f"{number}.onnx", f"{tmp_path}{number}"))

    other = threading.Thread(target=go_on)
    other.start()
    backup = tmp_path / "backup"
    backup.mkdir()
    try:
        options = (embedded if stack.embedded else engines)(registry, backup, stack)
    finally:
        enough.set()
        other.join()
    late = unique(model, tmp_path / "late.onnx", f"{tmp_path}late")
    lost = publish(late)
    assert publisher("fetch", late, *gpu, "--json").json["id"] == lost
    registry.kill9()

    # At the same address: a cache keeps the answers of registries at different addresses apart.
    restored = own_registry(**options, port=registry.port)
    report = restored.fsck()
    assert report["artifacts"] >= 1
    fresh = Host(tmp_path / "fresh", restored.url)
    publisher.environ |= tokens.variable(restored.url)
    assert fresh("fetch", model, *gpu, "--json").json["id"] == before
    assert "prod" in fresh("rm", before, "--yes", expect=7).err

    # What was published since comes back from the cache of a host that has it.
    fresh("fetch", late, *gpu, expect=3)
    publisher("export", lost[:12], "-o", "lost.tar")
    publisher("import", "lost.tar", "--into", "registry")
    assert fresh("fetch", late, *gpu, "--json").json["id"] == lost
    assert restored.fsck()["artifacts"] == report["artifacts"] + 1
