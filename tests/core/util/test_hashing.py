"""Model hashes against the words of the contract, files that change meanwhile, and a memo that never misleads."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import random
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import xxhash
from harness.meddling import Meddler, grow
from identities import model_of

from mxr.artifact import model_files
from mxr.artifact.model_files import model_identity
from mxr.errors import TemporaryError
from mxr.util import hashing
from mxr.util.hashing import (
    BLOCK,
    MAX_DIGESTS,
    FileStamp,
    StatMemo,
    has_writer,
    hash_chunks,
    hash_through,
    is_intact,
    read_chunks,
    remember_written,
    sha256_chunks,
    sha256_file,
    sha256_hex,
    sha256_memoised,
)

SECOND = 1_000_000_000


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """The stamps of memory, where the folders of tests can be, are not trusted."""
    return on_disk


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_known_answers(tmp_path: Path) -> None:
    """Source: FIPS 180-2, appendix B.1."""
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(written(tmp_path / "b", b"abc")) == sha256_hex(b"abc")
    with pytest.raises(FileNotFoundError):
        sha256_file(tmp_path / "absent")


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_files_of_about_a_block(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert sha256_file(written(tmp_path / "m", content)) == hashlib.sha256(content).hexdigest()


# --- files that change meanwhile ---


def replace(path: Path) -> None:
    written(path.with_name("other"), b"other").replace(path)


MEDDLINGS: list[Callable[[Path], object]] = [
    grow,
    replace,
    lambda path: os.truncate(path, 3),
    lambda path: path.write_bytes(b"NEW!!"),
    lambda path: os.utime(path, ns=(2, 2)),
]


@pytest.mark.parametrize("meddle", MEDDLINGS)
def test_a_file_that_changes_while_it_is_digested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path], object]
) -> None:
    path = written(tmp_path / "file", b"bytes")
    os.utime(path, ns=(1, 1))
    monkeypatch.setattr(hashlib, "sha256", lambda: Meddler(lambda: meddle(path)))
    with pytest.raises(TemporaryError, match="changed while it was being read"):
        sha256_file(path)


# --- the memo ---


def test_stamps_in_memory_are_not_trusted(memo: StatMemo, clock: Clock) -> None:
    """A write through a mapping leaves no stamp on tmpfs, also when nobody has the file open any more."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = written(Path(folder, "m"), b"onnx")
        assert not FileStamp.of(path).trusted
        assert sha256_memoised(path, memo) == sha256_hex(b"onnx") and not memo.folder.exists()
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
            mapping[:] = b"ONNX"
        assert model_identity(path, (), memo) == model_identity(path, ())
        assert sha256_memoised(path, memo) == sha256_hex(b"ONNX")


