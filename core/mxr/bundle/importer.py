"""Checks a bundle, which is untrusted input, and imports it into a cache or a registry.

    tar and documents -> ids, sizes, requests -> sha256 of every blob and file -> facts of each program -> import

Nothing is written before the whole bundle was checked. Artifacts that already exist are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from mxr.artifact.manifest import Blob, File
from mxr.artifact.records import Model
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.display import progress
from mxr.errors import (
    ConflictError,
    DamagedError,
    NotAllowedError,
    NotFoundError,
    OtherRecordError,
)
from mxr.plans import lockfile
from mxr.plans.lockfile import LockFile
from mxr.program import describe
from mxr.protocol import artifacts as artifact_protocol
from mxr.trust.envelope import Envelope
from mxr.util import codec, disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import Data, hash_chunks, sha256_chunks
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows import push as push_workflow

from . import image_layout, oci
from .contents import BundleRecord
from .image_layout import ImageLayout, wrong
from .oci import BLOBS, Descriptor

if TYPE_CHECKING:
    from mxr.cache.store import Answer
    from mxr.client.registry import Client

MAX_ARTIFACTS = 20_000
MAX_DOCUMENTS_BYTES = 256 << 20
"""Maximum bytes of all JSON documents of a bundle together."""

MAX_INDEX_DEPTH = 3
"""Maximum depth of nested indexes: oras and registries may wrap the index of mxr in one of theirs."""


@dataclass(frozen=True, slots=True)
class BundleContents:
    """The contents of a bundle that was checked."""

    records: tuple[BundleRecord, ...]
    lock: LockFile | None = None
    recalls: Envelope | None = None


@dataclass(frozen=True, slots=True)
class ImportedArtifact:
    """An artifact of the bundle. `new`: the cache or registry did not have it before. `differs`: the registry has it
    with other attributes, which it kept.
    """

    id: str
    new: bool
    differs: bool = False


def check_bundle(layout: ImageLayout) -> BundleContents:
    """Check every byte of a bundle and return its contents.

    Raises `DamagedError` with the reason, and `MismatchError` if a program contradicts its key or an artifact does not
    serve the request that the lock pins to it.
    """
    contents = _contents(layout)
    _check_blobs(layout, contents)
    for record in contents.records:
        _check_programs(layout, record)
    answers(contents)
    return contents


def answers(contents: BundleContents) -> list[tuple[lockfile.LockEntry, Answer]]:
    """The answer for each entry of the lock.

    Raises `DamagedError`, or `MismatchError` if an artifact does not serve it.
    """
    known = {record.id: record.artifact() for record in contents.records}
    rows = []
    for entry in contents.lock.entries if contents.lock else ():
        artifact = known.get(entry.id)
        if artifact is None or (artifact.digest, artifact.sha256) != (entry.digest, entry.sha256):
            raise DamagedError(
                f"The lock of the bundle pins {entry.model} to {entry.id[:12]}, which the bundle does not contain.",
                hint="Export it again with `mxr export`.",
            )
        rows.append(
            (entry, fetch_workflow.check_match(entry.request, artifact, f"The locked artifact for {entry.model}"))
        )
    return rows


def _contents(layout: ImageLayout) -> BundleContents:
    with image_layout.damage_to(layout):
        version = codec.parse(image_layout.read_document(layout, oci.LAYOUT_FILE), "oci-layout")
        if not isinstance(version, dict) or version.get("imageLayoutVersion") != "1.0.0":
            raise wrong(layout, "the version of its oci-layout is not 1.0.0")
        index = oci.read_index(image_layout.read_document(layout, oci.INDEX_FILE))
        return _read(layout, _manifests(layout, index))


def _manifests(layout: ImageLayout, index: list[Descriptor]) -> list[Descriptor]:
    """The manifests that an index and its nested indexes list, without duplicates."""
    level, found = index, dict[Descriptor, None]()
    for _ in range(MAX_INDEX_DEPTH):
        inner: dict[Descriptor, None] = {}
        for row in level:
            if row.media_type not in (oci.MANIFEST, oci.INDEX):
                raise wrong(layout, f"it lists a document of unknown type {row.media_type[:80]!r}")
            (found if row.media_type == oci.MANIFEST else inner)[row] = None
        if len(found) + len(inner) > MAX_ARTIFACTS:
            raise wrong(layout, f"it lists more than {MAX_ARTIFACTS} documents")
        level = [each for row in inner for each in oci.read_index(image_layout.read_document(layout, row))][
            : MAX_ARTIFACTS + 1
        ]
        if not level:
            return list(found)
    raise wrong(layout, "its indexes are nested too deeply")


def _read(layout: ImageLayout, manifests: list[Descriptor]) -> BundleContents:
    records: dict[str, BundleRecord] = {}
    found: LockFile | None = None
    recalls: Envelope | None = None
    size = 0
    for row in manifests:
        kind, config, layers = oci.read_manifest(image_layout.read_document(layout, row))
        size += row.size + config.size
        if size > MAX_DOCUMENTS_BYTES or len(records) >= MAX_ARTIFACTS:
            raise wrong(layout, "its documents are too large, or it has too many artifacts")
        if kind == oci.ARTIFACT:
            record = _record(layout, config, layers)
            records[record.id] = record
        elif kind == oci.LOCK and found is None and len(layers) == 1:
            found = lockfile.parse_lock(image_layout.read_document(layout, layers[0]), f"The lock in {layout.path}")
        elif kind == oci.RECALLS and recalls is None and len(layers) == 1:
            document = codec.parse(image_layout.read_document(layout, layers[0]), "The recall list")
            recalls = codec.decode(Envelope, document, "recalls")
        else:
            raise wrong(layout, f"it has a manifest of unknown type {kind[:80]!r}, or two locks")
    if not records:
        raise wrong(layout, "it contains no artifact")
    return BundleContents(tuple(records[id] for id in sorted(records)), found, recalls)


def _record(layout: ImageLayout, config: Descriptor, layers: list[Descriptor]) -> BundleRecord:
    document = codec.parse(image_layout.read_document(layout, config), "An artifact")
    record = codec.decode(BundleRecord, document, "artifact")
    wanted = [(blob.sha256, blob.size) for file in record.manifest.files for blob in file.blobs]
    if [(layer.sha256, layer.size) for layer in layers] != wanted:
        raise wrong(layout, f"artifact {record.id[:12]} and its OCI manifest list different blobs")
    sizes = layout.sizes()
    for sha, size in wanted:
        if sizes.get(BLOBS + sha) != size:
            raise wrong(layout, f"blob {sha} of artifact {record.id[:12]} is missing or has another size")
    return record


def _check_blobs(layout: ImageLayout, contents: BundleContents) -> None:
    """Check the sha256 of every blob and every file."""
    sizes = {name: size for name, size in layout.sizes().items() if name.startswith(BLOBS)}
    step = progress.begin("checking the bundle", sum(sizes.values()))
    seen: set[str] = set()
    for file in {file.sha256: file for record in contents.records for file in record.manifest.files}.values():
        for blob in _check_file(layout, file):
            if blob.sha256 not in seen:
                step(blob.size)
            seen.add(blob.sha256)
    for name, size in sizes.items():
        sha = name.removeprefix(BLOBS)
        if sha not in seen:
            _check_blob(layout, Blob(sha, size)) if size else _check_empty(layout, sha)
            step(size)


def _check_empty(layout: ImageLayout, sha: str) -> None:
    if sha != sha256(b"").hexdigest():
        raise wrong(layout, f"blob {sha} is empty")


def _check_blob(layout: ImageLayout, blob: Blob) -> None:
    if sha256_chunks(image_layout.chunks(layout, blob)) != blob.sha256:
        raise wrong(layout, f"the content of blob {blob.sha256} does not match its sha256")


def _check_file(layout: ImageLayout, file: File) -> Iterator[Blob]:
    whole = sha256()
    for blob in file.blobs:
        part = sha256()
        hash_chunks(image_layout.chunks(layout, blob), part, whole)
        if part.hexdigest() != blob.sha256:
            raise wrong(layout, f"the content of blob {blob.sha256} does not match its sha256")
        yield blob
    if whole.hexdigest() != file.sha256:
        raise wrong(layout, f"the content of file {file.name} does not match its sha256 {file.sha256}")


def _check_programs(layout: ImageLayout, record: BundleRecord) -> None:
    """Compare each program with its key, as a registry does. Raises `MismatchError` if they contradict each other."""
    for file in record.manifest.files:
        try:
            description = describe(image_layout.FileWithin(layout, file)).to_json()
        except DamagedError as problem:
            raise wrong(layout, f"{file.name} of {record.id[:12]} is not a program: {problem.message}") from None
        push_workflow.refuse_contradictions(record.key, record.attributes, description)


def into_cache(layout: ImageLayout, contents: BundleContents, cache: Cache) -> list[ImportedArtifact]:
    """Import a bundle into the cache, which then serves the requests of the lock without a registry.

    After an interruption, the same call resumes. Raises `DamagedError` if the bundle changed since `check_bundle`,
    `UntrustedError` where signatures are required, or a disk fault.
    """
    done = []
    if contents.recalls is not None:
        cache.import_recalls(contents.recalls)
    for record in contents.records:
        if record.statements:
            cache.imported.store_statements(record.id, record.statements)
        cache.require_proof(record.artifact())
    for record in contents.records:
        new = False
        for file in record.manifest.files:
            if not cache.intact_or_removed(file.sha256):
                _write_file(layout, file, cache)
                new = True
        cache.imported.store_artifact(record.artifact())
        if record.model is not None:
            model = Model(record.key.model, record.model.name, record.model.inputs, claimed=True)
            cache.imported.store_model(model)
        done.append(ImportedArtifact(record.id, new))
    for entry, answer in answers(contents):
        cache.imported.store_answer(entry.request, answer)
    return done


def _write_file(layout: ImageLayout, file: File, cache: Cache) -> None:
    final, digest = cache.prepare_file(file.sha256), sha256()
    step = progress.begin(f"importing {file.name}", file.size)
    with disk.atomic_file(final, mode=0o444) as descriptor:

        def write(data: Data, at: int) -> None:
            with disk.faults(final):
                disk.write_at(descriptor, data, at)
            step(len(data))

        hash_chunks((data for blob in file.blobs for data in image_layout.chunks(layout, blob)), digest, sink=write)
        if digest.hexdigest() != file.sha256:
            raise wrong(layout, f"{file.name} changed during the import")


def into_registry(
    layout: ImageLayout, contents: BundleContents, client: Client, *, restore: bool = False
) -> list[ImportedArtifact]:
    """Publish the artifacts of a bundle; the registry checks them like every publication.

    `restore`: publish also those that were removed from the registry.

    After an interruption, the same call resumes and uploads only what is missing. An artifact that the registry already
    has keeps its attributes. What was signed of it elsewhere is kept beside what this registry signs. Raises the
    registry's `MismatchError` or `ConflictError`, and `UnreachableError`.
    """
    done = []
    for record in contents.records:
        new = not _published(record, client)
        try:
            published = _publish(layout, record, client, restore=restore)
        except ConflictError as problem:
            if new or problem.context.get("id") != record.id or problem.context.get("removed"):
                raise
            done.append(ImportedArtifact(record.id, new=False, differs=True))
            continue
        if published.id != record.id:
            raise DamagedError(
                f"The registry published {published.id[:12]}, but the bundle has {record.id[:12]}.",
                hint="Update mxr on this host and the registry.",
            )
        done.append(ImportedArtifact(record.id, new))
        for document in (*map(codec.encode, record.statements), *record.sigstore):
            # It may have it already, or this user may not add to what others published.
            with suppress(ConflictError, NotAllowedError, OtherRecordError):
                client.add_statement(record.id, document)
    return done


def _publish(layout: ImageLayout, record: BundleRecord, client: Client, *, restore: bool) -> artifact_protocol.Artifact:
    files = record.manifest.files
    return transfer.upload_and_publish(
        lambda: transfer.send(client, files, lambda blob: image_layout.chunks(layout, blob), record.id[:12]),
        lambda: client.publish(record.publication(restore=restore)),
    )


def _published(record: BundleRecord, client: Client) -> bool:
    try:
        return client.artifact(record.id).id == record.id
    except NotFoundError:
        return False
