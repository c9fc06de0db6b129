"""Hashes the files of a model in parallel, and remembers the identity of unchanged files.

hashlib releases the GIL, so threads hash different pieces at the same time. Each thread has one small buffer: memory
does not grow with the model.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from mxr.errors import TemporaryError, UsageError
from mxr.util.frozen import dataclass
from mxr.util.hashing import FileStamp, StatMemo, file_changed, has_writer, hash_chunks, is_settled, read_chunks

from .model_files import PIECE, ModelFiles, PiecedFile

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
                self._pieces[at][index] = _hash_piece(self._files[at], index, buffer)
        except (OSError, TemporaryError, MemoryError) as error:
            with self._guard:
                self._failure = self._failure or error
                self._stopped = True

    def _next(self) -> tuple[int, int] | None:
        with self._guard:
            return None if self._stopped else next(self._parts, None)


def _hash_piece(file: _File, index: int, buffer: memoryview) -> str:
    offset = index * PIECE
    length = min(PIECE, file.stamp.size - offset)
    digest = hashlib.sha256()
    with file.path.open("rb", buffering=0) as opened:
        descriptor = opened.fileno()
        if FileStamp.of(descriptor) != file.stamp:
            raise file_changed(file.path)
        size = hash_chunks(read_chunks(descriptor, offset, length, buffer=buffer), digest)
        if size != length or FileStamp.of(descriptor) != file.stamp:
            raise file_changed(file.path)
    return digest.hexdigest()


def _unreadable(error: OSError) -> UsageError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return UsageError(f"There is no file {error.filename}.", hint="Check the path of the model.")
    return UsageError(
        f"Cannot read {error.filename or 'the model'}: {error.strerror}.", hint="Check the file permissions."
    )
