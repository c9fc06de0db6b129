"""The log of program uses that the cache served, reported to the registry with the next request of this host.

    <partition>/uses                    one line for each use: the artifact's id, seconds since 1970
    <partition>/uses-<pid>-<random>     the same, while one process reports them

A registry that removes unused programs must know which programs hosts use from their caches. The counts are statistics:
a lost or repeated report does no harm. Nothing in this module may fail or delay a fetch.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.manifest import check_sha256
from mxr.errors import MxrError

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.protocol.artifacts import Use

    from .partition import Partition

MAX_BYTES = 1 << 20
"""Maximum size of the log in bytes: more than ten thousand uses."""

LATE = 3600.0
"""Seconds after which another process takes over the log of a process that did not finish its report."""


def log_use(partition: Partition, identity: str) -> None:
    """Log a use of an artifact of the registry of this partition."""
    with (
        suppress(OSError, MxrError),
        partition.folder.open_to_write(f"{partition.name}/uses", os.O_WRONLY | os.O_APPEND) as handle,
    ):
        if os.fstat(handle).st_size < MAX_BYTES:
            # A single write of a short line: lines of several processes do not mix.
            os.write(handle, f"{identity} {int(time.time())}\n".encode())


def report_uses(partition: Partition, client: Client) -> None:
    """Report the logged uses to the registry, if there are any. After a failure, a later call reports them."""
    folder, home = partition.folder, partition.folder.path / partition.name
    for name in _waiting(home, folder.names(partition.name)):
        mine = f"uses-{os.getpid()}-{os.urandom(4).hex()}"
        with suppress(OSError, MxrError):
            (home / name).rename(home / mine)
            some = _read(folder.read(f"{partition.name}/{mine}") or b"")
            if some:
                client.report_uses(some)
            folder.remove(f"{partition.name}/{mine}")


def _waiting(home: Path, names: list[str]) -> list[str]:
    """Return the logs that no process is reporting: the current one, and those of processes that ended early."""
    found = []
    for name in names:
        with suppress(OSError):
            late = name.startswith("uses-") and (home / name).lstat().st_ctime < time.time() - LATE
            if late or name == "uses":
                found.append(name)
    return found


def _read(data: bytes) -> tuple[Use, ...]:
    from mxr.artifact.limits import MAX_USES
    from mxr.protocol.artifacts import Use

    counts: dict[str, int] = {}
    latest: dict[str, int] = {}
    for line in data.decode("ascii", "replace").splitlines():
        with suppress(MxrError, ValueError):
            identity, written = line.split(" ")
            moment = int(check_sha256(identity) and written)
            counts[identity] = counts.get(identity, 0) + 1
            latest[identity] = max(moment, latest.get(identity, 0))
    # Ages instead of times, because the clocks of host and registry can differ.
    return tuple(
        Use(identity, count, float(max(0, int(time.time()) - latest[identity])))
        for identity, count in list(counts.items())[:MAX_USES]
    )
