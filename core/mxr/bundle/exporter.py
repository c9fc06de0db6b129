"""Writes a bundle: the place of each blob in its tar is known before the first is written, so several move at once."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.artifact.manifest import Blob
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.display import progress
from mxr.errors import DamagedError, NoSuchArtifactError, NotFoundError, UsageError
from mxr.plans import pins
from mxr.plans.lockfile import LockFile
from mxr.protocol.artifacts import ModelClaim
from mxr.util import disk
from mxr.util.frozen import dataclass

from . import oci
from .contents import BundleLayout, BundleRecord, lay_out
from .image_layout import MAX_MEMBERS
from .oci import BLOBS

if TYPE_CHECKING:
    from mxr.client.registry import Client
    from mxr.trust.envelope import Envelope


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A bundle that was written."""

    path: Path
    size: int
    artifacts: tuple[str, ...]
    blobs: int


def collect_records(
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
    return [
        BundleRecord.of(artifact, descriptions[artifact.key.model], *_statements(artifact.id, cache, client))
        for artifact in found.values()
    ]


def _statements(
    identity: str, cache: Cache, client: Client
) -> tuple[tuple[Envelope, ...], tuple[Mapping[str, Any], ...]]:
    """What was signed of an artifact, and the bundles of sigstore, with the originals.

    What the cache keeps, where the registry has it no more.
    """
    try:
        found = client.statements(identity).items
    except NotFoundError:
        return cache.statements(identity), ()
    bundles = tuple(each.bundle for each in found if each.bundle is not None)
    return tuple(each.envelope for each in found if each.bundle is None), bundles


def _named(identity: str, cache: Cache, client: Client, include_removed: bool) -> Artifact:
    """The artifact of this id from the registry, or from the cache: see `_held`."""
    try:
        artifact = client.artifact(identity)
    except NotFoundError as gone:
        artifact = _held(identity, cache, include_removed, gone)
    artifact.refuse_quarantined()
    return artifact


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


def signed_recalls(client: Client) -> Envelope | None:
    """Return the recall list of the registry; None if nothing was ever recalled there, or it cannot sign."""
    found = client.recall_list()
    return found.envelope if found.sequence else None


def export(
    records: list[BundleRecord],
    lock: LockFile | None,
    final: Path,
    cache: Cache,
    client: Client,
    recalls: Envelope | None = None,
) -> ExportResult:
    """Write a bundle to `final`, with blobs from the cache where it has them, else from the registry.

    `recalls`: the recall list that it has, see `signed_recalls`.


    It appears when every blob in it has its sha256. Raises `UnreachableError`, `DamagedBlobError`, and a disk fault.
    """
    if not records:
        raise UsageError("There is nothing to export.", hint="Give a lock file with entries, or ids of artifacts.")
    layout = lay_out(records, lock, recalls)
    if len(layout.documents) + len(layout.blobs) > MAX_MEMBERS:
        raise UsageError("The artifacts have too many blobs for one bundle.", hint="Export them in several bundles.")
    if final.is_dir():
        raise UsageError(f"{final} is a folder.", hint="Give the path of a file: -o FOLDER/bundle.tar.")
    before = disk.refuse_other(final, "a bundle", _is_bundle)
    heads, places, size = _arrange(layout)
    with disk.atomic_file(final, before=before) as descriptor:
        with disk.faults(final):
            os.posix_fallocate(descriptor, 0, size)
            for at, data in heads:
                disk.write_at(descriptor, data, at)
        _copy_blobs(places, descriptor, final, _cached(records, cache), client)
    return ExportResult(final, size, tuple(sorted(record.id for record in records)), len(layout.blobs))


def _is_bundle(head: bytes) -> bool:
    """Whether a file begins as a bundle does."""
    return head.startswith(oci.LAYOUT_FILE.encode() + b"\0") and head[257:262] == b"ustar"


def _arrange(layout: BundleLayout) -> tuple[list[tuple[int, bytes]], list[tuple[Blob, int]], int]:
    """Return all but the blobs with offsets, the blobs with theirs, and the size of the tar in bytes."""
    heads: list[tuple[int, bytes]] = []
    places: list[tuple[Blob, int]] = []
    at = 0
    for name, data in layout.documents.items():
        heads.append((at, _header(name, len(data)) + data))
        at += tarfile.BLOCKSIZE + _padded(len(data))
    for blob in layout.blobs:
        heads.append((at, _header(BLOBS + blob.sha256, blob.size)))
        places.append((blob, at + tarfile.BLOCKSIZE))
        at += tarfile.BLOCKSIZE + _padded(blob.size)
    return heads, places, at + 2 * tarfile.BLOCKSIZE


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def _padded(size: int) -> int:
    """The bytes that the content of a file of this size takes in a tar."""
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


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
) -> None:
    """Write the missing blobs to their offsets, several in parallel, and check each while it is written."""
    own = os.dup(descriptor)
    step = progress.begin(f"exporting {final.name}", sum(blob.size for blob, _ in missing))

    def copy(index: int) -> None:
        blob, at = missing[index]
        transfer.obtain_blob(client, blob, transfer.DownloadTarget(own, at, final), cached.get(blob.sha256), step)

    with transfer.TransferPool(copy, range(len(missing)), transfer.AT_ONCE, lambda: os.close(own)):
        pass
