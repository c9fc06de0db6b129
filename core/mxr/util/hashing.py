"""Hashes of models and files, the loop that reads and hashes, and a memo of digests by file status.

The model hash is XXH3-128 (seed 0, big-endian hex) over the bytes of the ONNX file, then for each external-data
location in byte order of its UTF-8 name: length of the name (u32 LE), the name, size of the file (u64 LE), the whole
file.

The memo keeps one file per hashed file. Each of them can be deleted at any time; the digest is then computed again:

    <folder>/<16 hex of device and inode>.json
        {"v": 1, "file": [dev, ino, size, mtime_ns, ctime_ns], "digests": {kind: digest}, "check": hash of the rest}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import xxhash

from mxr.errors import Temporary, Usage

from .frozen import dataclass

CHUNK = 1 << 20
"""Bytes that are read, written or sent at once."""

BLOCK = 4 << 20
"""Bytes read at once where a whole model is hashed. One buffer of this size is all the memory that hashing takes."""

UNSETTLED_NS = 2_000_000_000
"""Nanoseconds for which a changed file can change again without a new time stamp (see `is_settled`)."""

MOST_DIGESTS = 16
"""Digests per file in the memo. Each set of external data that a model is hashed with takes one."""

Data: TypeAlias = bytes | bytearray | memoryview
D = TypeVar("D", bound=Data)
Sink: TypeAlias = Callable[[Data, int], object]
External: TypeAlias = Sequence[tuple[str, Path]]
Identity: TypeAlias = tuple[int, int, int, int, int]
_File: TypeAlias = tuple[str, Path, os.stat_result]


class Hasher(Protocol):
    """A hash object, such as `hashlib.sha256()` or `xxhash.xxh3_128()`."""

    def update(self, data: Data, /) -> None:
        """Adds data to the hash."""


# --- the read-and-hash loop ---


def read_chunks(
    descriptor: int, offset: int = 0, size: int | None = None, *, buffer: memoryview | None = None
) -> Iterator[memoryview]:
    """Reads an open file from `offset` in chunks: `size` bytes, or fewer where the file ends earlier.

    All chunks share one buffer (`CHUNK` bytes by default): a chunk is valid until the next one is read. The position of
    the descriptor does not change. OSError passes through.
    """
    view = memoryview(bytearray(CHUNK)) if buffer is None else buffer
    end = None if size is None else offset + size
    while end is None or offset < end:
        count = os.preadv(descriptor, [view if end is None else view[: end - offset]], offset)
        if not count:
            return
        yield view[:count]
        offset += count


def hash_through(chunks: Iterable[D], *hashers: Hasher) -> Iterator[D]:
    """Yields the chunks unchanged, after adding each to all hashers."""
    for chunk in chunks:
        for hasher in hashers:
            hasher.update(chunk)
        yield chunk


def hash_chunks(chunks: Iterable[Data], *hashers: Hasher, sink: Sink | None = None) -> int:
    """Adds all chunks to all hashers and returns the number of bytes.

    `sink` is called with each chunk and its offset from the first chunk, after the chunk is hashed.
    """
    size = 0
    for chunk in hash_through(chunks, *hashers):
        if sink is not None:
            sink(chunk, size)
        size += len(chunk)
    return size


def sha256_chunks(chunks: Iterable[Data]) -> str:
    """Returns the sha256 of the chunks in lower-case hex."""
    digest = hashlib.sha256()
    hash_chunks(chunks, digest)
    return digest.hexdigest()


# --- models and files ---


@dataclass(frozen=True, slots=True)
class FileDigest:
    """One file of a model: the ONNX file under its own name, or external data under its location. `size` in bytes."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class ModelHash:
    """`xxh3` is "xxh3:" and 32 hex digits. `files` lists the ONNX file, then its external data in hash order."""

    xxh3: str
    files: tuple[FileDigest, ...]


def sha256_hex(data: bytes) -> str:
    """Returns the sha256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Returns the sha256 of a file in lower-case hex.

    Raises Temporary when the file changes during the reading. OSError passes through.
    """
    return _sha256(path, path.stat())


def model_hash(onnx_path: Path, external: External) -> str:
    """Returns the hash of a model as a key contains it. Raises as `hash_model` does."""
    return hash_model(onnx_path, external).xxh3


def hash_model(onnx_path: Path, external: External, *, with_sha256: bool = False) -> ModelHash:
    """Hashes a model and, with `with_sha256`, each of its files with sha256 in the same pass.

    The sha256 then determines the time that this takes. Raises Usage when a file cannot be read, Temporary when one
    changes during the reading.
    """
    return _hash_all(_in_order(onnx_path, external), with_sha256=with_sha256)


def _in_order(onnx_path: Path, external: External) -> list[_File]:
    """Returns the files of a model in hash order, each with its status before the reading."""
    by_name = sorted(dict(external).items(), key=lambda item: item[0].encode())
    try:
        return [(name, path, path.stat()) for name, path in [(onnx_path.name, onnx_path), *by_name]]
    except OSError as error:
        raise _unreadable(error) from None


