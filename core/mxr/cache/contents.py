"""What a cache holds: for lists, verification and cleaning up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mxr.util.frozen import dataclass
from mxr.util.hashing import is_intact, sha256_file

from .partition import CachedArtifact, Partition
from .store import Cache

BUNDLE = "bundle"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cached program. `source`: the URL of its registry, or `bundle`; empty where nothing is known about it."""

    path: Path
    source: str = ""
    record: CachedArtifact | None = None


@dataclass(frozen=True, slots=True)
class KnownRegistry:
    """A registry with a partition. `current`: it is the one that answered last at its URL in its namespace."""

    url: str
    namespace: str
    current: bool
    partition: Partition


def registries(cache: Cache) -> Iterator[KnownRegistry]:
    """Yield every registry that has a partition."""
    for home in cache.folder.names("registries"):
        try:
            row = json.loads(cache.folder.read(f"registries/{home}/registry.json") or b"")
            url, namespace, current = str(row["url"]), str(row["namespace"]), row["uuid"]
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
        for uuid in cache.folder.names(f"registries/{home}"):
            if uuid != "registry.json":
                partition = Partition(cache.folder, f"registries/{home}/{uuid}")
                yield KnownRegistry(url, namespace, uuid == current, partition)


def entries(cache: Cache) -> Iterator[CacheEntry]:
    """Yield every cached program, with what is known about it."""
    sources = [(registry.url, registry.partition) for registry in registries(cache) if registry.current]
    known = {
        file.sha256: (label, record)
        for label, partition in (*sources, (BUNDLE, cache.imported))
        for record in partition.records()
        for file in (record.artifact.manifest.files if record.artifact.manifest else ())
    }
    for sha in cache.programs():
        yield CacheEntry(cache.file_path(sha), *known.get(sha, ()))


def verify_programs(cache: Cache, *, quick: bool = False) -> Iterator[tuple[Path, bool]]:
    """Read every program again, and yield its path and whether it is intact. Removes damaged programs.

    `quick`: compares the XXH3-128 recorded when the sha256 was checked, which finds accidental damage.
    """
    for sha in cache.programs():
        path = cache.file_path(sha)
        with suppress(OSError):
            good = is_intact(path, sha, cache.memo) if quick else sha256_file(path) == sha
            if not good:
                cache.remove_file(sha)
            yield path, good


def remove_superseded(cache: Cache) -> int:
    """Remove the answers of registries that no longer answer at their URL. Returns the number of registries."""
    count = 0
    for registry in list(registries(cache)):
        if not registry.current and cache.folder.writable:
            shutil.rmtree(cache.root / registry.partition.name, ignore_errors=True)
            count += 1
    return count
