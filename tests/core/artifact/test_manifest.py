"""The manifest: names that stay in their folder, sums that add up, ids that do not depend on cutting."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.artifact.limits import BYTES_PER_BLOB, FREE_BLOBS, MAX_BLOBS, MAX_FILES
from mxr.artifact.manifest import (
    EMPTY,
    Blob,
    File,
    Manifest,
    artifact_id,
    check_name,
    check_sha256,
    split_file,
)
from mxr.errors import UsageError
from mxr.util.codec import HUGE, decode

DIGEST = "d1" * 32


def cut(name: str, data: bytes, *sizes: int) -> File:
    """A file of these bytes, cut into blobs of these sizes and a last one for what is left."""
    blobs, at = [], 0
    for size in (*sizes, len(data)):
        part = data[at : at + size]
        if part:
            blobs.append(Blob(sha256(part).hexdigest(), len(part)))
        at += len(part)
    return File(name, len(data), sha256(data).hexdigest(), tuple(blobs))


@for_each(
    [
        *(
            "../x",
            "..",
            "a/..",
            "a/../b",
            "a/b/../../..",
            "./x",
            ".",
            "a/./b",
            "a/.",
            "/x",
            "/",
            "//x",
            "x/",
            "x//y",
            "",
        ),
        *("C:x", "C:\\x", "c:/x", "a\\b", "..\\x", "\\x", "\\\\host\\share", "a\0b", "\0", "a\nb", "\x1b[2J", "a\x7f"),
        *("\ud800", "a/\udfff", "n" * 256, "é" * 128, "a/" * 500 + "b", "d/" + "n" * 256),
    ]
)
def test_names_that_leave_the_folder_or_fit_no_disk(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        check_name(name)
    with pytest.raises(UsageError):
        decode(Manifest, {"files": [{"name": name, "size": 0, "sha256": EMPTY, "blobs": []}]})


@for_each(
    [
        "x",
        "model.mxr",
        "a/b/c.onnx",
        "...",
        "..x",
        "x..",
        ".hidden",
        "a b",
        "é" * 127,
        "n" * 255,
        "模型.mxr",
        "-rf",
        "a/..b",
    ]
)
def test_names_that_stay(name: str) -> None:
    assert check_name(name) == name
    assert Manifest((cut(name, b""),)).files[0].name == name


@given(st.text(st.sampled_from("a./\\:\0 C\n\ud800é"), max_size=12))
def test_a_name_that_is_taken_lands_below_its_folder(name: str) -> None:
    try:
        check_name(name)
    except UsageError:
        return
    inner: list[str] = []
    for part in name.replace("\\", "/").split("/"):
        assert part not in ("", ".", ".."), "no part may stand still, go up, or start over"
        inner.append(part)
    assert inner and ":" not in inner[0][1:2]
    assert name.encode()


@pytest.mark.parametrize(
    "names",
    [("x", "x"), ("a", "a/b"), ("a/b/c", "a"), ("a/b/c", "x", "a/b"), ("a/b", "a/b/c/d")],
)
def test_no_two_files_in_one_place(names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="none of them a folder of another"):
        Manifest(tuple(cut(name, name.encode()) for name in names))


def test_names_that_only_begin_alike_are_two() -> None:
    names = ("a", "a.b", "a-", "ab/c", "b/a", "b/ab")
    assert [file.name for file in Manifest(tuple(cut(name, b"") for name in reversed(names))).files] == sorted(names)


@given(st.binary(min_size=1, max_size=64), st.lists(st.integers(1, 20), max_size=5))
def test_cutting_changes_no_id(data: bytes, sizes: list[int]) -> None:
    one, other = Manifest((cut("m", data),)), Manifest((cut("m", data, *sizes),))
    assert artifact_id(DIGEST, one.files) == artifact_id(DIGEST, other.files)
    assert (one.sha256, one.size) == (other.sha256, other.size) == (sha256(data).hexdigest(), len(data))
    assert decode(Manifest, json.loads(json.dumps(other.to_json()))) == other
    assert sum(blob.size for blob in other.files[0].blobs) == len(data)


def test_the_id_is_the_one_written_down() -> None:
    file = cut("model.mxr", b"program", 3)
    text = f'{{"digest":"{DIGEST}","files":[["model.mxr","{sha256(b"program").hexdigest()}"]],"v":1}}'
    assert (
        artifact_id(DIGEST, (file,))
        == sha256(text.encode()).hexdigest()
        == "f7ed8e3d6e8aa55b25a157b0261dc85642ee2d420c4921483e25cccefee6c452"
    )


def test_what_changes_an_id() -> None:
    files = (cut("a", b"1"), cut("b", b"2"))
    assert artifact_id(DIGEST, files) == artifact_id(DIGEST, files[::-1]) == artifact_id(DIGEST, Manifest(files).files)
    others = [
        artifact_id(DIGEST, files),
        artifact_id("e1" * 32, files),
        artifact_id(DIGEST, files[:1]),
        artifact_id(DIGEST, (cut("a", b"2"), cut("b", b"1"))),
        artifact_id(DIGEST, (cut("a", b"1"), cut("c", b"2"))),
    ]
    assert len(set(others)) == len(others)


def test_the_sha256_of_several_files_is_that_of_the_list() -> None:
    files = (cut("b", b"2"), cut("a", b"1"))
    rows = [["a", sha256(b"1").hexdigest()], ["b", sha256(b"2").hexdigest()]]
    text = json.dumps(rows, separators=(",", ":"))
    assert Manifest(files).sha256 == sha256(text.encode()).hexdigest()


def test_each_blob_is_named_once_in_order() -> None:
    manifest = Manifest((cut("a", b"xxyyxx", 2, 2), cut("b", b"yyzz", 2)))
    assert list(manifest.blobs()) == [Blob(sha256(part).hexdigest(), 2) for part in (b"xx", b"yy", b"zz")]


def test_one_sha256_has_one_size() -> None:
    blob = cut("a", b"xx").blobs[0]
    liar = File("b", 5, DIGEST, (Blob(blob.sha256, 3), blob))
    with pytest.raises(UsageError, match="one size"):
        list(Manifest((liar,)).blobs())


GOOD: dict[str, Any] = Manifest((cut("m", b"program", 3),)).to_json()


@for_each(
    [
        *({"size": size} for size in (6, 8, -1, 0, "7", 7.0, True, HUGE + 1, 10**400, None)),
        *({"sha256": sha} for sha in ("", "ab", "AB" * 32, "gg" * 32, "ab" * 32 + "\n", None, EMPTY[:-1])),
        *({"blobs": blobs} for blobs in ([], None, {}, [{}], [{"sha256": DIGEST}], ["x"])),
        {"blobs": [{"sha256": DIGEST, "size": 7}]},
        {"blobs": [{"sha256": DIGEST, "size": 7}, {"sha256": EMPTY, "size": 0}]},
        {"blobs": [{"sha256": DIGEST, "size": 8}, {"sha256": DIGEST, "size": -1}]},
        {"blobs": [{"sha256": DIGEST, "size": 7, "url": "http://elsewhere"}]},
        {"mode": 511},
        {"name": None},
        {"name": 1},
    ]
)
def test_files_that_are_refused(change: dict[str, Any]) -> None:
    assert decode(Manifest, GOOD).to_json() == GOOD
    for lenient in (False, True):  # a reader that passes over new fields of a reply does not do so here
        with pytest.raises(UsageError) as caught:
            decode(Manifest, GOOD | {"files": [GOOD["files"][0] | change]}, lenient=lenient)
        assert len(caught.value.message) < 400


@for_each(
    [
        *(None, [], "x", {}, {"files": []}, {"files": None}, {"files": {}}, GOOD | {"v": 2}, GOOD | {"v": "1"}),
        *(GOOD | {"v": None}, GOOD | {"links": []}, {"files": GOOD["files"] * 2}),
    ]
)
def test_documents_that_are_refused(document: object) -> None:
    for lenient in (False, True):
        with pytest.raises(UsageError):
            decode(Manifest, document, lenient=lenient)


def test_an_empty_file_is_a_file_without_blobs() -> None:
    assert cut("e", b"") == File("e", 0, EMPTY, ())
    with pytest.raises(UsageError):
        File("e", 0, DIGEST, ())


def test_there_is_a_most_of_files_and_blobs() -> None:
    Manifest(tuple(cut(str(n), b"") for n in range(MAX_FILES)))
    with pytest.raises(UsageError, match=f"1 to {MAX_FILES} files"):
        Manifest(tuple(cut(str(n), b"") for n in range(MAX_FILES + 1)))
    with pytest.raises(UsageError, match=f"at most {MAX_BLOBS} blobs"):
        size = (MAX_BLOBS + 1) * BYTES_PER_BLOB
        Manifest((File("m", size, DIGEST, (Blob(DIGEST, BYTES_PER_BLOB),) * (MAX_BLOBS + 1)),))


def test_a_small_file_has_few_blobs() -> None:
    """One in 19,000 blobs of a byte had a manifest of 1.8 MB."""
    for size, most in ((FREE_BLOBS + 1, FREE_BLOBS), (4 * BYTES_PER_BLOB, FREE_BLOBS + 4)):
        for count in (most, most + 1):
            blobs = (*(Blob(DIGEST, 1),) * (count - 1), Blob(DIGEST, size - count + 1))
            if count == most:
                File("m", size, "e1" * 32, blobs)
                continue
            with pytest.raises(UsageError, match=f"at most {FREE_BLOBS} blobs, and one more for each 64 KiB"):
                File("m", size, "e1" * 32, blobs)


@pytest.mark.parametrize("value", ["", "ab", "A" * 64, "g" * 64, "a" * 63 + "\n", "a" * 65, "٠" * 64])
def test_what_is_no_sha256(value: str) -> None:
    with pytest.raises(UsageError, match="asked: expected 64"):
        check_sha256(value, "asked")
    assert check_sha256(DIGEST) == DIGEST


DATA = bytes(range(200))


@pytest.mark.parametrize("sizes", [(), (1,), (50, 50), (199,), (1, 2, 3, 4, 5)])
def test_ranges_of_a_file_are_found_in_its_blobs(sizes: tuple[int, ...]) -> None:
    file = cut("x", DATA, *sizes)
    stored = {blob.sha256: DATA[offset : offset + blob.size] for offset, blob in file.spans()}
    assert all(sha256(data).hexdigest() == name for name, data in stored.items())
    for start in range(0, 201, 7):
        for length in (0, 1, 3, 50, 500):
            parts = list(file.spans().ranges(start, length))
            found = b"".join(stored[each.blob.sha256][each.offset : each.offset + each.length] for each in parts)
            assert found == DATA[start : start + length]
            assert all(each.length > 0 for each in parts)
    assert file.spans().size == file.size


def test_a_file_without_bytes_has_no_ranges() -> None:
    spans = File("x", 0, EMPTY, ()).spans()
    assert list(spans) == list(spans.ranges(0, 10)) == [] and spans.size == 0


def test_a_file_is_split_at_the_given_offsets(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    assert split_file(path, "x", (0, 50, 120, 200)) == cut("x", DATA, 50, 70)
    for points in ((0, 199), (0, 50, 201), (0, 50, 190)):
        with pytest.raises(UsageError, match="changed while it was being read"):
            split_file(path, "x", points)
    path.write_bytes(b"")
    assert split_file(path, "x", (0,)) == File("x", 0, EMPTY, ())
