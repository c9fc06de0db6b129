"""The text of a lock file: equal locks have equal texts, diffs are minimal, and invalid input is rejected."""

from __future__ import annotations

import difflib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU, constraints, keys

from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.errors import DamagedError, MxrError, UsageError
from mxr.plans.lockfile import EMPTY, LockEntry, LockFile, load_lock, lock_text, parse_lock


def entry(number: int = 1, *, model: str = "models/a.onnx", key: Key = GPU, **more: Any) -> LockEntry:
    request = Request(key, more.pop("constraints", Constraints()))
    return LockEntry(model, more.pop("consumer", "python"), request, f"{number:064x}", f"{number + 1000:064x}", **more)


def batch(size: int, *, arch: str = "gfx90a") -> Key:
    return replace(GPU, inputs=(("x", (size, 3, 224, 224)),), arch=arch)


paths = st.builds("{}/{}.onnx".format, st.sampled_from(["models", ".", "../up"]), st.sampled_from(["a", "b.c", "ü"]))


@st.composite
def entries(draw: st.DrawFn) -> LockEntry:
    key, wanted = draw(keys), draw(constraints())
    try:
        request = Request(key, wanted)
    except UsageError:
        request = Request(key)
    shas = st.integers(0, 2**256 - 1).map("{:064x}".format)
    model = draw(st.one_of(paths, st.just(key.model)))
    return LockEntry(model, draw(st.sampled_from(["python", "ort"])), request, draw(shas), draw(shas))


def distinct(found: list[LockEntry]) -> list[LockEntry]:
    return list({each.request: each for each in found}.values())


@given(st.lists(entries(), max_size=5).map(distinct), st.randoms())
def test_a_lock_round_trips_through_its_text_in_any_order(found: list[LockEntry], chance: random.Random) -> None:
    text = lock_text(LockFile(tuple(found)))
    assert lock_text(parse_lock(text)) == text
    assert set(parse_lock(text).entries) == set(found)
    chance.shuffle(found)
    assert lock_text(LockFile(tuple(found))) == text
    assert json.loads(text)["version"] == 1


def test_the_text_has_one_field_per_line() -> None:
    text = lock_text(LockFile((entry(), entry(2, key=batch(16), constraints=Constraints(num_cu=104, allow=("cu",))))))
    assert text.endswith("}\n") and "\t" not in text
    assert '   "constraints": {\n    "num_cu": 104,\n    "allow": ["cu"]\n   },' in text
    assert '     "x": [16, 3, 224, 224]\n' in text
    assert max(map(len, text.splitlines())) < 100
    assert lock_text(LockFile(())) == EMPTY and parse_lock(EMPTY) == LockFile(())


def changed(before: LockFile, after: LockFile) -> tuple[list[str], list[str]]:
    rows = list(difflib.unified_diff(lock_text(before).splitlines(), lock_text(after).splitlines(), n=0, lineterm=""))[
        2:
    ]
    return [row for row in rows if row[0] == "-"], [row for row in rows if row[0] == "+"]


def test_another_artifact_changes_two_lines() -> None:
    lock = LockFile(tuple(entry(size, key=batch(size)) for size in (1, 2, 4, 8, 16)))
    one = lock.entries[2]
    after = LockFile(
        tuple(replace(each, id="e" * 64, sha256="f" * 64) if each == one else each for each in lock.entries)
    )
    gone, come = changed(lock, after)
    assert [row.split('"')[1] for row in gone] == [row.split('"')[1] for row in come] == ["id", "sha256"]


def test_a_new_entry_adds_only_its_own_lines() -> None:
    lock = LockFile(tuple(entry(size, key=batch(size)) for size in (1, 4, 8)))
    for model in ("a.onnx", "models/a.onnx", "zzz.onnx"):
        gone, come = changed(lock, lock.merged([entry(9, model=model, key=batch(2))]))
        assert len(come) - len(gone) == lock_text(LockFile((entry(9, key=batch(2)),))).count("\n") - 5
        assert len(gone) <= 2


def test_adding_replaces_the_entry_of_the_same_model_and_request() -> None:
    lock = LockFile((entry(1), entry(2, key=batch(2))))
    again = lock.merged([entry(3), entry(4, model="other.onnx", key=batch(4))])
    assert set(again.entries) == {entry(3), entry(2, key=batch(2)), entry(4, model="other.onnx", key=batch(4))}


def test_one_request_cannot_have_two_artifacts() -> None:
    with pytest.raises(UsageError, match="two artifacts"):
        LockFile((entry(1), entry(2, model="models/same_content.onnx")))
    both = LockFile((entry(1), entry(1, model="models/same_content.onnx")))
    assert len(both.entries) == 2 and both.ids == (entry(1).id,)


def test_one_request_for_two_consumers_gives_two_files() -> None:
    one = entry(1, key=batch(1))
    lock = LockFile((one, replace(one, consumer="amdinfer")))
    assert parse_lock(lock_text(lock)) == lock and len(lock.ids) == 1
    assert lock.file_names() == ("a_b1.mxr", "a.mxr")
    assert lock.entries_serving(one.request)[0].id == one.id


def test_the_entry_of_the_same_request_precedes_those_of_its_key() -> None:
    wide, narrow = entry(1, constraints=Constraints(num_cu=110)), entry(2, constraints=Constraints(num_cu=104))
    lock = LockFile((wide, narrow, entry(3, key=batch(2))))
    assert lock.entries_serving(wide.request) == (wide,)
    assert set(lock.entries_serving(Request(GPU, Constraints(num_cu=60)))) == {wide, narrow}
    assert lock.entries_serving(Request(batch(64))) == ()
    nearest = lock.nearest(batch(64))
    assert [row["field"] for each in nearest for row in each["differences"]] == ["inputs.x"] * 3


