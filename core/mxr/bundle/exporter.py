"""Writing a bundle: its whole form is known before the first byte, so that a write that was cut off goes on.

<bundle>                                    appears when every blob in it has its sha256, by one rename
.mxr-partial-<bundle>-<hash of its form>    until then; the same export finds it again, and keeps what is right
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.manifest import Blob
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.client.registry import CHUNK
from mxr.errors import Damaged, DiskFull, NotFound, Temporary, Usage
from mxr.lockfiles import pins
from mxr.lockfiles.lockfile import LockFile
from mxr.protocol.artifacts import RegisterModel
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.workflows.fetch import Watch, unwatched

from . import tarball
from .contents import BundleLayout, BundleRecord, lay_out
from .oci import BLOBS

if TYPE_CHECKING:
    from mxr.client.registry import Client


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A bundle that was written. `kept`: bytes that an earlier try had brought already."""

    path: Path
    size: int
    artifacts: tuple[str, ...]
    blobs: int
    kept: int


def gather(lock: LockFile | None, identities: Iterable[str], cache: Cache, client: Client) -> list[BundleRecord]:
    """What is to travel: the artifacts of a lock, and those of these ids (or the beginnings of them).

    Raises `NotFound` for one that is gone, `Damaged` where the registry's answer is not what its id says.
    """
    found: dict[str, Artifact] = {}
    for entry in lock.entries if lock else ():
        found[entry.id] = pins.artifact_of(entry, cache, lambda: client)
    for identity in identities:
        artifact = _named(identity, cache, client)
        if not artifact.sound:
            raise Damaged(
                f"The registry's answer for {identity} is not what its id says.",
                hint="Its database is damaged, or a proxy mixes up answers: run `mxr-registry fsck` there.",
            )
        found[artifact.id] = artifact
    models = {artifact.key.model for artifact in found.values()}
    stated = {model: _statement(model, client) for model in sorted(models)}
    return [BundleRecord.of(artifact, stated[artifact.key.model]) for artifact in found.values()]


def _named(identity: str, cache: Cache, client: Client) -> Artifact:
    """What the registry knows under an id; what it lost, and this host still has, can be brought back from here."""
    try:
        return client.artifact(identity)
    except NotFound:
        if (held := cache.named(identity)) is None:
            raise
        return held


def _statement(model: str, client: Client) -> RegisterModel | None:
    """What the registry knows of a model; a program may have been published without a word about it."""
    try:
        known = client.model(model)
    except NotFound:
        return None
    return RegisterModel(known.model, known.sha256, known.name, known.inputs)


def export(
    records: list[BundleRecord],
    lock: LockFile | None,
    final: Path,
    cache: Cache,
    client: Client,
    *,
    watch: Watch = unwatched,
) -> ExportResult:
    """Writes a bundle to `final`. What the cache holds is taken from there, the rest from the registry.

    Interrupted, the same call again goes on. Raises `Unreachable`, `DamagedBlob`, a disk fault, and `Temporary` where
    another process writes the same bundle.
    """
    if not records:
        raise Usage("There is nothing to export.", hint="Name a lock with entries, or ids of artifacts.")
    layout = lay_out(records, lock)
    if len(layout.documents) + len(layout.blobs) > tarball.MOST_MEMBERS:
        raise Usage("These are too many for one bundle.", hint="Export them in several.")
    heads, size = _form(layout)
    with _partial(final, heads, size) as (descriptor, fresh):
        left = [(blob, at) for blob, at in _places(layout) if fresh or not _right(descriptor, blob, at)]
        moving = sum(blob.size for blob, _ in left)
        _bring(left, descriptor, final, _held(records, cache), client, watch(moving))
    whole = sum(blob.size for blob in layout.blobs)
    ids = tuple(sorted(record.id for record in records))
    return ExportResult(final, size, ids, len(layout.blobs), whole - moving)


