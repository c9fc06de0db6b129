"""Writes the static form of a registry to a folder (`mxr.protocol.static_form`), and brings it up to date.

Each file appears whole, and after what it names: bytes, statements and the recall list, then the artifacts, the
indexes, and `mxr.json`. So a reader beside a writer, or after one that was killed, finds everything that it is led to.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mxr.artifact.manifest import Blob
from mxr.artifact.recall import Recall
from mxr.artifact.records import INTACT, Artifact, ModelClaim
from mxr.cache.store import Cache
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.display import progress
from mxr.errors import DamagedError, MxrError, NotFoundError, UsageError, WouldOverwriteError
from mxr.protocol import static_form
from mxr.protocol.static_form import ROOT, ModelIndex, StaticArtifact, StaticRegistry
from mxr.util import codec, disk
from mxr.util.codec import Timestamp
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_hex

LOCK = ".mxr-lock"
"""Lets one writer at a time write to a folder."""

GRACE = 86_400.0
"""Seconds for which a file that nothing names stays: a reader may still be led to it by an older index."""

PAGE = 500

FOLDERS = ("blobs", "statements", "recalls", "artifacts")


@dataclass(frozen=True, slots=True)
class StaticResult:
    """What was written. `artifacts`: how many the folder has now, `written`: the files, `size`: their bytes."""

    path: Path
    artifacts: int
    models: int
    written: int
    size: int
    pruned: int = 0


def all_artifacts(client: Client) -> Iterator[Artifact]:
    """Yield all artifacts of a registry that are there and that nobody quarantined."""
    after: str | None = None
    while True:
        page = client.artifacts(state=INTACT, after=after, limit=PAGE)
        for each in page.items:
            if each.recall is None or not each.recall.refuses:
                yield client.artifact(each.id)
        if page.next is None:
            return
        after = page.next


class StaticWriter:
    """Writes the artifacts of one registry to one folder. Raises `UsageError` for the folder of another registry."""

    def __init__(self, folder: Path, client: Client, cache: Cache) -> None:
        self._folder, self._client, self._cache = folder, client, cache
        self._written = self._size = 0
        self._named: set[str] = set()

    def write(self, artifacts: Iterable[Artifact], *, whole: bool, prune: bool) -> StaticResult:
        """Write these artifacts beside those that are there; with `whole`, no others stay. Returns what was done.

        `prune`: remove files that nothing has named for a day. Raises `UnreachableError`, `DamagedBlobError`, and disk
        faults.
        """
        keys, listed = self._client.keys(), self._client.recall_list()
        with self._locked():
            known = self._known_indexes(keys.registry)
            found = {each.id: each for each in artifacts}
            rows = {id: self._write_parts(artifact) for id, artifact in sorted(found.items())}
            list_sha = self._write_immutable("recalls", codec.encode(listed)) if listed.sequence else None
            recalls = {each.id: each.recall for each in listed.items}
            models = {row.artifact.key.model for row in rows.values()} | known.keys()
            now, count = Timestamp(time.time()), 0
            serve = next((each.serve for each in found.values()), None)
            indexes = {}
            for model in sorted(models):
                before = known.get(model)
                there = {row.artifact.id: row for row in before.artifacts} if before is not None else {}
                # What is quarantined stays, without its bytes: who has a copy is told why it is refused.
                kept = {id: row for id, row in there.items() if not whole or _refused(recalls.get(id))}
                merged = kept | {id: row for id, row in rows.items() if row.artifact.key.model == model}
                ordered = tuple(self._recalled(row, recalls) for _, row in sorted(merged.items()))
                count += len(ordered)
                index = ModelIndex(
                    registry=keys.registry,
                    namespace=listed.namespace,
                    model=model,
                    serve=serve or (before.serve if before else "any"),
                    recalls=listed.sequence,
                    written_at=now,
                    claim=self._claim(model, before) if merged else None,
                    artifacts=ordered,
                )
                if before is None or replace(index, written_at=before.written_at) != before:
                    indexes[model] = index
            for model, index in indexes.items():
                self._write(static_form.index_name(model), codec.encode(index))
            root = StaticRegistry(keys.registry, listed.namespace, listed.sequence, list_sha, now, keys.items)
            self._write(ROOT, codec.encode(root))
            pruned = self._prune() if prune else 0
            return StaticResult(self._folder, count, len(models), self._written, self._size, pruned)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with disk.faults(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            if not (self._folder / ROOT).exists() and {each.name for each in self._folder.iterdir()} - {LOCK, *FOLDERS}:
                raise WouldOverwriteError(
                    f"{self._folder} has other files, and no {ROOT}.",
                    hint="Choose an empty folder, or one that `mxr export --static` wrote.",
                )
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with disk.faults(self._folder):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _known_indexes(self, registry: str) -> dict[str, ModelIndex]:
        """The indexes that are there. Raises `UsageError` for those of another registry, `DamagedError`."""
        if not (self._folder / ROOT).exists():
            return {}
        root = self._read(StaticRegistry, self._folder / ROOT)
        if root.registry != registry:
            raise UsageError(
                f"{self._folder} is the static form of registry {root.registry}, and not of {registry}.",
                hint="Export each registry to a folder of its own.",
            )
        found = (self._read(ModelIndex, path) for path in sorted((self._folder / "index").glob("*.json")))
        return {index.model: index for index in found}

    def _read(self, kind: type[codec.T], path: Path) -> codec.T:
        with disk.faults(path, "read"):
            data = path.read_bytes()
        try:
            return codec.decode(kind, codec.parse(data, str(path)), lenient=True)
        except MxrError as problem:
            raise DamagedError(
                f"{path} is damaged: {problem.message}", hint="Remove it, and export with --all."
            ) from None

    def _write_parts(self, artifact: Artifact) -> StaticArtifact:
        """Write the bytes of an artifact and what was signed of it, and return its row."""
        artifact.refuse_quarantined()
        assert artifact.manifest is not None
        for file in artifact.manifest.files:
            places = self._cache.blob_positions(file) if self._cache.has_file(file.sha256) else {}
            for blob in file.blobs:
                self._write_blob(blob, places, file.name)
        signed = self._client.statements(artifact.id)
        sha = self._write_immutable("statements", codec.encode(signed)) if signed.items else None
        self._write(static_form.artifact_name(artifact.id), codec.encode(replace(artifact, description=None)))
        return StaticArtifact(replace(artifact, description=None, provenance={}), sha)

    def _write_blob(self, blob: Blob, places: Mapping[str, tuple[Path, int]], name: str) -> None:
        final = self._folder / static_form.blob_name(blob.sha256)
        with disk.faults(final):
            if final.is_file() and final.stat().st_size == blob.size:
                return
        step = progress.begin(f"exporting {name}", blob.size)
        with disk.atomic_file(final) as descriptor:
            target = transfer.DownloadTarget(descriptor, 0, final)
            transfer.obtain_blob(self._client, blob, target, places.get(blob.sha256), step)
        self._written, self._size = self._written + 1, self._size + blob.size

    def _write_immutable(self, folder: str, document: object) -> str:
        data = codec.canonical(document).encode()
        sha = sha256_hex(data)
        self._write_data(f"{folder}/{sha}.json", data)
        return sha

    def _write(self, name: str, document: object) -> None:
        self._write_data(name, codec.canonical(document).encode())

    def _write_data(self, name: str, data: bytes) -> None:
        path = self._folder / name
        with disk.faults(path):
            if path.is_file() and path.read_bytes() == data:
                return
        disk.write_whole(path, data)
        self._written, self._size = self._written + 1, self._size + len(data)

    def _recalled(self, row: StaticArtifact, recalls: Mapping[str, Recall]) -> StaticArtifact:
        return replace(row, artifact=replace(row.artifact, recall=recalls.get(row.artifact.id)))

    def _claim(self, model: str, before: ModelIndex | None) -> ModelClaim | None:
        try:
            known = self._client.model(model)
        except NotFoundError:
            return None if before is None else before.claim
        return ModelClaim(known.name, known.inputs)

    def _prune(self) -> int:
        """Remove the files that no index and `mxr.json` name, once they are old enough. Returns their number."""
        root = self._read(StaticRegistry, self._folder / ROOT)
        named = {f"recalls/{root.recall_list}.json"}
        for index in self._known_indexes(root.registry).values():
            for row in index.artifacts:
                assert row.artifact.manifest is not None
                named |= {static_form.artifact_name(row.artifact.id), f"statements/{row.statements}.json"}
                if _refused(row.artifact.recall):
                    continue
                named |= {static_form.blob_name(blob.sha256) for blob in row.artifact.manifest.blobs()}
        count, oldest = 0, time.time() - GRACE
        for folder in FOLDERS:
            for path in sorted((self._folder / folder).rglob("*")):
                with disk.faults(path):
                    unnamed = path.is_file() and str(path.relative_to(self._folder)) not in named
                    if unnamed and path.stat().st_mtime < oldest:
                        path.unlink()
                        count += 1
        return count


def _refused(recall: Recall | None) -> bool:
    return recall is not None and recall.refuses
