"""When each cached program was last used, and what goes when the cache holds more than its limit.

<cache_dir>/v2/used/<sha256>        its time of modification is the last use, to within an hour
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.errors import MxrError

if TYPE_CHECKING:
    from .store import Cache

EVERY = 3600.0
"""Seconds for which a noted use is not noted again."""

LEAST_AGE = 86_400.0
"""A program that was used within so many seconds stays, so that those of one lock do not drive each other out."""


def note_used(cache: Cache, sha: str) -> None:
    """Note that a program is used now. Does nothing in a cache that is not writable, or for one that is not in it."""
    with suppress(OSError, MxrError):
        if cache.folder.writable and _noted_at(cache, sha) < time.time() - EVERY and cache.file_path(sha).exists():
            with cache.folder.open_to_write(f"used/{sha}", os.O_WRONLY) as descriptor:
                os.utime(descriptor)


def used_at(cache: Cache, sha: str, status: os.stat_result) -> float:
    """Return when a program was last used: as noted, or by its times. With noatime, a read does not change those."""
    return max(status.st_atime, status.st_mtime, _noted_at(cache, sha))


def make_room(cache: Cache, size: int) -> int:
    """Remove the programs used longest ago, so that the cache stays within its limit with `size` bytes more.

    Returns the number of removed programs. Those of the last day stay, even if the cache is larger for them.
    """
    if not cache.policy.size or _size(cache.root / "files") + size <= cache.policy.size:
        return 0
    found = []
    for sha in cache.programs():
        with suppress(OSError):
            status = cache.file_path(sha).stat()
            # Removing one that has another name, by a hard link, would free nothing.
            if status.st_nlink == 1:
                found.append((used_at(cache, sha, status), status.st_size, sha))
    excess, count = sum(held for _, held, _ in found) + size - cache.policy.size, 0
    for used, held, sha in sorted(found):
        if excess <= 0 or used > time.time() - LEAST_AGE:
            break
        cache.remove_file(sha)
        forget(cache, sha)
        excess, count = excess - held, count + 1
    return count


def _size(folder: Path) -> int:
    """Return the bytes of all files in a folder, at little cost: whose they are is checked only where some must go."""
    total = 0
    with suppress(OSError):
        for each in os.scandir(folder):
            total += (
                _size(Path(each)) if each.is_dir(follow_symlinks=False) else each.stat(follow_symlinks=False).st_size
            )
    return total


def forget(cache: Cache, sha: str) -> None:
    """Remove the note of the last use of a program that is gone. Does nothing where that is not possible."""
    cache.folder.remove(f"used/{sha}")


def _noted_at(cache: Cache, sha: str) -> float:
    try:
        return (cache.root / "used" / sha).lstat().st_mtime
    except OSError:
        return 0.0
