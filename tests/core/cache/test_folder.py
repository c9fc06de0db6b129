"""Attacks on the cache folder by other users: real ones where the tests run as root."""

from __future__ import annotations

import gc
import os
import stat
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from core.cache.test_store import ONE, REQUEST, artifact, opened, put

from mxr.artifact.matching import Match
from mxr.cache.contents import entries, verify_programs
from mxr.cache.folder import CacheFolder
from mxr.cache.partition import CachePolicy
from mxr.cache.store import Answer, Cache
from mxr.errors import MxrError, NotAllowedError
from mxr.util import disk
from mxr.util.hashing import StatMemo, sha256_memoised

OTHER, THIRD = 12345, 12346
SHA = sha256(b"program").hexdigest()
TWO = "22222222-2222-4222-8222-222222222222"
SAID = Answer(artifact(), Match())

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def acting_as(user: int, action: Callable[[], object]) -> None:
    """Runs an action as another user, in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.umask(0)
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def fill(folder: Path) -> None:
    """A cache with a program, its record and an answer."""
    cache = opened(folder)
    put(cache, b"program")
    cache.store_answer(REQUEST, SAID)


def reads(cache: Cache) -> None:
    """Whatever a fetch from the cache does."""
    cache.lookup(REQUEST)
    cache.best_match(REQUEST)
    cache.intact_or_removed(SHA)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that every user can reach, as /tmp is."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(0o711 if not path.stat().st_mode & stat.S_ISVTX else stat.S_IMODE(path.stat().st_mode))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2777, 0o775, 0o757])
def test_in_a_folder_that_others_can_write_is_one_of_ones_own(tmp_path: Path, mode: int) -> None:
    fill(tmp_path / "c")
    (tmp_path / "c").chmod(mode)
    cache = opened(tmp_path / "c")
    own = tmp_path / "c" / f"mxr-{os.geteuid()}"
    assert cache.root == own / "v2" and not cache.intact_or_removed(SHA), "others may have put that there"
    fill(tmp_path / "c")
    assert opened(tmp_path / "c").lookup(REQUEST) is not None and cache.intact_or_removed(SHA)
    assert stat.S_IMODE(own.stat().st_mode) & 0o777 == 0o700
    # A mount with fixed modes shows the same, and keeps it.
    own.chmod(0o777)
    for attempt in (lambda: reads(cache), lambda: cache.store_answer(REQUEST, SAID), lambda: cache.note_registry(TWO)):
        with pytest.raises(NotAllowedError, match="is open to other users") as caught:
            attempt()
    assert "rm -r" in caught.value.hint and "fixed modes" in caught.value.hint
    (tmp_path / "c").chmod(0o755)
    assert Cache(tmp_path / "c").intact_or_removed(SHA), "closed, and the first one serves again"


def test_a_folder_within_that_others_can_write_is_refused_with_the_way_to_mend_it(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    (tmp_path / "c" / "v2").chmod(0o775)
    for attempt in (lambda c: reads(c), lambda c: c.store_answer(REQUEST, SAID), lambda c: c.note_registry(TWO)):
        with pytest.raises(NotAllowedError, match="Other users can write") as caught:
            attempt(opened(tmp_path / "c"))
    assert "chmod go-w" in caught.value.hint
    (tmp_path / "c" / "v2").chmod(0o755)
    assert Cache(tmp_path / "c").intact_or_removed(SHA), "mended"


@as_root
def test_a_folder_that_another_user_prepared_is_refused(home: Path) -> None:
    acting_as(OTHER, lambda: fill(home / "c"))
    with pytest.raises(NotAllowedError, match="belongs to user 12345"):
        reads(Cache(home / "c"))
    acting_as(OTHER, lambda: (home / "link").symlink_to(home / "c"))
    with pytest.raises(NotAllowedError, match="symbolic link of user 12345"):
        reads(Cache(home / "link"))
    acting_as(OTHER, lambda: ((home / "open").mkdir(), (home / "open").chmod(0o777)))
    with pytest.raises(NotAllowedError, match="Every user can write"):
        reads(Cache(home / "open" / "c"))


@as_root
@pytest.mark.parametrize("swap", ["another", "link", "file", "moved"])
def test_others_can_take_ones_own_folder_away_and_put_none_in_its_place(home: Path, swap: str) -> None:
    """Two users on one volume without the sticky bit, as an emptyDir is."""
    home.chmod(0o777)
    acting_as(THIRD, lambda: fill(home))
    own, theirs = home / f"mxr-{THIRD}", home / "theirs"

    def attack() -> None:
        own.rename(home / "taken")
        fill(theirs)
        if swap == "link":
            own.symlink_to(home / "taken")
        elif swap == "file":
            own.write_bytes(b"")
        elif swap == "another":
            (theirs).rename(own)
            own.chmod(0o700)

    acting_as(OTHER, attack)

    def victim() -> None:
        cache = Cache(home)
        if swap == "moved":
            assert not cache.intact_or_removed(SHA), "it begins again with an empty one"
            fill(home)
            assert opened(home).lookup(REQUEST) is not None
            return
        if swap != "file":
            with pytest.raises(NotAllowedError, match="symbolic link" if swap == "link" else "belongs to user 12345"):
                reads(cache)
        with pytest.raises(MxrError):
            cache.prepare_file(SHA)
        with cache.staged_beside(home / "out"):
            cache.note_registry(ONE)
            assert cache.lookup(REQUEST) is None and not cache.intact_or_removed(SHA)
            assert cache.memo.folder is None

    acting_as(THIRD, victim)


@as_root
def test_a_swap_between_two_steps_of_a_fetch_changes_nothing(home: Path) -> None:
    """The paths for writing and reading lead to the folder that was checked, whatever its name is by then."""
    home.chmod(0o777)
    own, victim = home / f"mxr-{os.geteuid()}", home / "precious"
    victim.mkdir(mode=0o700)
    cache = opened(home)
    path = cache.prepare_file(SHA)
    acting_as(OTHER, lambda: (own.rename(home / "taken"), own.symlink_to(victim)))
    disk.write_whole(path, b"program", 0o444)
    assert list(victim.iterdir()) == [] and (home / "taken" / "v2" / "files" / SHA[:2] / SHA).read_bytes() == b"program"
    acting_as(OTHER, lambda: (own.unlink(), (home / "taken").rename(own)))
    assert cache.intact_or_removed(SHA)
    reading = cache.access_path(SHA)
    acting_as(OTHER, lambda: (own.rename(home / "taken"), fill(own), own.chmod(0o777)))
    disk.copy_whole(reading, home / "copy")
    assert (home / "copy").read_bytes() == b"program"
    before = list(disk.DESCRIPTORS.iterdir())
    del cache
    gc.collect()
    assert len(list(disk.DESCRIPTORS.iterdir())) < len(before), "the descriptors go with the cache"


@as_root
def test_folders_of_root_and_of_cache_owners_are_only_read_and_their_memo_is_ignored(home: Path) -> None:
    fill(home / "roots")
    acting_as(OTHER, lambda: fill(home / "others"))
    forged = home / "roots" / "v2" / "memo"

    def check(folder: Path, owners: tuple[int, ...]) -> None:
        cache = Cache(folder, CachePolicy(owners=owners, private=home / f"state-{os.geteuid()}"))
        cache.note_registry(ONE)
        assert cache.lookup(REQUEST) is not None and cache.intact_or_removed(SHA)
        assert cache.memo.folder is not None and cache.memo.folder.is_relative_to(home / f"state-{os.geteuid()}")
        with pytest.raises(NotAllowedError, match="only reads it"):
            cache.store_answer(REQUEST, SAID)
        cache.log_use(SHA)

    memo = StatMemo(forged)
    forged.mkdir(exist_ok=True)
    sha256_memoised(Cache(home / "roots").file_path(SHA), memo)
    before = sorted(path for path in home.rglob("*"))
    acting_as(THIRD, lambda: check(home / "roots", ()))
    acting_as(THIRD, lambda: check(home / "others", (OTHER,)))
    check(home / "others", (OTHER,))
    assert [path for path in before if not path.exists()] == []
    assert {path.stat().st_uid for path in (home / "others").rglob("*")} == {OTHER}, "root wrote nothing there"
    changed = Cache(home / "roots").file_path(SHA)
    changed.chmod(0o644)
    changed.write_bytes(b"PROGRAM")
    acting_as(THIRD, lambda: _refuses_damage(home))


def _refuses_damage(home: Path) -> None:
    assert not Cache(home / "roots", CachePolicy(private=home / f"state-{THIRD}")).intact_or_removed(SHA)


@as_root
def test_what_others_planted_before_the_folder_was_mended_is_not_used(home: Path) -> None:
    """Records, programs, memo entries, pipes and links of another user, in folders that are this user's own again."""
    cache = home / "c"
    fill(cache)
    records = [path for path in cache.rglob("*.json") if {"answers", "artifacts"} & set(path.parts)]
    program = Cache(cache).file_path(SHA)
    for folder in [cache, *(path for path in cache.rglob("*") if path.is_dir())]:
        folder.chmod(0o777)

    def plant() -> None:
        for path in (*records, program):
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)
            path.chmod(0o444)
        (cache / "v2" / "locks").mkdir(exist_ok=True)
        os.mkfifo(cache / "v2" / "registries" / "pipe")

    acting_as(OTHER, plant)
    for folder in [cache, *(path for path in cache.rglob("*") if path.is_dir() and path.stat().st_uid == 0)]:
        folder.chmod(0o755)
    found = opened(cache)
    assert found.lookup(REQUEST) is None and found.best_match(REQUEST) is None and not found.intact_or_removed(SHA)
    assert list(entries(found)) == [] and list(verify_programs(found)) == []
    with pytest.raises(NotAllowedError):
        found.folder.open_to_write("locks/x", os.O_RDWR).__enter__()
    found.store_answer(REQUEST, SAID)
    assert found.lookup(REQUEST) is not None, "one's own record takes the place"


