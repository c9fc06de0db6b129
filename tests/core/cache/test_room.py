"""The limit of the cache: what was used longest ago goes, and nothing that somebody needs now."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from mxr.cache import room
from mxr.cache.store import Cache, CachePolicy
from mxr.util import disk

DAY = 86_400.0
MIB = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", CachePolicy(size=4 * MIB))


def put(cache: Cache, number: int, days: float) -> str:
    """A program of 1 MiB that was written and read so many days ago; its sha256."""
    data = bytes([number]) * MIB
    sha = sha256(data).hexdigest()
    disk.write_whole(cache.prepare_file(sha), data, 0o444)
    os.utime(cache.file_path(sha), (time.time() - days * DAY,) * 2)
    return sha


def test_the_programs_used_longest_ago_make_room(cache: Cache) -> None:
    shas = [put(cache, number, days) for number, days in enumerate((9, 2, 30, 5))]
    assert room.make_room(cache, MIB) == 1
    assert set(cache.programs()) == {shas[0], shas[1], shas[3]}
    assert room.make_room(cache, 3 * MIB) == 2
    assert set(cache.programs()) == {shas[1]}


def test_what_fits_removes_nothing(cache: Cache) -> None:
    put(cache, 1, 300)
    assert room.make_room(cache, 3 * MIB) == 0


def test_a_use_counts_although_no_read_changed_the_times(cache: Cache) -> None:
    shas = [put(cache, number, days) for number, days in enumerate((30, 20, 10, 5))]
    room.note_used(cache, shas[0])
    assert room.make_room(cache, MIB) == 1
    assert shas[0] in set(cache.programs()) and shas[1] not in set(cache.programs())


def test_programs_of_the_last_day_stay_above_the_limit(cache: Cache) -> None:
    shas = {put(cache, number, 0.9) for number in range(6)}
    assert room.make_room(cache, 100 * MIB) == 0
    assert set(cache.programs()) == shas


def test_a_program_with_another_name_stays(cache: Cache, tmp_path: Path) -> None:
    sha = put(cache, 1, 30)
    (tmp_path / "model.mxr").hardlink_to(cache.file_path(sha))
    assert room.make_room(cache, 100 * MIB) == 0
    assert set(cache.programs()) == {sha}


def test_no_limit_removes_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path, CachePolicy(size=0))
    put(cache, 1, 300)
    assert room.make_room(cache, 1 << 60) == 0


def test_the_note_of_a_use_goes_with_its_program(cache: Cache) -> None:
    sha = put(cache, 1, 30)
    room.note_used(cache, sha)
    note = cache.root / "used" / sha
    os.utime(note, (time.time() - 2 * DAY,) * 2)
    assert room.make_room(cache, 100 * MIB) == 1
    assert not note.exists()


def test_a_use_is_noted_once_an_hour_and_only_of_what_is_there(cache: Cache) -> None:
    sha = put(cache, 1, 30)
    room.note_used(cache, "0" * 64)
    assert not (cache.root / "used").exists()
    room.note_used(cache, sha)
    note = cache.root / "used" / sha
    recent, old = time.time() - 600, time.time() - 7200
    os.utime(note, (recent, recent))
    room.note_used(cache, sha)
    assert note.stat().st_mtime == pytest.approx(recent, abs=1)
    os.utime(note, (old, old))
    room.note_used(cache, sha)
    assert note.stat().st_mtime > time.time() - 60


def test_a_link_in_place_of_a_note_is_not_followed(cache: Cache, tmp_path: Path) -> None:
    sha = put(cache, 1, 30)
    other = tmp_path / "other"
    other.write_text("mine")
    os.utime(other, (10, 10))
    (cache.root / "used").mkdir()
    (cache.root / "used" / sha).symlink_to(other)
    room.note_used(cache, sha)
    assert other.stat().st_mtime == 10