def _form(layout: BundleLayout) -> tuple[list[tuple[int, bytes]], int]:
    """What is written beside the blobs, with its place, and the size of the whole."""
    at, rows = 0, []
    for name, data in layout.documents.items():
        rows.append((at, tarball.header(name, len(data)) + data))
        at += tarball.BLOCK + tarball.padded(len(data))
    for blob in layout.blobs:
        rows.append((at, tarball.header(BLOBS + blob.sha256, blob.size)))
        at += tarball.BLOCK + tarball.padded(blob.size)
    return rows, at + len(tarball.END)


def _places(layout: BundleLayout) -> Iterator[tuple[Blob, int]]:
    at = sum(tarball.BLOCK + tarball.padded(len(data)) for data in layout.documents.values())
    for blob in layout.blobs:
        yield blob, at + tarball.BLOCK
        at += tarball.BLOCK + tarball.padded(blob.size)


@contextmanager
def _partial(final: Path, heads: list[tuple[int, bytes]], size: int) -> Iterator[tuple[int, bool]]:
    """The file that becomes the bundle, this process alone writing to it; whether it is a new one.

    It stays when the block fails, to go on from, but not on a full disk.
    """
    form = sha256(b"".join(data for _, data in heads)).hexdigest()[:16]
    path = final.parent / f"{disk.PARTIAL}{final.name[:40]}-{form}"
    with disk.faults(final):
        if final.is_dir():
            raise Usage(f"{final} is a folder.", hint="Give -o FOLDER/bundle.tar.")
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor, fresh = _opened(path, size)
    try:
        with disk.faults(final):
            os.posix_fallocate(descriptor, 0, size)
            for at, data in heads:
                disk.write_at(descriptor, data, at)
        yield descriptor, fresh
        with disk.faults(final):
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
            path.replace(final)
            disk.sync_folder(final.parent)
    except DiskFull:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    _forget(final)


def _opened(path: Path, size: int) -> tuple[int, bool]:
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Temporary(
                f"Another process writes this bundle ({path}).", hint="Wait for it, or give another -o."
            ) from None
        except OSError:
            pass  # a file system without locks: two that write the same form write the same bytes
        status = os.fstat(descriptor)
        with suppress(OSError):
            if path.stat().st_ino == status.st_ino:
                return descriptor, status.st_size != size
        os.close(descriptor)  # another process has just finished this file and renamed it


def _forget(final: Path) -> None:
    """Removes what other, older forms of this bundle left behind, unless somebody is at work on it."""
    import fcntl

    for path in final.parent.glob(f"{disk.PARTIAL}{final.name[:40]}-{'[0-9a-f]' * 16}"):
        with suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _right(descriptor: int, blob: Blob, at: int) -> bool:
    digest = sha256()
    for offset in range(at, at + blob.size, CHUNK):
        digest.update(os.pread(descriptor, min(CHUNK, at + blob.size - offset), offset))
    return digest.hexdigest() == blob.sha256


def _held(records: list[BundleRecord], cache: Cache) -> dict[str, tuple[Path, int]]:
    """Where the blobs of programs lie that the cache holds."""
    found: dict[str, tuple[Path, int]] = {}
    for record in records:
        for file in record.manifest.files:
            if cache.file(file.sha256).exists():
                found |= cache.places(file)
    return found


def _bring(
    left: list[tuple[Blob, int]],
    descriptor: int,
    final: Path,
    here: dict[str, tuple[Path, int]],
    client: Client,
    progress: Callable[[int], None],
) -> None:
    """Writes blobs to their places, several at once, each checked while it is written."""
    own = os.dup(descriptor)

    def bring(index: int) -> None:
        blob, at = left[index]
        transfer.bring_blob(client, blob, transfer.DownloadTarget(own, at, final), here.get(blob.sha256), progress)

    with transfer.TransferPool(bring, range(len(left)), transfer.AT_ONCE, lambda: os.close(own)):
        pass