def test_planted_symbolic_and_hard_links_neither_redirect_nor_truncate(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    fill(tmp_path / "c")
    cache = opened(tmp_path / "c")
    partition = cache.partition
    assert partition is not None
    home = cache.root / partition.name
    (cache.root / "locks").mkdir(exist_ok=True)
    (cache.root / "locks" / SHA).symlink_to(victim)
    (home / "uses").symlink_to(victim)
    with cache.download_lock(SHA):
        cache.log_use(SHA)
    (home / "uses").unlink()
    (home / "uses").hardlink_to(victim)
    cache.log_use(SHA)
    assert victim.read_bytes() == b"precious"
    program = cache.file_path(SHA)
    program.rename(elsewhere / SHA)
    program.symlink_to(elsewhere / SHA)
    assert not cache.intact_or_removed(SHA), "a link is not the program"
    answers = home / "answers"
    answers.rename(elsewhere / "answers")
    answers.symlink_to(elsewhere / "answers")
    assert cache.lookup(REQUEST) is None
    with pytest.raises(NotAllowedError, match="symbolic link"):
        cache.store_answer(REQUEST, SAID)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "v2").symlink_to(tmp_path / "c" / "v2")
    with pytest.raises(NotAllowedError, match="symbolic link"):
        reads(Cache(tmp_path / "d"))


def test_folders_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fill(tmp_path / "a" / "b" / "c")
        assert Cache(tmp_path / "a" / "b" / "c").memo.folder is not None
    finally:
        os.umask(before)
    reads(Cache(tmp_path / "a" / "b" / "c"))
    assert [path for path in (tmp_path / "a").rglob("*") if path.stat().st_mode & 0o022] == []


def test_a_name_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, "v2")
    os.mkfifo(folder.prepare_path("a/pipe"))
    assert folder.read("a/pipe") is None and not folder.has_trusted_file("a/pipe")
    with pytest.raises(OSError, match="not a plain file"):
        folder.open_to_write("a/pipe", os.O_RDWR).__enter__()
