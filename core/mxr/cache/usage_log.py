"""Uses of programs that the registry did not see: noted beside the cache, and told when this host speaks to it next.

    <cache_dir>/v1/uses                    a line for each use: the artifact's id, seconds since 1970
    <cache_dir>/v1/uses-<pid>-<random>     the same, while one process tells the registry of them

A registry that sweeps what nobody uses must know of the hosts that live on their caches. The counts are for people and
for sweeping: one that is lost or told twice does no harm, and nothing here may fail or delay a fetch.
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

MOST = 1 << 20
"""Bytes of notes that are kept: some ten thousand uses."""

LATE = 3600.0
"""Seconds after which the notes of a process that never came to tell them are taken over."""


def note(root: Path, identity: str) -> None:
    """Note a use of an artifact, under the cache's versioned folder."""
    path = root / "uses"
    with suppress(OSError):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(handle).st_size < MOST:
                # One write of a short line: those of several processes do not mix.
                os.write(handle, f"{identity} {int(time.time())}\n".encode())
        finally:
            os.close(handle)


def tell(root: Path, client: Client) -> None:
    """Tell the registry what was noted, if anything; what it could not be told is told the next time."""
    for path in _waiting(root):
        mine = root / f"uses-{os.getpid()}-{os.urandom(4).hex()}"
        with suppress(OSError, MxrError):
            path.rename(mine)
            some = _read(mine)
            if some:
                client.tell_uses(some)
            mine.unlink()


def _waiting(root: Path) -> list[Path]:
    """The notes that nobody is telling: the file itself, and those of processes that ended in between."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(root):
            late = entry.name.startswith("uses-") and entry.stat().st_ctime < time.time() - LATE
            if late or entry.name == "uses":
                found.append(Path(entry.path))
    return found


def _read(path: Path) -> tuple[Use, ...]:
    from mxr.protocol.artifacts import MOST_USES, Use

    counts: dict[str, int] = {}
    latest: dict[str, int] = {}
    for line in path.read_text("ascii", "replace").splitlines():
        with suppress(MxrError, ValueError):
            identity, written = line.split(" ")
            moment = int(check_sha256(identity) and written)
            counts[identity] = counts.get(identity, 0) + 1
            latest[identity] = max(moment, latest.get(identity, 0))
    # Ages instead of times: the clocks of host and registry need not agree.
    return tuple(
        Use(identity, count, float(max(0, int(time.time()) - latest[identity])))
        for identity, count in list(counts.items())[:MOST_USES]
    )