class Clock:
    """The clock of the memo, set by hand; `monotonic_ns` is only there to name temporary files."""

    def __init__(self) -> None:
        self.now = time.time_ns() + 60 * SECOND
        self.monotonic_ns = time.monotonic_ns

    def time_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands a minute in the future, where files of this test are settled."""
    made = Clock()
    monkeypatch.setattr(hashing, "time", made)
    monkeypatch.setattr(model_files, "time", made)
    return made


@pytest.fixture
def memo(tmp_path: Path) -> StatMemo:
    """A memo whose folder does not exist yet."""
    return StatMemo(tmp_path / "cache" / "memo")


def forbid_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError("the file was read")

    monkeypatch.setattr(os, "preadv", forbidden)


def last_change(path: Path) -> int:
    return max(path.stat().st_mtime_ns, path.stat().st_ctime_ns)


def rewrite(path: Path, content: bytes) -> None:
    """Other bytes of the same length with the old mtime, as a careful restore leaves them; only ctime tells."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system moves every few milliseconds
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_the_second_time_reads_nothing(
    tmp_path: Path, clock: Clock, memo: StatMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = written(tmp_path / "m", b"onnx"), written(tmp_path / "d", b"data")
    first = [
        model_identity(model, (), memo),
        model_identity(model, [("d", data)], memo),
        sha256_memoised(model, memo),
    ]
    assert first == [model_identity(model, ()), model_identity(model, [("d", data)]), sha256_file(model)]
    forbid_hashing(monkeypatch)
    again = StatMemo(memo.folder)
    assert model_identity(model, (), again) == first[0]
    assert model_identity(model, [("d", data)], again) == first[1]
    assert sha256_memoised(model, again) == first[2]


@pytest.mark.parametrize("age", [-60 * SECOND, -1, 0, SECOND, 2 * SECOND])
def test_a_file_that_changed_within_two_seconds_is_not_remembered(
    tmp_path: Path, clock: Clock, memo: StatMemo, age: int
) -> None:
    model, data = written(tmp_path / "m", b"onnx"), written(tmp_path / "d", b"data")
    clock.now = max(map(last_change, (model, data))) + age
    model_identity(model, [("d", data)], memo)
    sha256_memoised(data, memo)
    assert not memo.folder.exists()
    clock.now += 2 * SECOND + 1 - age
    sha256_memoised(data, memo)
    assert len(list(memo.folder.iterdir())) == 1


@pytest.mark.parametrize("age", [-60 * SECOND, -1, 0, SECOND, 2 * SECOND])
def test_what_is_remembered_is_not_used_when_the_clock_is_set_back(
    tmp_path: Path, clock: Clock, memo: StatMemo, age: int
) -> None:
    path = written(tmp_path / "m", b"onnx")
    digest = sha256_memoised(path, memo)
    assert memo.get(FileStamp.of(path), "sha256") == digest
    clock.now = last_change(path) + age
    assert memo.get(FileStamp.of(path), "sha256") is None


def demand_leases(folder: Path) -> None:
    """Skip the test where the file system gives no leases, as overlayfs."""
    descriptor = os.open(written(folder / "leased", b""), os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as problem:
        pytest.skip(f"the file system of {folder} gives no leases: {problem}")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_to_write(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Writes through a descriptor that was open before."""
    with path.open("r+b", buffering=0) as file:
        yield lambda data: os.pwrite(file.fileno(), data, 0)


@contextlib.contextmanager
def mapped(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Writes through a mapping whose page was written before: neither mtime nor ctime changes."""
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    mapping[:] = mapping[:]
    with mapping:
        yield lambda data: mapping.__setitem__(slice(None), data)


@pytest.mark.parametrize("way", [opened_to_write, mapped])
def test_a_file_that_somebody_can_still_write_is_not_remembered(
    tmp_path: Path, clock: Clock, memo: StatMemo, way: Callable[[Path], Any]
) -> None:
    demand_leases(tmp_path)
    model, data = written(tmp_path / "m", b"onnx"), written(tmp_path / "d", b"data")
    for path in (model, data):
        with way(path) as write:
            model_identity(model, [("d", data)], memo)
            before = sha256_memoised(path, memo)
            write(b"ONNX")
            assert sha256_memoised(path, memo) == sha256_file(path) == sha256_hex(b"ONNX") != before
        # The writer is gone: what it wrote counts, and is remembered from here on.
        assert model_identity(model, [("d", data)], memo) == model_identity(model, [("d", data)])
        assert sha256_memoised(path, memo) == memo.get(FileStamp.of(path), "sha256") == sha256_hex(b"ONNX")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EINVAL, errno.ENOLCK])
def test_where_there_are_no_leases_the_time_stamps_decide(
    tmp_path: Path, clock: Clock, memo: StatMemo, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fcntl.fcntl", refuse)
    path = written(tmp_path / "m", b"onnx")
    assert sha256_memoised(path, memo) == memo.get(FileStamp.of(path), "sha256")


def test_a_writer_that_comes_while_it_is_asked_neither_waits_nor_ends_the_process(tmp_path: Path) -> None:
    path = written(tmp_path / "m", b"onnx")
    script = "import sys\nfor _ in range(3000): open(sys.argv[1], 'r+b').close()"
    with subprocess.Popen([sys.executable, "-c", script, str(path)]) as writer:
        while writer.poll() is None:
            has_writer(path, FileStamp.of(path))
    assert writer.returncode == 0 and not has_writer(path, FileStamp.of(path))


def test_a_replaced_file_counts_as_written(tmp_path: Path) -> None:
    path, other = written(tmp_path / "m", b"onnx"), written(tmp_path / "n", b"onnx")
    assert has_writer(path, other.stat()) and has_writer(tmp_path / "none", other.stat())


@pytest.mark.parametrize("offset", [60, 24 * 3600])
def test_a_time_stamp_in_the_future_is_never_trusted(tmp_path: Path, clock: Clock, memo: StatMemo, offset: int) -> None:
    path = written(tmp_path / "m", b"onnx")
    stamp = clock.now + offset * SECOND
    os.utime(path, ns=(stamp, stamp))
    assert sha256_memoised(path, memo) == sha256_hex(b"onnx")
    assert not memo.folder.exists()


def test_one_unsettled_data_file_is_enough_to_read_all_again(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    model, data = written(tmp_path / "m", b"onnx"), written(tmp_path / "d", b"data")
    os.utime(data, ns=(clock.now, clock.now))
    model_identity(model, [("d", data)], memo)
    assert not memo.folder.exists()


def test_the_age_counts_from_before_the_reading(
    tmp_path: Path, clock: Clock, memo: StatMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "m", b"onnx")
    clock.now = last_change(path) + SECOND

    def slow_digest() -> Any:
        clock.now += 60 * SECOND
        return real()

    real = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", slow_digest)
    sha256_memoised(path, memo)
    assert not memo.folder.exists()


def test_changed_files_are_read_again(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    model, data = written(tmp_path / "m", b"onnx"), written(tmp_path / "d", b"data")
    before = model_identity(model, [("d", data)], memo), sha256_memoised(data, memo)
    rewrite(data, b"DATA")
    after = model_identity(model, [("d", data)], memo), sha256_memoised(data, memo)
    assert before == (model_of(b"onnx", {"d": b"data"}), sha256_hex(b"data"))
    assert after == (model_of(b"onnx", {"d": b"DATA"}), sha256_hex(b"DATA"))
    rewrite(model, b"ONNX")
    assert model_identity(model, [("d", data)], memo) == model_of(b"ONNX", {"d": b"DATA"})


def test_a_replaced_file_is_read_again(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    path = written(tmp_path / "m", b"onnx")
    sha256_memoised(path, memo)
    written(tmp_path / "n", b"ONNX").replace(path)
    assert sha256_memoised(path, memo) == sha256_hex(b"ONNX")


def test_the_same_files_under_other_locations_are_another_model(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    model, a, b = (written(tmp_path / name, name.encode()) for name in "mab")
    asked = [(), [("a", a)], [("b", a)], [("a", b)], [("a", a), ("b", b)], [("a", b), ("b", a)]]
    first = [model_identity(model, external, memo) for external in asked]
    assert first == [model_identity(model, external) for external in asked]
    assert [model_identity(model, external, memo) for external in asked] == first
    assert len(set(first)) == len(first)


def test_damage_to_the_memo_is_forgotten_and_never_believed(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    path = written(tmp_path / "m", b"onnx")
    digest = sha256_memoised(path, memo)
    (record,) = memo.folder.iterdir()
    good = record.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            record.write_bytes(bad)
            assert memo.get(FileStamp.of(path), "sha256") is None
    others = ["[]", "null", "5", '"check"', "{}", '{"check": 1}', "[" * 100_000, '{"check":"x","v":1,"digests":7}']
    for text in others:
        record.write_text(text)
        assert sha256_memoised(path, memo) == digest
        assert memo.get(FileStamp.of(path), "sha256") == digest


@pytest.mark.parametrize("change", [{"v": 3}, {"v": 5}, {"boot": "another boot"}, {"boot": ""}])
def test_a_memo_of_another_version_or_boot_is_not_read(
    tmp_path: Path, clock: Clock, memo: StatMemo, change: dict[str, Any]
) -> None:
    path = written(tmp_path / "m", b"onnx")
    sha256_memoised(path, memo)
    (record,) = memo.folder.iterdir()
    body = json.loads(record.read_bytes()) | change
    del body["check"]
    record.write_text(json.dumps(body | {"check": hashing._check(body)}))
    assert memo.get(FileStamp.of(path), "sha256") is None


def forged(memo: StatMemo, path: Path) -> Path:
    """A valid record that says that the file has other bytes."""
    memo.put(FileStamp.of(path), {"sha256": "f" * 64}, started_ns=hashing.time.time_ns())  # type: ignore[attr-defined]
    (record,) = memo.folder.iterdir()
    assert memo.get(FileStamp.of(path), "sha256") == "f" * 64
    return record


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_memo_that_others_can_write_is_neither_read_nor_written(
    tmp_path: Path, clock: Clock, memo: StatMemo, mode: int
) -> None:
    path = written(tmp_path / "m", b"onnx")
    record = forged(memo, path)
    assert stat.S_IMODE(memo.folder.stat().st_mode) == 0o700 and stat.S_IMODE(record.stat().st_mode) == 0o600
    memo.folder.chmod(mode)
    before = record.read_bytes()
    assert sha256_memoised(path, memo) == sha256_hex(b"onnx")
    assert record.read_bytes() == before and list(memo.folder.iterdir()) == [record]
    memo.folder.chmod(0o700)
    record.chmod(0o666)
    assert memo.get(FileStamp.of(path), "sha256") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_memo_of_another_user_is_not_read(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    path = written(tmp_path / "m", b"onnx")
    record = forged(memo, path)
    os.chown(record, 12345, 12345)
    assert memo.get(FileStamp.of(path), "sha256") is None
    os.chown(record, 0, 0)
    os.chown(memo.folder, 12345, 12345)
    assert memo.get(FileStamp.of(path), "sha256") is None
    assert sha256_memoised(path, memo) == sha256_hex(b"onnx")


def test_links_in_place_of_the_memo_are_not_followed(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    path, victim = written(tmp_path / "m", b"onnx"), written(tmp_path / "victim", b"keep")
    record = forged(memo, path)
    record.rename(tmp_path / "elsewhere.json")
    record.symlink_to(tmp_path / "elsewhere.json")
    assert memo.get(FileStamp.of(path), "sha256") is None
    record.unlink()
    record.symlink_to(victim)
    assert sha256_memoised(path, memo) == memo.get(FileStamp.of(path), "sha256") == sha256_hex(b"onnx")
    assert victim.read_bytes() == b"keep" and not record.is_symlink()
    moved = memo.folder.rename(tmp_path / "moved")
    memo.folder.symlink_to(moved)
    assert memo.get(FileStamp.of(path), "sha256") is None


def test_the_quick_check_finds_damage_that_the_status_does_not_show(
    tmp_path: Path, clock: Clock, memo: StatMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "m", b"onnx")
    sha = sha256_memoised(path, memo)
    assert is_intact(path, sha, memo) and not is_intact(path, "0" * 64, memo)
    known = memo.get(FileStamp.of(path), "xxh3")
    assert known == xxhash.xxh3_128_hexdigest(b"onnx")
    # The bytes of a bad disk: other bytes, the same status.
    memo.put(FileStamp.of(path), {"xxh3": xxhash.xxh3_128_hexdigest(b"ONNX")}, started_ns=clock.now)
    assert not is_intact(path, sha, memo)
    rewrite(path, b"ONNX")
    assert not is_intact(path, sha, memo) and is_intact(path, sha256_hex(b"ONNX"), memo)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, clock: Clock) -> None:
    path = written(tmp_path / "m", b"onnx")
    memo = StatMemo(path / "below a file")
    assert sha256_memoised(path, memo) == sha256_memoised(path, memo) == sha256_hex(b"onnx")
    assert memo.get(FileStamp.of(path), "sha256") is None


def test_a_full_disk_is_no_error_and_leaves_nothing(
    tmp_path: Path, clock: Clock, memo: StatMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "m", b"onnx")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert sha256_memoised(path, memo) == sha256_hex(b"onnx")
    assert list(memo.folder.iterdir()) == []


def test_the_memo_of_a_file_is_bounded_and_keeps_the_latest(tmp_path: Path, clock: Clock, memo: StatMemo) -> None:
    path = written(tmp_path / "m", b"onnx")
    for number in range(3 * MAX_DIGESTS):
        memo.put(FileStamp.of(path), {"sha256": "first"}, started_ns=clock.now)
        memo.put(FileStamp.of(path), {f"kind {number}": str(number)}, started_ns=clock.now)
    (record,) = memo.folder.iterdir()
    assert len(json.loads(record.read_bytes())["digests"]) == MAX_DIGESTS
    assert memo.get(FileStamp.of(path), "sha256") == "first"
    assert memo.get(FileStamp.of(path), f"kind {3 * MAX_DIGESTS - 1}") == str(3 * MAX_DIGESTS - 1)
    assert memo.get(FileStamp.of(path), "kind 0") is None


@pytest.mark.parametrize(("offset", "size"), [(0, None), (0, 10), (5, 3 << 20), (1 << 20, 1), (7, None), (9 << 20, 5)])
def test_the_read_and_hash_loop(tmp_path: Path, offset: int, size: int | None) -> None:
    data = os.urandom((2 << 20) + 17)
    path = written(tmp_path / "data", data)
    expected = data[offset:] if size is None else data[offset : offset + size]
    digest, other, out = hashlib.sha256(), hashlib.sha256(), bytearray(len(expected))

    def sink(chunk: Any, at: int) -> None:
        out[at : at + len(chunk)] = chunk

    with path.open("rb", buffering=0) as file:
        assert hash_chunks(read_chunks(file.fileno(), offset, size), digest, other, sink=sink) == len(expected)
        assert sha256_chunks(read_chunks(file.fileno(), offset, size)) == digest.hexdigest()
        assert file.tell() == 0, "the position of the file does not change"
    assert bytes(out) == expected
    assert digest.hexdigest() == other.hexdigest() == hashlib.sha256(expected).hexdigest()


def test_hashing_does_not_change_the_chunks() -> None:
    digest = hashlib.sha256()
    assert list(hash_through([b"ab", b"", b"c"], digest)) == [b"ab", b"", b"c"]
    assert digest.hexdigest() == hashlib.sha256(b"abc").hexdigest()


def write_and_remember(path: Path, content: bytes, memo: StatMemo) -> os.stat_result:
    """As a download does: nobody else has the file while it is written."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        status = os.fstat(file.fileno())
    remember_written(path, status, {"sha256": sha256(content).hexdigest()}, memo)
    return status


def test_a_file_that_was_written_and_hashed_is_not_read_again(
    tmp_path: Path, memo: StatMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program"
    write_and_remember(path, b"content", memo)
    forbid_hashing(monkeypatch)
    assert sha256_memoised(path, memo) == sha256(b"content").hexdigest()


def test_a_change_right_after_it_was_written_is_seen(tmp_path: Path, memo: StatMemo) -> None:
    """Of the same size and with the same mtime, as fast as possible: only the ctime can tell."""
    path = tmp_path / "program"
    for number in range(100):
        status = write_and_remember(path, b"content %3d" % number, memo)
        other = b"changed %3d" % number
        path.write_bytes(other)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert sha256_memoised(path, memo) == sha256(other).hexdigest()


def test_what_changed_before_it_was_remembered_is_not(tmp_path: Path, memo: StatMemo) -> None:
    path = tmp_path / "program"
    status = write_and_remember(path, b"content", StatMemo(None))
    for change in (lambda: path.write_bytes(b"CONTENT"), lambda: written(tmp_path / "x", b"CONTENT").replace(path)):
        while path.stat().st_mtime_ns == status.st_mtime_ns:
            change()
        remember_written(path, status, {"sha256": sha256(b"content").hexdigest()}, memo)
        assert sha256_memoised(path, memo) == sha256(b"CONTENT").hexdigest()
        status = write_and_remember(path, b"content", StatMemo(None))


def test_a_file_that_somebody_writes_is_not_remembered(tmp_path: Path, memo: StatMemo) -> None:
    path = tmp_path / "program"
    status = write_and_remember(path, b"content", StatMemo(None))
    with path.open("r+b"):
        remember_written(path, status, {"sha256": sha256(b"content").hexdigest()}, memo)
    assert memo.get(FileStamp.of(path), "sha256") is None


@pytest.mark.parametrize("behind", [0, 1, SECOND, 10**18])
def test_stamps_that_the_clock_does_not_pass_are_not_waited_for(
    tmp_path: Path, memo: StatMemo, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """As on a file system of another host, whose clock is ahead."""
    path = tmp_path / "program"
    status = write_and_remember(path, b"content", StatMemo(None))
    monkeypatch.setattr(hashing.time, "clock_gettime_ns", lambda _: last_change(path) - behind)  # type: ignore[attr-defined]
    assert hashing.wait_until_settled(path) is None
    remember_written(path, status, {"sha256": sha256(b"content").hexdigest()}, memo)
    assert memo.get(FileStamp.of(path), "sha256") is None


def test_stamps_of_whole_seconds_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program"
    write_and_remember(path, b"content", StatMemo(None))
    real = FileStamp.of(path)
    coarse = real.ctime_ns // SECOND * SECOND
    monkeypatch.setattr(FileStamp, "of", lambda _: real._replace(mtime_ns=coarse, ctime_ns=coarse))
    begun = coarse
    found = hashing.wait_until_settled(path)
    # Only where the second had passed anyway.
    assert found is None or time.time_ns() > begun + SECOND
