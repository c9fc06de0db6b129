"""Real mounts, in a mount namespace of their own, for tests that run as root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxr.util.hashing import FileStamp
from servers.debian import missing


def in_own_namespace(script: str, *words: object, env: Mapping[str, str] | None = None) -> str:
    """The output of a Python script that may mount; what it mounted ends with it. Skips where nobody may mount."""
    prefix = ("unshare", "--mount", "--propagation=private")
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        missing("Only root with the right to mount can run this test.")
    command = [*prefix, sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **(env or {})}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A folder where the memo of digests works, which it does not in memory; skips where there is none."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        if not FileStamp.of(Path(name)).trusted:
            missing("The test needs a disk whose time stamps are trusted in /var/tmp, such as ext4.")
        yield Path(name)