def _hash_all(files: Sequence[_File], *, with_sha256: bool) -> ModelHash:
    whole, buffer, done = xxhash.xxh3_128(), memoryview(bytearray(BLOCK)), []
    try:
        for at, (name, path, status) in enumerate(files):
            if at:
                whole.update(external_header(name, status.st_size))
            own = [hashlib.sha256()] if with_sha256 else []
            _hash_file(path, status, [whole, *own], buffer)
            done.append(FileDigest(name, status.st_size, own[0].hexdigest() if own else None))
        # The first file can change while the last one is read.
        for _, path, status in files:
            if identity(path.stat()) != identity(status):
                raise _changed(path)
    except OSError as error:
        raise _unreadable(error) from None
    return ModelHash("xxh3:" + whole.hexdigest(), tuple(done))


def external_header(name: str, size: int) -> bytes:
    """Returns what the model hash covers in front of the bytes of an external-data file."""
    encoded = name.encode()
    return len(encoded).to_bytes(4, "little") + encoded + size.to_bytes(8, "little")


def _sha256(path: Path, status: os.stat_result) -> str:
    digest = hashlib.sha256()
    _hash_file(path, status, [digest], memoryview(bytearray(BLOCK)))
    if identity(path.stat()) != identity(status):
        raise _changed(path)
    return digest.hexdigest()


def _hash_file(path: Path, expected: os.stat_result, hashers: Sequence[Hasher], buffer: memoryview) -> None:
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if identity(os.fstat(descriptor)) != identity(expected):
            raise _changed(path)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        # One byte more than expected shows that the file grew, without reading a file that keeps growing to its end.
        size = hash_chunks(read_chunks(descriptor, 0, expected.st_size + 1, buffer=buffer), *hashers)
        if size != expected.st_size or identity(os.fstat(descriptor)) != identity(expected):
            raise _changed(path)


def _changed(path: Path) -> Temporary:
    return Temporary(f"{path} changed while it was being read.", hint="Wait until the file is written, then try again.")


def _unreadable(error: OSError) -> Usage:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Usage(f"There is no file {error.filename}.", hint="Check the path of the model.")
    return Usage(f"Cannot read {error.filename or 'the model'}: {error.strerror}.", hint="Check the file permissions.")


# --- the memo ---


def identity(status: os.stat_result) -> Identity:
    """Returns what identifies a file in its current state: device, inode, size, mtime and ctime (ns)."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    """Returns whether the last change of the file is more than two seconds before `now_ns`; false for future times.

    Kernels stamp files with a clock that advances every few milliseconds (some file systems: every two seconds), so
    two changes in quick succession can leave the same stamps. Source: "racy git" in git's Documentation/technical.
    """
    return now_ns - max(status.st_mtime_ns, status.st_ctime_ns) > UNSETTLED_NS


class StatMemo:
    """Digests of unchanged files, found by the file status. Best effort: no method raises; a lost digest is recomputed.

    The digest of a file that is not settled (see `is_settled`) is neither stored nor returned.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, path_stat: os.stat_result, kind: str) -> str | None:
        """Returns the digest of this kind stored for exactly this state of the file, or None."""
        if not is_settled(path_stat, time.time_ns()):
            return None
        return self._digests(path_stat).get(kind)

    def put(self, path_stat: os.stat_result, kind: str, digest: str, *, started_ns: int) -> None:
        """Stores a digest.

        `started_ns` is `time.time_ns()` before the reading began, when `path_stat` was taken. The caller has checked
        that the status was the same after the reading.
        """
        if not is_settled(path_stat, started_ns):
            return
        digests = self._digests(path_stat)
        digests.pop(kind, None)
        kept = dict([*digests.items(), (kind, digest)][-MOST_DIGESTS:])
        body = {"v": 1, "file": list(identity(path_stat)), "digests": kept}
        final = self._path(path_stat)
        temporary = final.with_name(f"{final.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(body | {"check": _check(body)}), encoding="utf-8")
            temporary.replace(final)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _path(self, status: os.stat_result) -> Path:
        return self.folder / f"{xxhash.xxh3_64_hexdigest(f'{status.st_dev}:{status.st_ino}'.encode())}.json"

    def _digests(self, status: os.stat_result) -> dict[str, str]:
        try:
            body = json.loads(self._path(status).read_bytes())
            check = body.pop("check")
            if check == _check(body) and body["v"] == 1 and body["file"] == list(identity(status)):
                return dict(body["digests"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # an unreadable memo counts as empty
        return {}


def _check(body: object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True).encode())


def sha256_memoised(path: Path, memo: StatMemo) -> str:
    """Works as `sha256_file`, without reading the file where the memo has its digest."""
    started, status = time.time_ns(), path.stat()
    known = memo.get(status, "sha256")
    if known is None:
        known = _sha256(path, status)
        memo.put(status, "sha256", known, started_ns=started)
    return known


def model_hash_memoised(onnx_path: Path, external: External, memo: StatMemo) -> str:
    """Works as `model_hash`, without reading the files where the memo has the hash for exactly these files."""
    started = time.time_ns()
    files = _in_order(onnx_path, external)
    parts = [[name, *identity(status)] for name, _, status in files[1:]]
    kind = "model:" + xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())
    settled = all(is_settled(status, started) for _, _, status in files)
    onnx_stat = files[0][2]
    known = memo.get(onnx_stat, kind) if settled else None
    if known is None:
        known = _hash_all(files, with_sha256=False).xxh3
        if settled:
            memo.put(onnx_stat, kind, known, started_ns=started)
    return known
