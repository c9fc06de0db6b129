"""What an interrupted download leaves in the cache: who takes it, what of it counts, and when it goes."""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each

from mxr.artifact.manifest import Blob, File
from mxr.cache.store import MAX_PARTS, PART_SECONDS, Cache
from mxr.client import transfer
from mxr.client.retry import DAMAGED
from mxr.display import progress
from mxr.errors import DamagedError, DiskFullError, UnreachableError
from mxr.util import disk

CUTS = (100_000, 3_000_000, 1, 250_000)
DATA = random.Random(5).randbytes(sum(CUTS) - 100_000) + bytes(100_000)
"""Its last blob ends with zeros, as weights do."""


def described(data: bytes) -> File:
    blobs, at = [], 0
    for size in CUTS:
        blobs.append(Blob(sha256(data[at : at + size]).hexdigest(), size))
        at += size
    return File("model.mxr", len(data), sha256(data).hexdigest(), tuple(blobs))


FILE = described(DATA)


class CountingRegistry:
    """Sends the blobs of DATA from where it is asked to, and breaks off after `most` bytes in all."""

    transfers = None

    def __init__(self, most: int = 1 << 40, wrong: bool = False) -> None:
        self.sent, self._most, self._wrong = 0, most, wrong

    @contextmanager
    def blob(self, sha: str, size: int, *, direct: bool, start: int = 0) -> Iterator[Iterator[bytes]]:
        at = next(offset for offset, blob in FILE.spans() if blob.sha256 == sha)
        yield self._chunks(DATA[at + start : at + size])

    def _chunks(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), 50_000):
            chunk = data[at : at + 50_000]
            if self.sent + len(chunk) > self._most:
                raise UnreachableError("cut")
            self.sent += len(chunk)
            yield bytes(len(chunk)) if self._wrong else chunk


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(transfer, "DAMAGED", None)
    return Cache(tmp_path / "cache")


def download(cache: Cache, registry: Any, step: progress.Step = progress.ignore) -> Path:
    final = cache.prepare_file(FILE.sha256)
    with progress.shown_by(lambda *_: step):
        transfer.download(registry, FILE, final, target=cache.partial_file(FILE.sha256, final))
    return final


def part(cache: Cache) -> Path:
    return cache.prepare_file(FILE.sha256).with_name(disk.PARTIAL + FILE.sha256)


def test_only_what_is_missing_moves(cache: Cache) -> None:
    for most in (1_500_000, 900_000):
        with pytest.raises(UnreachableError):
            download(cache, CountingRegistry(most))
    assert part(cache).exists()
    shown: list[int] = []
    last = CountingRegistry()
    final = download(cache, last, shown.append)
    assert final.read_bytes() == DATA and not part(cache).exists()
    assert last.sent <= len(DATA) - 2_300_000 and sum(shown) == len(DATA)
    assert final.stat().st_mode & 0o777 == 0o444


@for_each(
    [
        ("longer", DATA + b"more", 0),
        ("whole", DATA, 0),
        ("another version", random.Random(6).randbytes(len(DATA)), len(DATA)),
        ("damaged in its second blob", DATA[:200_000] + b"!" + DATA[200_001:], CUTS[1]),
        ("shorter", DATA[:150_000], len(DATA) - 250_000),
        ("empty", b"", len(DATA) - 100_000),
    ]
)
def test_what_is_in_a_part_is_hashed(what: str, left: bytes, sent: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "DAMAGED", replace(DAMAGED, attempts=2, base=0.0))
        cache = Cache(Path(folder) / "cache")
        part(cache).write_bytes(left)
        part(cache).chmod(0o600)
        registry = CountingRegistry()
        assert download(cache, registry).read_bytes() == DATA, what
        assert sent <= registry.sent <= sent + 100_001, (what, registry.sent)


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "locked", "another user"])
def test_a_part_that_is_not_this_process_s_is_left_alone(cache: Cache, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    path = part(cache)
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "hard link":
        os.link(elsewhere, path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"mine")
    if kind == "another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 12345, 12345)
    with elsewhere.open("rb") if path.is_dir() else path.open("rb") as held:
        if kind == "locked":
            fcntl.flock(held, fcntl.LOCK_EX)
        assert download(cache, CountingRegistry()).read_bytes() == DATA
    assert path.is_dir() or path.read_bytes() == b"mine"
    assert elsewhere.read_bytes() == b"mine"


def test_a_file_without_bytes_takes_nothing_of_a_part(cache: Cache) -> None:
    empty = File("model.mxr", 0, sha256(b"").hexdigest(), ())
    final = cache.prepare_file(empty.sha256)
    final.with_name(disk.PARTIAL + empty.sha256).write_bytes(b"junk")
    registry: Any = CountingRegistry()
    transfer.download(registry, empty, final, target=cache.partial_file(empty.sha256, final))
    assert final.read_bytes() == b""


def test_a_part_is_kept_only_where_it_is_of_use(cache: Cache) -> None:
    with pytest.raises(UnreachableError):
        download(cache, CountingRegistry(0))
    assert not part(cache).exists(), "nothing came"
    with pytest.raises(DamagedError):
        download(cache, CountingRegistry(wrong=True))
    assert not part(cache).exists()
    final = cache.prepare_file(FILE.sha256)
    with pytest.raises(DiskFullError), cache.partial_file(FILE.sha256, final) as descriptor:
        os.write(descriptor, DATA)
        raise DiskFullError
    assert not part(cache).exists()


def test_parts_are_bounded(cache: Cache) -> None:
    now = time.time()
    for number in range(MAX_PARTS + 4):
        path = cache.prepare_file(f"{number:064x}").with_name(f"{disk.PARTIAL}{number:064x}")
        path.write_bytes(b"x")
        os.utime(path, (now, now - number - (PART_SECONDS if number % 2 else 0)))
    in_use = cache.prepare_file(f"{1:064x}").with_name(f"{disk.PARTIAL}{1:064x}")
    with in_use.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cache.sweep_parts()
    left = {int(path.name[-64:], 16) for path in cache.root.glob(f"files/*/{disk.PARTIAL}*")}
    assert left == {0, 2, 4, 6, 8, 10, 1}
    for number in range(20, 20 + MAX_PARTS):
        cache.prepare_file(f"{number:064x}").with_name(f"{disk.PARTIAL}{number:064x}").write_bytes(b"x")
    cache.sweep_parts()
    assert len(list(cache.root.glob(f"files/*/{disk.PARTIAL}*"))) == MAX_PARTS
