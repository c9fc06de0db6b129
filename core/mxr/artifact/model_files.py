"""The files of a model as pieces of 64 MiB, and the identity that follows from them.

    model = "sha256:" + hex of sha256("mxr-model-v2\n" + canonical JSON of the files)
    files = {"external": [[name, size, [sha256 of each piece, ...]], ...], "onnx": [size, [sha256 of each piece, ...]]}

A piece has exactly 64 MiB, the last one of a file has the rest; an empty file has none. `external` is sorted by the
UTF-8 bytes of its names. A name is an external-data location, exactly as the ONNX file spells it, listed once. The name
of the ONNX file itself is not part of the identity.

Pieces are hashed in parallel: hashlib releases the GIL. Each thread has one small buffer, so memory does not grow with
the model. The identity of unchanged files is remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from mxr.display import progress
from mxr.errors import TemporaryError, UsageError
from mxr.util.codec import HUGE, canonical, refuse, text
from mxr.util.frozen import dataclass
from mxr.util.hashing import FileStamp, StatMemo, file_changed, has_writer, hash_chunks, is_settled, read_chunks

from .key import MODEL_PREFIX
from .limits import MAX_BLOBS, MAX_FILES
from .manifest import Blob, File, Manifest, check_sha256

PIECE = 64 << 20
"""Bytes of a piece. Model files are hashed, uploaded and stored in these pieces."""

DOMAIN = b"mxr-model-v2\n"


@dataclass(frozen=True, slots=True)
class PiecedFile:
    """A file of a model: its size in bytes, and the sha256 of each piece in order."""

    size: int
    pieces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.size <= HUGE:
            raise refuse("size", "a size in bytes", self.size)
        if len(self.pieces) != -(-self.size // PIECE):
            raise refuse("blobs", f"{-(-self.size // PIECE)} pieces of {PIECE >> 20} MiB", len(self.pieces))
        for piece in self.pieces:
            check_sha256(piece, "blobs")

    def blobs(self) -> tuple[Blob, ...]:
        """Return the pieces as blobs, in order; a piece that occurs twice is returned twice."""
        return tuple(Blob(sha, min(PIECE, self.size - at * PIECE)) for at, sha in enumerate(self.pieces))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """All files of a model: the ONNX file, and the external files by their locations, in any order.

    Raises `UsageError` for a location that occurs twice or is empty, and for too many files or pieces.
    """

    onnx: PiecedFile
    external: tuple[tuple[str, PiecedFile], ...] = ()

    def __post_init__(self) -> None:
        if len(self.external) >= MAX_FILES:
            raise refuse("external", f"at most {MAX_FILES - 1} external files", len(self.external))
        ordered = sorted(self.external, key=lambda row: text(row[0], "external").encode())
        for (left, _), (right, _) in pairwise(ordered):
            if left == right:
                raise refuse("external", "unique locations", left)
        if any(not name for name, _ in ordered):
            raise refuse("external", "a location", "")
        if sum(len(file.pieces) for file in self._files()) > MAX_BLOBS:
            raise refuse("blobs", f"at most {MAX_BLOBS} pieces", "more")
        object.__setattr__(self, "external", tuple(ordered))

    def _files(self) -> Iterator[PiecedFile]:
        yield self.onnx
        for _, file in self.external:
            yield file

    @classmethod
    def of(cls, manifest: Manifest, onnx: str) -> ModelFiles:
        """Return the files in a manifest, whose ONNX file has the name `onnx`.

        Raises `UsageError` for other pieces.
        """
        files = {file.name: _cut(file) for file in manifest.files}
        return cls(files.pop(onnx), tuple(files.items()))

    def to_json(self) -> dict[str, Any]:
        """Return `{"external":[[name,size,[sha256,...]],...],"onnx":[size,[sha256,...]]}`."""
        return {
            "external": [[name, file.size, list(file.pieces)] for name, file in self.external],
            "onnx": [self.onnx.size, list(self.onnx.pieces)],
        }

    @property
    def model(self) -> str:
        """The identity of the model: "sha256:" and 64 hex digits."""
        return MODEL_PREFIX + sha256(DOMAIN + canonical(self.to_json()).encode()).hexdigest()


def _cut(file: File) -> PiecedFile:
    found = PiecedFile(file.size, tuple(blob.sha256 for blob in file.blobs))
    if found.blobs() != file.blobs:
        raise refuse("blobs", f"pieces of {PIECE >> 20} MiB", [blob.size for blob in file.blobs])
    return found


BUFFER = 512 << 10
"""Bytes that a thread reads at once: larger buffers hash no faster and take memory in each thread."""

MAX_THREADS = 32

External: TypeAlias = Sequence[tuple[str, Path]]


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the model with its stamp before the reading. `name` is empty for the ONNX file."""

    name: str
    path: Path
    stamp: FileStamp


