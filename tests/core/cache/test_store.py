"""The cache: what it holds is what it says, and what is damaged or unreadable is as if it were not there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU, MODEL

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.matching import Match
from mxr.cache.contents import entries, verify_programs
from mxr.cache.store import Answer, Cache, CachedAnswer, CachedArtifact, CachePolicy, CacheState
from mxr.errors import OtherRegistryError, UsageError
from mxr.protocol.artifacts import Artifact, Model, ModelInput
from mxr.util import codec, disk
from mxr.util.codec import Timestamp

REQUEST = Request(GPU)
ONE = "11111111-1111-4111-8111-111111111111"
MODEL_SEEN = Model(MODEL, "m.onnx", (ModelInput("x", "float32", ("N", 3)),))


def artifact(data: bytes = b"program", key: Key = GPU, has: Attributes | None = None, at: float = 1.0) -> Artifact:
    sha = sha256(data).hexdigest()
    manifest = Manifest((File("model.mxr", len(data), sha, (Blob(sha, len(data)),)),))
    id = artifact_id(key.digest, manifest.files)
    return Artifact(
        id, key.digest, sha, len(data), key, has or Attributes(), {}, Timestamp(at), "built", "built", manifest=manifest
    )


def put(cache: Cache, data: bytes) -> Path:
    """The program in the cache, old enough for its stat to be trusted."""
    path = cache.prepare_file(sha256(data).hexdigest())
    disk.write_whole(path, data, 0o444)
    os.utime(path, ns=(10**18, 10**18))
    return path


def opened(folder: Path) -> Cache:
    """A cache that a registry answered to."""
    found = Cache(folder)
    found.note_registry(ONE)
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return opened(tmp_path)


def said_of(found: CachedAnswer | None) -> Answer | None:
    return None if found is None else found.answer


def test_what_was_answered_is_answered_again(cache: Cache, tmp_path: Path) -> None:
    said = Answer(artifact(), Match(("rocm_patch",), {"xnack": "-"}))
    assert cache.lookup(REQUEST) is None
    cache.store_answer(REQUEST, said)
    assert said_of(cache.lookup(REQUEST)) == said
    assert said_of(Cache(tmp_path).lookup(REQUEST)) == said, "another process"


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (None, CacheState.ABSENT),
        ({"age": 5.0}, CacheState.FRESH),
        ({"age": 50.0}, CacheState.UNCONFIRMED),
        ({"age": 500.0}, CacheState.EXPIRED),
        ({"age": -5.0}, CacheState.EXPIRED),
        ({"age": 500.0, "imported": True}, CacheState.UNCONFIRMED),
        ({"age": None, "imported": True}, CacheState.UNCONFIRMED),
        ({"age": 5.0, "gone": "removed"}, CacheState.GONE),
    ],
)
def test_the_state_of_a_record(tmp_path: Path, facts: dict[str, Any] | None, state: CacheState) -> None:
    cache = Cache(tmp_path, CachePolicy(max_age=10.0, max_stale=100.0))
    assert cache.state_of(None if facts is None else CachedArtifact(artifact(), **facts)) is state


def test_the_state_of_an_answer(cache: Cache) -> None:
    """Only what is exact and has its files serves without another resolve."""
    cache.store_answer(REQUEST, Answer(artifact(), Match()))

    def state() -> CacheState:
        found = cache.lookup(REQUEST)
        assert found is not None
        return found.state

    assert state() is CacheState.UNSUITABLE, "its file is missing"
    put(cache, b"program")
    assert state() is CacheState.FRESH
    cache.store_answer(REQUEST, Answer(artifact(), Match(("rocm_patch",))))
    assert state() is CacheState.RELAXED, "a better one may be there by now"
    cache.store_answer(REQUEST, Answer(artifact(), Match((), {"xnack": "-"})))
    assert state() is CacheState.FRESH, "it can mean only this program"
    cache.store_miss(REQUEST)
    assert cache.lookup(REQUEST) is None


def test_what_the_namespace_does_not_serve_answers_nothing(cache: Cache) -> None:
    """A lock or an id brings such a program into the cache, too."""
    pushed = replace(artifact(), origin="pushed")
    put(cache, b"program")
    cache.store_artifact(pushed)
    assert cache.best_match(REQUEST) is None
    known = cache.artifact_record(pushed.digest, pushed.id)
    assert known is not None and known.artifact == pushed
    cache.store_answer(REQUEST, Answer(pushed, Match()))
    assert cache.lookup(REQUEST) is None
    for served in (replace(pushed, promoted_at=Timestamp(2.0)), replace(pushed, serve="any")):
        cache.store_artifact(served)
        assert said_of(cache.best_match(REQUEST)) == said_of(cache.lookup(REQUEST)) == Answer(served, Match())


@pytest.mark.parametrize(
    "other",
    [
        Request(GPU, Constraints(num_cu=104)),
        Request(GPU, Constraints(exact=True)),
        Request(GPU, Constraints(allow=("cu",))),
        Request(GPU, Constraints(xnack="-")),
        Request(replace(GPU, migraphx="2.16")),
        Request(replace(GPU, kind="ref")),
    ],
    ids=repr,
)
def test_an_answer_is_for_that_very_request(cache: Cache, other: Request) -> None:
    cache.store_answer(REQUEST, Answer(artifact(), Match()))
    assert cache.lookup(other) is None


def test_an_answer_of_the_generic_family(cache: Cache) -> None:
    key = replace(GPU, arch="gfx1100")
    family = key.generic()
    assert family is not None
    said = Answer(artifact(key=family), Match(("arch",)))
    cache.store_answer(Request(key), said)
    assert said_of(cache.lookup(Request(key))) == said
    assert said_of(cache.best_match(Request(key))) == said
    assert cache.best_match(Request(key, Constraints(exact=True))) is None


def test_the_cache_chooses_by_the_registrys_rules(cache: Cache) -> None:
    later = artifact(b"later", has=Attributes(num_cu=110), at=2.0)
    first = artifact(b"first", has=Attributes(num_cu=104), at=1.0)
    for each in (later, first):
        cache.store_answer(Request(GPU, Constraints(num_cu=each.attributes.num_cu)), Answer(each, Match()))
    assert said_of(cache.best_match(Request(GPU, Constraints(num_cu=110)))) == Answer(later, Match())
    assert cache.best_match(Request(GPU, Constraints(num_cu=108))) is None
    assert said_of(cache.best_match(Request(GPU, Constraints(num_cu=108, allow=("cu",))))) == Answer(
        first, Match(("num_cu",))
    )
    assert said_of(cache.best_match(REQUEST)) == Answer(first, Match((), {"num_cu": 104}))
    promoted = replace(later, promoted_at=Timestamp(5.0))
    cache.store_answer(REQUEST, Answer(promoted, Match()))
    assert said_of(cache.best_match(REQUEST)) == Answer(promoted, Match((), {"num_cu": 110}))
    assert cache.best_match(Request(replace(GPU, arch="gfx908"))) is None


def test_signs_that_disagree_in_the_cache_are_a_usage_error(cache: Cache) -> None:
    for sign in ("+", "-"):
        row = artifact(sign.encode(), has=Attributes(xnack=sign))
        cache.store_answer(Request(GPU, Constraints(xnack=sign)), Answer(row, Match()))
    with pytest.raises(UsageError, match="xnack"):
        cache.best_match(REQUEST)


def test_it_holds_what_it_holds(cache: Cache) -> None:
    data = b"program"
    sha = sha256(data).hexdigest()
    assert not cache.intact_or_removed(sha)
    path = put(cache, data)
    assert cache.intact_or_removed(sha) and cache.intact_or_removed(sha)
    assert path.read_bytes() == data


@pytest.mark.parametrize("known", [False, True], ids=["never read", "read and remembered before"])
@pytest.mark.parametrize("damage", [b"progrAm", b"", b"program and more"])
def test_a_damaged_file_is_dropped_and_not_served(cache: Cache, damage: bytes, known: bool) -> None:
    sha = sha256(b"program").hexdigest()
    path = put(cache, b"program")
    assert not known or cache.intact_or_removed(sha)
    path.chmod(0o644)
    path.write_bytes(damage)
    assert not cache.intact_or_removed(sha)
    assert not path.exists(), "so that it is fetched again"
    put(cache, b"program")
    assert cache.intact_or_removed(sha)


def test_damage_that_keeps_every_stat_is_found_by_verify(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = put(cache, b"good"), put(cache, b"program")
    sha = sha256(b"program").hexdigest()
    monkeypatch.setattr("mxr.util.hashing.StatMemo.get", lambda *_: sha)
    bad.chmod(0o644)
    bad.write_bytes(b"PROGRAM")
    assert cache.intact_or_removed(sha), "the memo is believed here"
    assert dict(verify_programs(cache)) == {good: True, bad: False}
    assert good.exists() and not bad.exists()


def files(cache: Cache, folder: str) -> list[Path]:
    return [path for path in cache.root.rglob("*") if path.is_file() and folder in path.parts]


GARBAGE = [
    *(b"", b"\0" * 100, b"{", b"null", b"[]", b'"x"', b"7", b"{}", b"\xff\xfe", b"<html>", b"[" * 100_000),
    *(b'{"digest":1,"id":2,"match":3}', b'{"v":NaN}', b'{"model":{}}'),
]


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: ascii(data)[:20])
@pytest.mark.parametrize("folder", ["answers", "artifacts", "models"])
def test_garbage_is_as_if_it_were_not_there(cache: Cache, folder: str, data: bytes) -> None:
    said = Answer(artifact(), Match())
    for once in range(2):
        cache.store_answer(REQUEST, said)
        cache.store_model(MODEL_SEEN)
        assert said_of(cache.lookup(REQUEST)) == said and cache.model(MODEL) == MODEL_SEEN
        if once == 0:
            for path in files(cache, folder):
                path.write_bytes(data)
            assert (cache.lookup(REQUEST) is None) == (folder != "models")
            assert (cache.best_match(REQUEST) is None) == (folder == "artifacts")
            assert (cache.model(MODEL) is None) == (folder == "models")
            assert list(entries(cache)) == []


@given(st.data())
def test_a_changed_byte_never_makes_another_program_fit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cache = opened(tmp_path_factory.mktemp("cache"))
    said = Answer(artifact(has=Attributes("+", "-", 104)), Match())
    request = Request(GPU, Constraints("+", "-", 104))
    with pytest.MonkeyPatch.context() as patch:
        # The same bytes in each run: a record has the time at which it was confirmed.
        patch.setattr("mxr.cache.partition.time", SimpleNamespace(time=lambda: 1e9))
        cache.store_answer(request, said)
    path = data.draw(st.sampled_from(files(cache, "artifacts") + files(cache, "answers")))
    text = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(32, 126))
    path.write_bytes(text)
    for found in map(said_of, (cache.lookup(request), cache.best_match(request))):
        if found is not None:
            assert (found.artifact.key, found.artifact.id, found.artifact.sha256) == (
                GPU,
                said.artifact.id,
                said.artifact.sha256,
            )
            assert found.artifact.manifest == said.artifact.manifest


@pytest.mark.parametrize(
    "change",
    [
        {"match": {"relaxed": [], "assumed": "ab"}},
        {"match": {"relaxed": 5, "assumed": {}}},
        {"match": []},
        {"id": "../../../etc/passwd"},
        {"id": "\0"},
        {"id": "x" * 5000},
        {"digest": "*"},
    ],
    ids=ascii,
)
def test_an_answer_with_odd_fields_is_none(cache: Cache, change: dict[str, object]) -> None:
    cache.store_answer(REQUEST, Answer(artifact(), Match()))
    (path,) = files(cache, "answers")
    row = codec.parse(path.read_bytes(), "the answer")
    path.write_text(codec.canonical(row | change))
    assert cache.lookup(REQUEST) is None


@pytest.mark.parametrize(
    "wrong",
    [
        artifact(key=replace(GPU, migraphx="2.16")),
        replace(artifact(), id="0" * 64),
        replace(artifact(), manifest=None),
        replace(artifact(), digest=replace(GPU, arch="gfx908").digest),
    ],
    ids=["another key", "another id", "no manifest", "another digest"],
)
def test_an_artifact_that_is_not_what_its_place_says(cache: Cache, wrong: Artifact) -> None:
    right = artifact()
    cache.store_answer(REQUEST, Answer(right, Match()))
    (path,) = files(cache, "artifacts")
    row = codec.parse(path.read_bytes(), "the record")
    path.write_text(codec.canonical(row | {"artifact": codec.encode(wrong)}))
    assert cache.lookup(REQUEST) is None and cache.best_match(REQUEST) is None


def test_an_answer_copied_from_another_request(cache: Cache) -> None:
    other = Request(replace(GPU, arch="gfx908"))
    cache.store_answer(other, Answer(artifact(key=other.key), Match()))
    (path,) = files(cache, "answers")
    cache.store_answer(REQUEST, Answer(artifact(), Match()))
    (mine,) = set(files(cache, "answers")) - {path}
    mine.write_bytes(path.read_bytes())
    assert cache.lookup(REQUEST) is None


@pytest.mark.parametrize("place", ["cache", "cache/v2"])
def test_a_cache_that_can_be_neither_read_nor_written(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(b"a file where the folder should be")
    cache = opened(tmp_path / "cache")
    calls: list[Callable[[], object]] = [
        lambda: cache.lookup(REQUEST),
        lambda: cache.best_match(REQUEST),
        lambda: cache.model(MODEL),
        lambda: cache.store_model(MODEL_SEEN),
        lambda: list(entries(cache)),
        lambda: list(verify_programs(cache)),
        lambda: cache.intact_or_removed("ab" * 32),
    ]
    assert [bool(call()) for call in calls] == [False] * len(calls)
    with cache.download_lock("ab" * 32):
        pass
    with pytest.raises(UsageError):
        cache.store_answer(REQUEST, Answer(artifact(), Match()))


def test_entries_are_programs_and_what_is_known_of_them(cache: Cache) -> None:
    said = artifact()
    cache.store_answer(REQUEST, Answer(said, Match()))
    known, unknown = put(cache, b"program"), put(cache, b"nobody knows")
    disk.partial_name(known.parent).write_bytes(b"half")
    found = {each.path: each.record and each.record.artifact for each in entries(cache)}
    assert found == {known: said, unknown: None}


def test_two_at_once(tmp_path: Path) -> None:
    said = [Answer(artifact(bytes([n])), Match()) for n in range(2)]
    problems: list[BaseException] = []
    inside: list[int] = []

    def work(number: int) -> None:
        cache = opened(tmp_path)
        try:
            for _ in range(25):
                with cache.download_lock("ab" * 32):
                    inside.append(number)
                cache.store_answer(REQUEST, said[number])
                assert said_of(cache.lookup(REQUEST)) in said
                assert cache.best_match(REQUEST) is not None
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and len(inside) == 50
    assert [path for path in tmp_path.rglob("*") if disk.PARTIAL in path.name] == []


def test_another_registry_at_the_url_is_not_taken_by_itself(tmp_path: Path) -> None:
    """Its data may not be mounted: every host would lose its programs."""
    other = "22222222-2222-4222-8222-222222222222"
    empty = opened(tmp_path)
    empty.note_registry(ONE)
    Cache(tmp_path).note_registry(other)
    Cache(tmp_path).note_registry(ONE)
    known = opened(tmp_path)
    put(known, b"program")
    known.store_answer(REQUEST, Answer(artifact(), Match()))
    for _ in range(2):
        cache = Cache(tmp_path)
        with pytest.raises(OtherRegistryError, match=f"is registry {other}, and not {ONE} as before"):
            cache.note_registry(other)
        assert cache.lookup(REQUEST) is not None, "it goes on serving what was verified"
    Cache(tmp_path, CachePolicy(registry_id=other)).note_registry(other)
    assert Cache(tmp_path).lookup(REQUEST) is None
    with pytest.raises(OtherRegistryError):
        Cache(tmp_path, CachePolicy(registry_id=ONE)).note_registry(other)
    cache = Cache(tmp_path)
    cache.accept_registry(ONE)
    assert Cache(tmp_path).lookup(REQUEST) is not None
