"""What every store must do: one suite, run over each of them. A new store is a new line in `KINDS`."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from registry.storage.s3_settings import s3_settings
from servers.swift import Bucket

from mxr.artifact.packed import plain_stream
from mxr.errors import DamagedError, NoSuchBlobError, UsageError
from mxr.util.hashing import CHUNK
from mxr_registry.storage import open_store
from mxr_registry.storage import store as store_module
from mxr_registry.storage.local import LocalStore
from mxr_registry.storage.store import Store

DATA = bytes(range(256)) * 9000
"""Bytes that are stored packed."""

PLAIN = random.Random(1).randbytes(len(DATA))
NAME = sha256(DATA).hexdigest()

LARGE = 17 << 20
"""Bytes of an upload of many chunks."""

Asked = pytest.FixtureRequest


def local(asked: Asked) -> Store:
    return LocalStore(asked.getfixturevalue("tmp_path") / "store")


def s3(asked: Asked) -> Store:
    bucket: Bucket = asked.getfixturevalue("bucket")
    return open_store(bucket.url, s3_settings(bucket.environ))


KINDS: dict[str, Callable[[Asked], Store]] = {"local": local, "s3": s3}


@pytest.fixture(params=sorted(KINDS))
def store(request: Asked) -> Store:
    return KINDS[request.param](request)


@pytest.fixture
def again(request: Asked, store: Store) -> Store:
    """The same store, in a process that has seen nothing of it."""
    return KINDS["local" if isinstance(store, LocalStore) else "s3"](request)


def keep(store: Store, data: bytes = DATA) -> str:
    name = sha256(data).hexdigest()
    upload = store.begin(name, len(data))
    upload.write(data)
    assert upload.commit() == len(data)
    return name


class TestStore:
    def test_bytes_come_back_as_they_went_in(self, store: Store) -> None:
        keep(store)
        assert b"".join(store.open(NAME)) == DATA
        assert store.stat(NAME) == len(DATA)
        assert store.check(NAME) == len(DATA)
        assert store.url(NAME) is None or store.url(NAME)

    def test_notes_are_kept_and_replaced(self, store: Store) -> None:
        assert store.notes() == {}
        one, two = "0" * 32, "ab" * 16
        store.keep_note(one, b"first")
        store.keep_note(two, DATA)
        store.keep_note(one, b"second")
        assert store.notes() == {one: b"second", two: DATA}
        assert [item for item in store.walk() if item.sha256] == []

    def test_chunks_are_large(self, store: Store) -> None:
        sizes = [len(part) for part in store.open(keep(store, PLAIN))]
        assert all(size == CHUNK for size in sizes[:-1]) and len(sizes) == -(-len(DATA) // CHUNK)

    @pytest.mark.parametrize(("offset", "length"), [(0, 1), (5, 100), (CHUNK - 1, 2), (len(DATA) - 3, None), (7, None)])
    def test_a_part_is_that_part(self, store: Store, offset: int, length: int | None) -> None:
        keep(store)
        expected = DATA[offset:] if length is None else DATA[offset : offset + length]
        assert b"".join(store.open(NAME, offset, length)) == expected
        assert b"".join(store.read(NAME, offset, length)) == expected

    def test_nothing_is_there_before_commit(self, store: Store) -> None:
        upload = store.begin(NAME, len(DATA))
        upload.write(DATA)
        assert store.stat(NAME) is None
        upload.discard()
        assert store.stat(NAME) is None
        assert not list(store.walk())

    def test_other_bytes_are_refused_and_not_kept(self, store: Store) -> None:
        upload = store.begin(NAME, len(DATA))
        upload.write(DATA[:-1] + b"?")
        with pytest.raises(DamagedError, match="sha256"):
            upload.commit()
        assert store.stat(NAME) is None
        assert not list(store.walk())

    @pytest.mark.parametrize("announced", [len(DATA) - 1, len(DATA) + 1])
    def test_another_size_than_announced_is_refused(self, store: Store, announced: int) -> None:
        upload = store.begin(NAME, announced)
        with pytest.raises(DamagedError):
            upload.write(DATA)
            upload.commit()
        assert not list(store.walk())

    def test_the_same_bytes_twice_are_fine(self, store: Store) -> None:
        first, second = store.begin(NAME, len(DATA)), store.begin(NAME, len(DATA))
        first.write(DATA)
        second.write(DATA)
        first.commit()
        second.commit()
        assert b"".join(store.open(NAME)) == DATA
        assert [kept.sha256 for kept in store.walk()] == [NAME]

    def test_discard_after_commit_changes_nothing(self, store: Store) -> None:
        upload = store.begin(NAME, len(DATA))
        upload.write(DATA)
        upload.commit()
        upload.discard()
        assert store.check(NAME) == len(DATA)

    def test_what_is_not_here_is_said(self, store: Store) -> None:
        assert store.stat(NAME) is None
        for verb in (store.check, store.open, store.read):
            with pytest.raises(NoSuchBlobError):
                list(verb(NAME))

    def test_delete(self, store: Store) -> None:
        keep(store)
        store.delete(NAME)
        store.delete(NAME)
        assert store.stat(NAME) is None

    def test_what_is_known_was_stored_or_verified_here(self, store: Store) -> None:
        assert store.known(NAME) is None
        keep(store)
        assert store.known(NAME) == len(DATA)
        store.set_aside(NAME)
        assert store.known(NAME) is None
        keep(store)
        store.delete(NAME)
        assert store.known(NAME) is None

    def test_what_is_held_in_memory_is_what_was_stored(self, store: Store) -> None:
        keep(store)
        for offset, length in ((0, 100), (1000, store.page), (0, len(DATA)), (len(DATA), 1)):
            assert store.held(NAME, offset, length) in (None, DATA[offset : offset + length])
        assert store.held(NAME, 0, 100) == (DATA[:100] if store.page else None)
        store.delete(NAME)
        assert store.held(NAME, 0, 100) is None

    def test_set_aside_takes_it_out_of_the_way(self, store: Store) -> None:
        keep(store)
        store.set_aside(NAME)
        assert store.stat(NAME) is None
        keep(store)
        assert store.check(NAME) == len(DATA)

    def test_walk_shows_what_an_interrupted_upload_left(self, store: Store) -> None:
        keep(store)
        data = b"x" * LARGE
        upload = store.begin(sha256(data).hexdigest(), LARGE)
        upload.write(data)
        # An S3 server shows nothing of a request that it is still receiving.
        left = [kept for kept in store.walk() if kept.sha256 is None]
        assert len(left) == (1 if isinstance(store, LocalStore) else 0)
        for kept in left:
            store.drop(kept)
        assert [kept.sha256 for kept in store.walk()] == [NAME]

    def test_large_bytes_come_back_as_they_went_in(self, store: Store) -> None:
        data = bytes(range(251)) * (2 * LARGE // 251 + 9)
        name = sha256(data).hexdigest()
        upload = store.begin(name, len(data))
        for at in range(0, len(data), CHUNK - 1):
            upload.write(memoryview(data)[at : at + CHUNK - 1])
        assert store.stat(name) is None
        assert upload.commit() == store.check(name) == len(data)
        assert b"".join(store.open(name)) == data
        assert b"".join(store.open(name, LARGE - 5, LARGE)) == data[LARGE - 5 : 2 * LARGE - 5]
        assert [kept.size < len(data) // 100 for kept in store.walk()] == [True]

    def test_what_does_not_shrink_comes_back_as_it_went_in(self, store: Store) -> None:
        name = keep(store, PLAIN)
        assert b"".join(store.open(name)) == b"".join(store.read(name)) == PLAIN
        assert b"".join(store.open(name, 700_000, 1_000_000)) == PLAIN[700_000:1_700_000]
        assert store.check(name) == store.stat(name) == len(PLAIN)
        assert store.open_packed(name) is None and not store.is_packed(name)
        assert [kept.size for kept in store.walk()] == [len(PLAIN)]

    def test_what_shrinks_is_stored_packed(self, store: Store, again: Store) -> None:
        keep(store)
        for each in (store, again):
            assert each.is_packed(NAME)
            found = each.open_packed(NAME)
            assert found is not None
            size, reader = found
            stored = b"".join(reader)
            assert len(stored) == size < len(DATA) // 100
            assert b"".join(plain_stream(iter([stored]), len(DATA))) == DATA
            assert each.stats([NAME]) == {NAME: len(DATA)}
        assert not store.is_packed("0" * 64)
        with pytest.raises(NoSuchBlobError):
            store.open_packed("0" * 64)

    def test_what_looks_packed_comes_back_as_it_went_in(self, store: Store, again: Store) -> None:
        keep(store)
        _, reader = store.open_packed(NAME) or (0, iter(()))
        stored = b"".join(reader)
        for data in (stored, stored[:30], stored + PLAIN):
            name = keep(store, data)
            for each in (store, again):
                assert b"".join(each.open(name)) == data and each.stat(name) == len(data)

    def test_the_size_of_chunks_changes_nothing(self, store: Store) -> None:
        name = sha256(DATA).hexdigest()
        upload = store.begin(name, len(DATA))
        for at in (*range(0, 50, 1), *range(50, len(DATA), 777_777)):
            upload.write(DATA[at : at + (1 if at < 50 else 777_777)])
        upload.commit()
        reader = store.open(name, 3, 600_000)
        reader.chunk = lambda: 1000
        sizes = [len(part) for part in reader]
        assert max(sizes) == 1000 and sum(sizes) == 600_000 and store.is_packed(name)

    def test_a_large_upload_of_other_bytes_leaves_nothing(self, store: Store) -> None:
        upload = store.begin(NAME, LARGE)
        upload.write(b"x" * LARGE)
        with pytest.raises(DamagedError):
            upload.commit()
        assert not list(store.walk())

    def test_sizes_of_many(self, store: Store) -> None:
        names = {keep(store, bytes([number]) * (number + 1)): number + 1 for number in range(20)}
        assert store.stats([*names, "0" * 64, *names]) == names
        assert store.stats([]) == {}

    def test_uploads_that_nobody_finished_go_when_they_are_old(self, store: Store) -> None:
        upload = store.begin(NAME, LARGE)
        upload.write(b"x" * LARGE)
        keep(store)
        assert store.drop_stale() == 0
        assert store.drop_stale(-60) == (1 if isinstance(store, LocalStore) else 0)
        assert [kept.sha256 for kept in store.walk()] == [NAME]

    def test_ready(self, store: Store) -> None:
        store.prepare()
        store.ready()


def test_a_store_is_chosen_by_its_url(tmp_path: Path) -> None:
    found = open_store(f"file://{tmp_path}/a%20b")
    assert isinstance(found, LocalStore) and found.root == tmp_path / "a b"
    for url in ("ftp://host/x", "file://elsewhere/x", "nothing"):
        with pytest.raises(UsageError):
            open_store(url)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_remembered_of_blobs_is_bounded(request: Asked, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(store_module, "MAX_CHECKED", 2)
    store = KINDS[kind](request)
    names = [keep(store, text) for text in (b"one", b"two", b"three")]
    assert [store.known(name) for name in names] == [None, 3, 5]
    assert store.check(names[0]) == 3
    assert [store.known(name) for name in names] == [3, None, 5]
