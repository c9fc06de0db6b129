"""Writes the static form of a registry to a folder or a bucket (`mxr.protocol.static_form`), and brings it up to date.

Each file appears whole, and after what it names: bytes, statements and the recall list, then the artifacts, the
indexes, and `mxr.json`. So a reader beside a writer, or after one that was killed, finds everything that it is led to.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from mxr.artifact import packed
from mxr.artifact.key import MODEL, MODEL_PREFIX
from mxr.artifact.manifest import Blob, File
from mxr.artifact.recall import Recall
from mxr.artifact.records import INTACT, Artifact, ModelClaim
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.display import progress
from mxr.errors import DamagedError, MxrError, NotFoundError, TooLargeError, UsageError
from mxr.protocol import static_form
from mxr.protocol.static_form import FOLDERS, INDEXES, ROOT, ModelIndex, StaticArtifact, StaticRegistry
from mxr.util import codec, disk
from mxr.util.codec import Timestamp
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_hex

from .static_places import StaticPlace

GRACE = 86_400.0
"""Seconds for which a file that nothing names stays: a reader may still be led to it by an older index."""

PAGE = 500


@dataclass(frozen=True, slots=True)
class StaticResult:
    """What was written. `artifacts`, `models`: those that the run looked at. `written`: files, `size`: their bytes."""

    where: str
    artifacts: int
    models: int
    written: int
    size: int
    pruned: int = 0


def all_artifacts(client: Client, **filters: str | int | None) -> Iterator[Artifact]:
    """Yield the artifacts that are there and that nobody quarantined. `filters`: as of `Client.artifacts`."""
    after: str | None = None
    while True:
        page = client.artifacts(**filters, state=INTACT, after=after, limit=PAGE)
        for each in page.items:
            if each.recall is None or not each.recall.refuses:
                yield client.artifact(each.id)
        if page.next is None:
            return
        after = page.next


class StaticWriter:
    """Writes the artifacts of one registry to one place. Raises `UsageError` for that of another registry."""

    def __init__(self, place: StaticPlace, client: Client, cache: Cache) -> None:
        self._place, self._client, self._cache = place, client, cache
        self._written = self._size = self._artifacts = self._models = 0
        self._lock = threading.Lock()

    def write(self, artifacts: Iterable[Artifact], *, whole: bool, prune: bool) -> StaticResult:
        """Write these artifacts beside those that are there; with `whole`, no others stay. Returns what was done.

        `prune`: remove files that nothing has named for a day. Raises `UnreachableError`, `DamagedBlobError`, and
        faults of the place.
        """
        keys, listed = self._client.keys(), self._client.recall_list()
        found: dict[str, dict[str, Artifact]] = defaultdict(dict)
        for each in artifacts:
            found[each.key.model][each.id] = each
        serve = next((each.serve for rows in found.values() for each in rows.values()), None)
        with self._place.locked():
            before = self._known_root(keys.registry)
            list_sha = self._write_immutable("recalls", codec.encode(listed)) if listed.sequence else None
            root = StaticRegistry(
                keys.registry, listed.namespace, listed.sequence, list_sha, Timestamp(time.time()), keys.items
            )
            # Where nothing was recalled since, an index changes by its own artifacts only.
            other = before is not None and (whole or before.recalls != listed.sequence)
            recalls = {each.id: each.recall for each in listed.items}
            for model in sorted(found.keys() | ({*self._models_there()} if other else ())):
                self._write_index(root, model, found.get(model, {}), recalls, serve, whole=whole)
            self._write(ROOT, codec.encode(root))
            pruned = self._prune(root) if prune else 0
        where = self._place.where
        return StaticResult(where, self._artifacts, self._models, self._written, self._size, pruned)

    def _write_index(
        self,
        root: StaticRegistry,
        model: str,
        artifacts: Mapping[str, Artifact],
        recalls: Mapping[str, Recall],
        serve: str | None,
        *,
        whole: bool,
    ) -> None:
        """Write the artifacts of a model, and its index if it changed."""
        before = self._known_index(model)
        there = {row.artifact.id: row for row in before.artifacts} if before is not None else {}
        rows = {id: self._write_parts(artifact, there.get(id)) for id, artifact in sorted(artifacts.items())}
        # What is quarantined stays, without its bytes: who has a copy is told why it is refused.
        kept = {id: row for id, row in there.items() if not whole or _refused(recalls.get(id))}
        ordered = tuple(_recalled(row, recalls) for _, row in sorted((kept | rows).items()))
        self._artifacts, self._models = self._artifacts + len(ordered), self._models + 1
        index = ModelIndex(
            registry=root.registry,
            namespace=root.namespace,
            model=model,
            serve=serve or (before.serve if before else "any"),
            recalls=root.recalls,
            written_at=root.written_at,
            claim=self._claim(model, before) if ordered else None,
            artifacts=ordered,
        )
        if before is None or replace(index, written_at=before.written_at) != before:
            data = codec.canonical(codec.encode(index)).encode()
            if len(data) > static_form.MAX_INDEX:
                raise TooLargeError(
                    f"Model {model[:19]} has {len(ordered)} artifacts, whose index would have {len(data)} bytes: hosts "
                    f"read {static_form.MAX_INDEX}.",
                    hint="Export what hosts need to a place of its own: a LOCK, or ids instead of --all.",
                )
            self._write_data(static_form.index_name(model), data)

    def _known_root(self, registry: str) -> StaticRegistry | None:
        """What `mxr.json` says, if it is there. Raises `UsageError` for that of another registry, `DamagedError`."""
        root = self._read(StaticRegistry, ROOT)
        if root is not None and root.registry != registry:
            raise UsageError(
                f"{self._place.where} is the static form of registry {root.registry}, and not of {registry}.",
                hint="Export each registry to a place of its own.",
            )
        return root

    def _models_there(self) -> Iterator[str]:
        """Yield the models that have an index."""
        for each in self._place.files(INDEXES):
            digits = each.name.removeprefix(f"{INDEXES}/").removesuffix(".json")
            if MODEL.fullmatch(MODEL_PREFIX + digits):
                yield MODEL_PREFIX + digits

    def _known_index(self, model: str) -> ModelIndex | None:
        return self._read(ModelIndex, static_form.index_name(model))

    def _read(self, kind: type[codec.T], name: str) -> codec.T | None:
        data = self._place.read(name)
        if data is None:
            return None
        try:
            return codec.decode(kind, codec.parse(data, name), lenient=True)
        except MxrError as problem:
            raise DamagedError(
                f"{name} in {self._place.where} is damaged: {problem.message}",
                hint="Remove it, and export with --all.",
            ) from None

    def _write_parts(self, artifact: Artifact, before: StaticArtifact | None) -> StaticArtifact:
        """Write the bytes of an artifact and what was signed of it, and return its row."""
        artifact.refuse_quarantined()
        assert artifact.manifest is not None
        for file in artifact.manifest.files:
            self._write_blobs(file)
        signed = self._client.statements(artifact.id)
        sha = self._write_immutable("statements", codec.encode(signed)) if signed.items else None
        blobs = sorted({blob.sha256 for blob in artifact.manifest.blobs()})
        smaller = tuple(sha for sha in blobs if self._place.size(static_form.blob_name(sha, packed=True)))
        row = StaticArtifact(replace(artifact, description=None, provenance={}, recall=None), sha, smaller)
        # What is said of a compile never changes.
        if before is None or replace(before, artifact=replace(before.artifact, recall=None)) != row:
            self._write(static_form.artifact_name(artifact.id), codec.encode(replace(artifact, description=None)))
        return row

    def _write_blobs(self, file: File) -> None:
        blobs = {static_form.blob_name(blob.sha256): blob for blob in file.blobs}
        missing = [(name, blob) for name, blob in blobs.items() if self._place.size(name) != blob.size]
        if not missing:
            return
        step = progress.begin(f"exporting {file.name}", sum(blob.size for _, blob in missing))
        places = self._cache.blob_positions(file) if self._cache.has_file(file.sha256) else {}

        def copy(each: tuple[str, Blob]) -> None:
            name, blob = each
            with self._place.blob(name) as (descriptor, path):
                target = transfer.DownloadTarget(descriptor, 0, path)
                transfer.obtain_blob(self._client, blob, target, places.get(blob.sha256), step)
                self._write_packed(blob, target)
            self._count(blob.size)

        with transfer.TransferPool(copy, missing, transfer.AT_ONCE):
            pass

    def _write_packed(self, blob: Blob, plain: transfer.DownloadTarget) -> None:
        """Write the packed form of a blob, if it is much smaller, before the blob itself."""
        if not packed.available():
            return
        start = b"".join(plain.read(min(packed.SAMPLE, blob.size)))
        if not packed.pays(start, blob.size):
            return
        packer, at = packed.Packer(blob.size), 0
        with self._place.blob(static_form.blob_name(blob.sha256, packed=True)) as (descriptor, path):
            at = packer.head_size
            each = (frame for data in plain.read(blob.size) for frame in packer.add(data))
            for frame in chain(each, packer.finish()):
                with disk.faults(path):
                    disk.write_at(descriptor, frame, at)
                at += len(frame)
            with disk.faults(path):
                disk.write_at(descriptor, packer.head, 0)
        self._count(at)

    def _count(self, size: int) -> None:
        with self._lock:
            self._written, self._size = self._written + 1, self._size + size

    def _write_immutable(self, folder: str, document: object) -> str:
        data = codec.canonical(document).encode()
        sha = sha256_hex(data)
        if self._place.size(f"{folder}/{sha}.json") != len(data):
            self._write(f"{folder}/{sha}.json", document)
        return sha

    def _write(self, name: str, document: object) -> None:
        self._write_data(name, codec.canonical(document).encode())

    def _write_data(self, name: str, data: bytes) -> None:
        self._place.write(name, data)
        self._count(len(data))

    def _claim(self, model: str, before: ModelIndex | None) -> ModelClaim | None:
        try:
            known = self._client.model(model)
        except NotFoundError:
            return None if before is None else before.claim
        return ModelClaim(known.name, known.inputs)

    def _prune(self, root: StaticRegistry) -> int:
        """Remove the files that no index and `mxr.json` name, once they are old enough. Returns their number."""
        named = {f"recalls/{root.recall_list}.json"}
        for model in self._models_there():
            index = self._known_index(model)
            for row in index.artifacts if index is not None else ():
                assert row.artifact.manifest is not None
                named |= {static_form.artifact_name(row.artifact.id), f"statements/{row.statements}.json"}
                if not _refused(row.artifact.recall):
                    named |= {static_form.blob_name(blob.sha256) for blob in row.artifact.manifest.blobs()}
                    named |= {static_form.blob_name(sha, packed=True) for sha in row.packed}
        oldest = time.time() - GRACE
        left = [each for folder in FOLDERS for each in self._place.files(folder) if each.name not in named]
        old = [each for each in left if each.modified < oldest]
        for each in old:
            self._place.remove(each.name)
        return len(old)


def _recalled(row: StaticArtifact, recalls: Mapping[str, Recall]) -> StaticArtifact:
    return replace(row, artifact=replace(row.artifact, recall=recalls.get(row.artifact.id)))


def _refused(recall: Recall | None) -> bool:
    return recall is not None and recall.refuses
