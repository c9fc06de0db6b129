"""Writes a bundle. The position of every byte is known before the first write, so an interrupted export can resume.

<bundle>                                      appears by one rename, when every blob in it has its sha256
.mxr-partial-<bundle>-<hash of its layout>    until then; the same export finds it again and keeps the correct blobs
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.artifact.manifest import Blob
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.errors import (
    DamagedError,
    DiskFullError,
    NoSuchArtifactError,
    NotAllowedError,
    NotFoundError,
    TemporaryError,
    UsageError,
)
from mxr.lockfiles import pins
from mxr.lockfiles.lockfile import LockFile
from mxr.protocol.artifacts import ModelClaim
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import read_chunks, sha256_chunks
from mxr.workflows.fetch import Watch, unwatched

from . import oci, tarball
from .contents import BundleLayout, BundleRecord, lay_out
from .oci import BLOBS

if TYPE_CHECKING:
    from mxr.client.registry import Client


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A bundle that was written. `kept`: bytes that an interrupted export had already written."""

    path: Path
    size: int
    artifacts: tuple[str, ...]
    blobs: int
    kept: int


def gather(
    lock: LockFile | None, identities: Iterable[str], cache: Cache, client: Client, *, include_removed: bool = False
) -> list[BundleRecord]:
    """Collect the artifacts of a lock, and those with these ids or id prefixes.

    What the registry lost comes from the cache; what it removed, only with `include_removed`. Raises `NotFoundError`
    for an artifact that is gone, `DamagedError` if the registry's answer does not match its id.
    """
    found: dict[str, Artifact] = {}
    for entry in lock.entries if lock else ():
        # The registry is asked even where the cache is young enough to serve: a bundle outlives its age.
        found[entry.id] = pins.check_pinned(entry, _named(entry.id, cache, client, include_removed))
    for identity in identities:
        artifact = _named(identity, cache, client, include_removed)
        if not artifact.sound:
            raise DamagedError(
                f"The registry's answer for {identity} does not match its id.",
                hint="Its database is damaged, or a proxy mixes up answers: run `mxr-registry fsck` on its host.",
            )
        found[artifact.id] = artifact
    models = {artifact.key.model for artifact in found.values()}
    descriptions = {model: _model_description(model, client) for model in sorted(models)}
    return [BundleRecord.of(artifact, descriptions[artifact.key.model]) for artifact in found.values()]


def _named(identity: str, cache: Cache, client: Client, include_removed: bool) -> Artifact:
    """The artifact of this id from the registry, or from the cache: see `_held`."""
    try:
        return client.artifact(identity)
    except NotFoundError as gone:
        return _held(identity, cache, include_removed, gone)


def _held(identity: str, cache: Cache, include_removed: bool, gone: NotFoundError) -> Artifact:
    """The artifact from the cache, which can restore what the registry lost. Raises `gone` where there is none.

    What the registry removed is no loss, and it says so: it must not come back by chance. Raises `NoSuchArtifactError`.
    """
    record = cache.find_record(identity)
    if record is None:
        raise gone
    if include_removed:
        return record.artifact
    if record.gone or gone.context.get("removed"):
        raise NoSuchArtifactError(
            f"Artifact {record.artifact.id[:12]} was removed from the registry, so it is not exported from the cache.",
            hint="It may have been removed because it is wrong. To export it all the same, add --include-removed.",
            context={"id": record.artifact.id, "removed": True},
        ) from gone
    return record.artifact


def _model_description(model: str, client: Client) -> ModelClaim | None:
    """The registry's description of a model; None, because a program can be published without one."""
    try:
        known = client.model(model)
    except NotFoundError:
        return None
    return ModelClaim(known.name, known.inputs)


def export(
    records: list[BundleRecord],
    lock: LockFile | None,
    final: Path,
    cache: Cache,
    client: Client,
    *,
    watch: Watch = unwatched,
) -> ExportResult:
    """Write a bundle to `final`, with blobs from the cache where it has them, else from the registry.

    After an interruption, the same call resumes. Raises `UnreachableError`, `DamagedBlobError`, a disk fault, and
    `TemporaryError` if another process writes the same bundle.
    """
    if not records:
        raise UsageError("There is nothing to export.", hint="Give a lock file with entries, or ids of artifacts.")
    layout = lay_out(records, lock)
    if len(layout.documents) + len(layout.blobs) > tarball.MAX_MEMBERS:
        raise UsageError("The artifacts have too many blobs for one bundle.", hint="Export them in several bundles.")
    heads, size = _heads(layout)
    if final.is_dir():
        raise UsageError(f"{final} is a folder.", hint="Give the path of a file: -o FOLDER/bundle.tar.")
    before = disk.refuse_other(final, "a bundle", _is_bundle)
    with _partial(before, heads, size) as (descriptor, fresh):
        missing = [(blob, at) for blob, at in _offsets(layout) if fresh or not _is_correct(descriptor, blob, at)]
        moving = sum(blob.size for blob, _ in missing)
        _copy_blobs(missing, descriptor, final, _cached(records, cache), client, watch(moving))
    whole = sum(blob.size for blob in layout.blobs)
    ids = tuple(sorted(record.id for record in records))
    return ExportResult(final, size, ids, len(layout.blobs), whole - moving)