def test_a_generic_program_is_found_for_its_family() -> None:
    generic = entry(1, key=batch(1, arch="gfx11-generic"))
    assert LockFile((generic,)).entries_serving(Request(batch(1, arch="gfx1100"))) == (generic,)


def test_file_names_distinguish_programs() -> None:
    one, two = entry(1, key=batch(1)), entry(2, key=batch(2))
    assert LockFile((one,)).file_names() == ("a.mxr",)
    assert LockFile((one, two)).file_names() == ("a_b1.mxr", "a_b2.mxr")
    other = entry(3, model="models/a_b1.onnx", key=replace(batch(1), model="sha256:" + "e" * 64))
    assert LockFile((one, two, other)).file_names() == (
        f"a_b1_{one.id[:12]}.mxr",
        "a_b2.mxr",
        f"a_b1_{other.id[:12]}.mxr",
    )
    amd = [replace(each, consumer="amdinfer") for each in (one, two)]
    assert LockFile(tuple(amd)).file_names() == ("a_b1.mxr", "a_b2.mxr")
    archs = [
        replace(entry(n, key=batch(1, arch=arch)), consumer="amdinfer") for n, arch in ((1, "gfx908"), (2, "gfx90a"))
    ]
    with pytest.raises(UsageError, match=r"a different file a_b1.mxr in one folder"):
        LockFile(tuple(archs)).file_names(placing=True)
    by_hash = entry(1, model=GPU.model)
    assert LockFile((by_hash,)).file_names() == (f"{GPU.model[7:23]}.mxr",)
    same = LockFile((one, replace(one, request=Request(batch(1), Constraints(num_cu=104)))))
    assert same.file_names() == ("a.mxr", "a.mxr")


def broken(change: Any) -> str:
    document = json.loads(lock_text(LockFile((entry(1), entry(2, model="models/b.onnx", key=batch(2))))))
    change(document)
    return json.dumps(document)


@for_each(
    [
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(more=1), "version and entries"),
        (lambda d: d.pop("entries"), "version and entries"),
        (lambda d: d.update(entries={}), "entries"),
        (lambda d: d["entries"][1].update(odd=1), r"entries\[1\] \(models/b.onnx\): odd: unknown field"),
        (lambda d: d["entries"][1].pop("id"), r"entries\[1\] \(models/b.onnx\): id: this field is missing"),
        (lambda d: d["entries"][1].update(id="abc"), r"entries\[1\].*id: expected 64 lower-case hex"),
        (lambda d: d["entries"][1]["key"].update(arch="gfx908"), r"entries\[1\].*digest: expected the digest"),
        (lambda d: d["entries"][1]["key"].update(v=1), r"entries\[1\].*key version 2"),
        (lambda d: d["entries"][1]["key"].update(arch="sm_90"), r"entries\[1\].*arch"),
        (lambda d: d["entries"][1]["constraints"].update(num_cu="104"), r"entries\[1\].*num_cu: expected an integer"),
        (lambda d: d["entries"][1]["constraints"].update(rocm_patch="6.1.0"), r"entries\[1\].*rocm_patch"),
        (lambda d: d["entries"][1].update(consumer="nobody"), r"entries\[1\].*nobody"),
        (lambda d: d["entries"][1].update(model=".."), r"entries\[1\] \(\.\.\): model"),
        (lambda d: d["entries"][1].update(model="a\nb"), r"entries\[1\].*model"),
        (lambda d: d["entries"][1].update(model="sha256:" + "0" * 64), r"entries\[1\].*the model of the key"),
        (lambda d: d["entries"].append({**d["entries"][0], "id": "c" * 64}), "two artifacts"),
        (lambda d: d["entries"].append([]), r"entries\[2\]: the document: expected an object"),
    ]
)
def test_a_lock_is_read_strictly_and_the_error_names_the_entry(change: Any, said: str) -> None:
    with pytest.raises(DamagedError, match=said) as caught:
        parse_lock(broken(change), "mxr.lock")
    assert caught.value.message.startswith("mxr.lock is not a valid lock file: ")
    assert caught.value.exit == 65 and "mxr lock MODEL" in caught.value.hint


def test_a_missing_lock_file_has_a_hint_how_to_write_one(tmp_path: Path) -> None:
    for path in (tmp_path / "mxr.lock", tmp_path):
        with pytest.raises(UsageError, match="There is no lock") as caught:
            load_lock(path)
        assert "mxr lock" in caught.value.hint


@for_each(["", "{", "[]", "null", "NaN", '{"version":1,"version":1}', "\0", "[" * 100_000])
def test_a_file_that_is_not_a_lock_is_refused(text: str) -> None:
    with pytest.raises(DamagedError):
        parse_lock(text)


def test_changed_bytes_raise_only_mxr_errors() -> None:
    data = lock_text(LockFile((entry(1, constraints=Constraints(num_cu=104)), entry(2, key=batch(2))))).encode()
    chance = random.Random(5)
    refused = 0
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(changed))
            what = chance.randrange(4)
            if what == 0:
                changed[at] ^= 1 << chance.randrange(8)
            elif what == 1:
                del changed[at : at + chance.randint(1, 40)]
            elif what == 2:
                changed[at:at] = chance.choice([b"{", b"[", b'"', b"1e999", b"-1", b"null", b"\xff", b"\\ud800"])
            else:
                changed[at:] = b""
            changed = changed or bytearray(b" ")
        try:
            assert lock_text(parse_lock(bytes(changed)))
        except MxrError as problem:
            assert isinstance(problem, DamagedError)
            refused += 1
    assert refused > 2000