def model_identity(onnx_path: Path, external: External, memo: StatMemo | None = None) -> str:
    """Return the identity of a model, without reading its files where the memo has it for exactly these files.

    `external` has each location once. Raises `UsageError` when a file cannot be read, `TemporaryError` when one changes
    during the reading.
    """
    started, files = time.time_ns(), _opened(onnx_path, external)
    parts = [[file.name, *file.stamp] for file in files[1:]]
    kind = "model:" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    settled = memo is not None and all(file.stamp.trusted and is_settled(file.stamp, started) for file in files)
    known = memo.get(files[0].stamp, kind) if memo is not None and settled else None
    if known is None:
        unwritten = settled and not any(has_writer(file.path, file.stamp) for file in files)
        known = _hash_all(files).model
        if memo is not None and unwritten:
            memo.put(files[0].stamp, {kind: known}, started_ns=started)
    return known


def threads() -> int:
    """Return the number of threads that hash at the same time: one for each CPU that this process may use."""
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)


def _opened(onnx_path: Path, external: External) -> list[_File]:
    """Return the ONNX file, then the external files in the order of the identity."""
    by_name = sorted(dict(external).items(), key=lambda item: item[0].encode())
    try:
        return [_File(name, path, FileStamp.of(path)) for name, path in [("", onnx_path), *by_name]]
    except OSError as error:
        raise _unreadable(error) from None


def _hash_all(files: Sequence[_File]) -> ModelFiles:
    pieces = [["" for _ in range(0, file.stamp.size, PIECE)] for file in files]
    parts = iter([(at, index) for at, row in enumerate(pieces) for index in range(len(row))])
    pool = _HashPool(files, pieces, parts)
    try:
        pool.run(min(threads(), sum(map(len, pieces))))
        # The first file can change while the last one is read; an empty file was not read at all.
        for file in files:
            if FileStamp.of(file.path) != file.stamp:
                raise file_changed(file.path)
            if not file.stamp.size:
                file.path.open("rb").close()
    except OSError as error:
        raise _unreadable(error) from None
    onnx, *external = (PiecedFile(file.stamp.size, tuple(row)) for file, row in zip(files, pieces, strict=True))
    return ModelFiles(onnx, tuple((file.name, each) for file, each in zip(files[1:], external, strict=True)))


class _HashPool:
    """Threads, the calling one among them, that hash one piece after the other until none is left."""

    def __init__(self, files: Sequence[_File], pieces: list[list[str]], parts: Iterator[tuple[int, int]]) -> None:
        self._files, self._pieces, self._parts = files, pieces, parts
        self._step = progress.begin(f"hashing {files[0].path.name}", sum(file.stamp.size for file in files))
        self._guard = threading.Lock()
        self._stopped = False
        self._failure: BaseException | None = None

    def run(self, count: int) -> None:
        """Hash all pieces in `count` threads. Raises what the first failing piece raised."""
        others = [threading.Thread(target=self._work, daemon=True) for _ in range(count - 1)]
        for thread in others:
            thread.start()
        try:
            self._work()
            for thread in others:
                thread.join()
        finally:
            self._stopped = True
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        buffer = memoryview(bytearray(BUFFER))
        try:
            while (part := self._next()) is not None:
                at, index = part
                self._pieces[at][index] = _hash_piece(self._files[at], index, buffer, self._step)
        except (OSError, TemporaryError, MemoryError) as error:
            with self._guard:
                self._failure = self._failure or error
                self._stopped = True

    def _next(self) -> tuple[int, int] | None:
        with self._guard:
            return None if self._stopped else next(self._parts, None)


def _hash_piece(file: _File, index: int, buffer: memoryview, step: progress.Step) -> str:
    offset = index * PIECE
    length = min(PIECE, file.stamp.size - offset)
    digest = hashlib.sha256()
    with file.path.open("rb", buffering=0) as opened:
        descriptor = opened.fileno()
        if FileStamp.of(descriptor) != file.stamp:
            raise file_changed(file.path)
        size = hash_chunks(
            read_chunks(descriptor, offset, length, buffer=buffer), digest, sink=lambda data, _: step(len(data))
        )
        if size != length or FileStamp.of(descriptor) != file.stamp:
            raise file_changed(file.path)
    return digest.hexdigest()


def _unreadable(error: OSError) -> UsageError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return UsageError(f"There is no file {error.filename}.", hint="Check the path of the model.")
    return UsageError(
        f"Cannot read {error.filename or 'the model'}: {error.strerror}.", hint="Check the file permissions."
    )
