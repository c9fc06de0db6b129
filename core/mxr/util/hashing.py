"""Hashes of models and files: XXH3-128 over a model as the key wants it, sha256, and the memo that spares a re-read.

The model hash is XXH3-128 (seed 0, big-endian hex) over the bytes of the ONNX file, then for each external-data
location in byte order of its UTF-8 name: length of the name (u32 LE), the name, size of the file (u64 LE), the whole
file.

The memo, below the folder that it is given (a file may vanish at any time; it is then read again):

    <folder>/<16 hex of device and inode>.json
        {"v": 1, "file": [dev, ino, size, mtime_ns, ctime_ns], "digests": {kind: digest}, "check": hash of the rest}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import xxhash

from mxr.errors import Temporary, Usage

from .frozen import dataclass

BLOCK = 4 << 20  # bytes; one buffer of this size is all the memory that hashing takes
UNSETTLED_NS = 2_000_000_000  # a file changed so lately may change again without a new time stamp
MOST_DIGESTS = 16  # per file in the memo: each set of external data that a model was hashed with is one

External: TypeAlias = Sequence[tuple[str, Path]]
Identity: TypeAlias = tuple[int, int, int, int, int]
_File: TypeAlias = tuple[str, Path, os.stat_result]


class _Digest(Protocol):
    def update(self, data: memoryview, /) -> None: ...


@dataclass(frozen=True, slots=True)
class FileDigest:
    """One file of a model: the ONNX file under its own name, or external data under its location. `size` in bytes."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class ModelHash:
    """`xxh3` is "xxh3:" and 32 hex digits; `files` has the ONNX file first, then its external data as hashed."""

    xxh3: str
    files: tuple[FileDigest, ...]


def sha256_hex(data: bytes) -> str:
    """The sha256 of some bytes in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The sha256 of a file in lower-case hex. Raises Temporary when it changes meanwhile; OSError passes through."""
    return _sha256(path, path.stat())


def model_hash(onnx_path: Path, external: External) -> str:
    """The hash of a model as the key has it; for what it raises see `hash_model`."""
    return hash_model(onnx_path, external).xxh3


def hash_model(onnx_path: Path, external: External, *, with_sha256: bool = False) -> ModelHash:
    """Hash a model, and on demand each of its files with sha256 in the same pass (which is then what takes the time).

    Raises Usage when a file cannot be read, Temporary when one changes meanwhile.
    """
    return _hash_all(_in_order(onnx_path, external), with_sha256=with_sha256)


def _in_order(onnx_path: Path, external: External) -> list[_File]:
    """The files of a model as they are hashed, each with its stat from before."""
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
                encoded = name.encode()
                whole.update(len(encoded).to_bytes(4, "little") + encoded + status.st_size.to_bytes(8, "little"))
            own = [hashlib.sha256()] if with_sha256 else []
            _read_through(path, status, [whole, *own], buffer)
            done.append(FileDigest(name, status.st_size, own[0].hexdigest() if own else None))
        for _, path, status in files:  # the first may have changed while the last was read
            if identity(path.stat()) != identity(status):
                raise _changed(path)
    except OSError as error:
        raise _unreadable(error) from None
    return ModelHash("xxh3:" + whole.hexdigest(), tuple(done))


def _sha256(path: Path, status: os.stat_result) -> str:
    digest = hashlib.sha256()
    _read_through(path, status, [digest], memoryview(bytearray(BLOCK)))
    if identity(path.stat()) != identity(status):
        raise _changed(path)
    return digest.hexdigest()


def _read_through(path: Path, expected: os.stat_result, digests: Sequence[_Digest], buffer: memoryview) -> None:
    count = 0
    with path.open("rb", buffering=0) as file:
        if identity(os.fstat(file.fileno())) != identity(expected):
            raise _changed(path)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count <= expected.st_size and (size := file.readinto(buffer)):
            count += size
            for digest in digests:
                digest.update(buffer[:size])
        if count != expected.st_size or identity(os.fstat(file.fileno())) != identity(expected):
            raise _changed(path)


def _changed(path: Path) -> Temporary:
    return Temporary(f"{path} changed while it was being read.", hint="Wait until it is written, then try again.")


def _unreadable(error: OSError) -> Usage:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Usage(f"There is no file {error.filename}.", hint="Check the name of the model.")
    return Usage(f"{error.filename or 'The model'} cannot be read: {error.strerror}.", hint="Check who may read it.")


# --- the memo ---


def identity(status: os.stat_result) -> Identity:
    """What a file is known by, so long as nobody writes to it: device, inode, size, mtime and ctime (ns)."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    """Was the file last changed more than two seconds before `now_ns`? No for a time stamp in the future.

    Kernels stamp files with a clock that moves every few milliseconds (some file systems: every two seconds), so that
    two changes in quick succession can leave the same stamps. Source: "racy git" in git's Documentation/technical.
    """
    return now_ns - max(status.st_mtime_ns, status.st_ctime_ns) > UNSETTLED_NS


class StatMemo:
    """Digests of files that have not changed since, by their stat. Best effort: it never raises, it only forgets.

    A file that is not settled (see `is_settled`) is neither remembered nor recalled.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, path_stat: os.stat_result, kind: str) -> str | None:
        """The digest of this kind that was put for exactly this state of the file, or None."""
        if not is_settled(path_stat, time.time_ns()):
            return None
        return self._digests(path_stat).get(kind)

    def put(self, path_stat: os.stat_result, kind: str, digest: str, *, started_ns: int) -> None:
        """Remember a digest. `started_ns` is `time.time_ns()` from before the reading began, when `path_stat` was taken
        too; the caller has seen to it that the stat was the same after the reading."""
        if not is_settled(path_stat, started_ns):
            return
        digests = self._digests(path_stat)
        digests.pop(kind, None)
        kept = dict([*digests.items(), (kind, digest)][-MOST_DIGESTS:])
        body = {"v": 1, "file": list(identity(path_stat)), "digests": kept}
        place = self._place(path_stat)
        temporary = place.with_name(f"{place.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(body | {"check": _check(body)}), encoding="utf-8")
            temporary.replace(place)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _place(self, status: os.stat_result) -> Path:
        return self.folder / f"{xxhash.xxh3_64_hexdigest(f'{status.st_dev}:{status.st_ino}'.encode())}.json"

    def _digests(self, status: os.stat_result) -> dict[str, str]:
        try:
            body = json.loads(self._place(status).read_bytes())
            check = body.pop("check")
            if check == _check(body) and body["v"] == 1 and body["file"] == list(identity(status)):
                return dict(body["digests"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # a memo that cannot be read is no memo
        return {}


def _check(body: object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True).encode())


def sha256_memoised(path: Path, memo: StatMemo) -> str:
    """As `sha256_file`, without reading when the memo knows this state of the file."""
    started, status = time.time_ns(), path.stat()
    known = memo.get(status, "sha256")
    if known is None:
        known = _sha256(path, status)
        memo.put(status, "sha256", known, started_ns=started)
    return known


def model_hash_memoised(onnx_path: Path, external: External, memo: StatMemo) -> str:
    """As `model_hash`, without reading when the memo knows this state of all files under these locations."""
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