def _is_bundle(head: bytes) -> bool:
    """Whether a file begins as a bundle does."""
    return head.startswith(oci.LAYOUT_FILE.encode() + b"\0") and head[257:262] == b"ustar"


def _heads(layout: BundleLayout) -> tuple[list[tuple[int, bytes]], int]:
    """Everything except the blobs, each part with its offset, and the total size in bytes."""
    at, rows = 0, []
    for name, data in layout.documents.items():
        rows.append((at, tarball.header(name, len(data)) + data))
        at += tarball.BLOCK + tarball.padded(len(data))
    for blob in layout.blobs:
        rows.append((at, tarball.header(BLOBS + blob.sha256, blob.size)))
        at += tarball.BLOCK + tarball.padded(blob.size)
    return rows, at + len(tarball.END)


def _offsets(layout: BundleLayout) -> Iterator[tuple[Blob, int]]:
    at = sum(tarball.BLOCK + tarball.padded(len(data)) for data in layout.documents.values())
    for blob in layout.blobs:
        yield blob, at + tarball.BLOCK
        at += tarball.BLOCK + tarball.padded(blob.size)


@contextmanager
def _partial(before: disk.FileState, heads: list[tuple[int, bytes]], size: int) -> Iterator[tuple[int, bool]]:
    """Open the file that becomes the bundle, locked for this process. Yields its descriptor and whether it is new.

    `before`: what is at the path of the bundle, and may be replaced. If the block fails, the file stays, so that the
    next export resumes; on a full disk it is removed.
    """
    final, digest = before.path, sha256(b"".join(data for _, data in heads)).hexdigest()[:16]
    path = final.parent / f"{disk.PARTIAL}{final.name[:40]}-{digest}"
    with disk.faults(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor, fresh = _opened(path, size)
    try:
        with disk.faults(final):
            os.posix_fallocate(descriptor, 0, size)
            for at, data in heads:
                disk.write_at(descriptor, data, at)
        yield descriptor, fresh
        with disk.faults(final):
            disk.give_mode(descriptor, 0o644)
            os.fsync(descriptor)
            before.replace_by(path)
            disk.sync_folder(final.parent)
    except DiskFullError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    _remove_stale(final)


def _opened(path: Path, size: int) -> tuple[int, bool]:
    import fcntl

    while True:
        # The name can be known to others: what another user put there is neither followed nor written to.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with disk.faults(path):
            descriptor = os.open(path, flags, 0o600)
        own = os.fstat(descriptor)
        if not stat.S_ISREG(own.st_mode) or own.st_uid != os.geteuid() or own.st_nlink > 1 or own.st_mode & 0o022:
            os.close(descriptor)
            raise NotAllowedError(
                f"{path} is not a file that only this user can write, so that the bundle cannot be written there.",
                hint="Remove it, or give another folder with -o.",
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise TemporaryError(
                f"Another process is writing this bundle ({path}).", hint="Wait until it ends, or give another -o."
            ) from None
        except OSError:
            pass  # the file system has no locks; two processes with the same layout write the same bytes
        status = os.fstat(descriptor)
        with suppress(OSError):
            if path.lstat().st_ino == status.st_ino:
                return descriptor, status.st_size != size
        os.close(descriptor)  # another process has just completed and renamed this file


def _remove_stale(final: Path) -> None:
    """Remove the partial files of other layouts of this bundle, unless a process is writing them."""
    import fcntl

    for path in final.parent.glob(f"{disk.PARTIAL}{final.name[:40]}-{'[0-9a-f]' * 16}"):
        with suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _is_correct(descriptor: int, blob: Blob, at: int) -> bool:
    return sha256_chunks(read_chunks(descriptor, at, blob.size)) == blob.sha256


def _cached(records: list[BundleRecord], cache: Cache) -> dict[str, tuple[Path, int]]:
    """The path and offset of each blob that the cache holds."""
    found: dict[str, tuple[Path, int]] = {}
    for record in records:
        for file in record.manifest.files:
            if cache.has_file(file.sha256):
                found |= cache.blob_positions(file)
    return found


def _copy_blobs(
    missing: list[tuple[Blob, int]],
    descriptor: int,
    final: Path,
    cached: dict[str, tuple[Path, int]],
    client: Client,
    progress: Callable[[int], None],
) -> None:
    """Write the missing blobs to their offsets, several in parallel, and check each while it is written."""
    own = os.dup(descriptor)

    def copy(index: int) -> None:
        blob, at = missing[index]
        transfer.bring_blob(client, blob, transfer.DownloadTarget(own, at, final), cached.get(blob.sha256), progress)

    with transfer.TransferPool(copy, range(len(missing)), transfer.AT_ONCE, lambda: os.close(own)):
        pass
