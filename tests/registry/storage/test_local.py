"""The store in a folder: damage is found before anyone gets a byte, and a full disk leaves nothing behind."""

from __future__ import annotations

import errno
import os
import stat
import time
from hashlib import sha256
from pathlib import Path

import pytest

from mxr.errors import DamagedBlobError, DiskFullError, NoSuchBlobError, NotAllowedError, TemporaryError
from mxr_registry.storage.local import LocalStore

DATA = b"some bytes" * 1000
NAME = sha256(DATA).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    found = LocalStore(tmp_path / "store")
    upload = found.begin(NAME, len(DATA))
    upload.write(DATA)
    upload.commit()
    return found


def spoil(store: LocalStore) -> None:
    path = store.path(NAME)
    path.chmod(0o644)
    path.write_bytes(b"other byte" * 1000)
    os.utime(path, (1, 1))


@pytest.mark.parametrize("fresh", [True, False], ids=["after a restart", "in the same process"])
@pytest.mark.parametrize("verb", ["check", "open"])
def test_damage_is_found_set_aside_and_never_handed_out(store: LocalStore, verb: str, fresh: bool) -> None:
    spoil(store)
    store = LocalStore(store.root) if fresh else store
    with pytest.raises(DamagedBlobError, match=NAME):
        getattr(store, verb)(NAME)
    assert store.stat(NAME) is None
    assert [path.name.partition(".")[0] for path in (store.root / "damaged").iterdir()] == [NAME]
    with pytest.raises(NoSuchBlobError):
        store.open(NAME)


def test_what_was_set_aside_is_listed_with_its_time_and_can_go(store: LocalStore) -> None:
    began = time.time()
    spoil(store)
    store.set_aside(NAME)
    (store.root / "damaged" / "notes").write_text("mine")
    (item,) = store.damaged()
    assert (item.sha256, item.size) == (NAME, len(b"other byte" * 1000))
    assert began - 1 < item.modified <= time.time()
    store.drop(item)
    assert not list(store.damaged())
    assert (store.root / "damaged" / "notes").exists()


def test_the_tree_is_as_drawn(store: LocalStore) -> None:
    path = store.root / "blobs" / NAME[:2] / NAME[2:4] / NAME
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o444


def test_a_blob_is_hashed_once(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *words: read.append(words) or preadv(*words))
    assert store.check(NAME) == len(DATA)
    assert not read
    again = LocalStore(store.root)
    again.check(NAME)
    once = len(read)
    assert once > 0
    again.check(NAME)
    assert len(read) == once


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    store = LocalStore(tmp_path)
    upload = store.begin(NAME, len(DATA))

    def full(*words: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(DiskFullError):
            upload.write(DATA)
            upload.commit()
    upload.discard()
    assert not list(store.walk())


def test_a_file_where_a_folder_should_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"")
    with pytest.raises(TemporaryError, match="Cannot write"):
        LocalStore(tmp_path).begin(NAME, len(DATA))


def test_uploads_that_nobody_finished_go_after_a_day(store: LocalStore) -> None:
    old, new = (store.begin(sha256(text).hexdigest(), 3) for text in (b"old", b"new"))
    old.write(b"old")
    new.write(b"new")
    (left,) = [kept for kept in store.walk() if Path(kept.name).read_bytes() == b"old"]
    os.utime(left.name, (1, 1))
    assert store.drop_stale() == 1
    assert new.commit() == 3
    assert {kept.sha256 for kept in store.walk()} == {NAME, sha256(b"new").hexdigest()}


def test_a_reader_that_is_not_read_to_its_end_closes_its_file(store: LocalStore) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    readers = [store.open(NAME) for _ in range(5)]
    assert descriptors() == before + 5
    readers.pop().close()
    del readers
    assert descriptors() == before


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o700])
def test_a_store_is_private(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    LocalStore(tmp_path).prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    LocalStore(tmp_path / "new" / "store").prepare()
    assert stat.S_IMODE((tmp_path / "new" / "store").stat().st_mode) == 0o700


def test_a_store_that_others_can_write_or_own_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(NotAllowedError, match="Other users can write to"):
        LocalStore(tmp_path).prepare()
    tmp_path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(tmp_path, 12_345, 12_345)
        with pytest.raises(NotAllowedError, match="belongs to user 12345"):
            LocalStore(tmp_path).prepare()
