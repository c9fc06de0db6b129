"""Bundles of real programs, exported from a cache and imported: complete, or refused before anything is written."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from core.bundle.tars import packed
from paths import DATA

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest
from mxr.artifact.records import ModelInput
from mxr.bundle import exporter, importer, oci
from mxr.bundle.contents import BundleRecord, lay_out, titled
from mxr.bundle.image_layout import TarLayout, open_layout
from mxr.cache.store import Cache
from mxr.client.registry import Client
from mxr.errors import DamagedError, MismatchError, MxrError, UsageError, WouldOverwriteError
from mxr.plans.lockfile import LockEntry, LockFile, lock_text
from mxr.protocol.artifacts import ModelClaim
from mxr.settings import Settings
from mxr.util.codec import Timestamp
from mxr.workflows.push import split_program

REAL = DATA / "mxr_real"
MODEL = "sha256:" + "ab" * 32
STATED = ModelClaim("convnet.onnx", (ModelInput("x", "float", ("N", 3, 32, 32)),))
NOBODY = Client(Settings(registry="http://127.0.0.1:9"))
"""A registry that does not answer: every call of it fails."""


def key(batch: int, precision: str) -> Key:
    words = () if precision == "fp32" else (precision,)
    return Key(model=MODEL, kind="ref", migraphx="2.16", inputs=(("x", (batch, 3, 32, 32)),), precision=words)


def record(cache: Cache, batch: int, precision: str) -> BundleRecord:
    """The bundle record of a real program that is in the cache."""
    path = REAL / f"convnet_b{batch}_{precision}_ref.mxr"
    file = split_program(path, "model.mxr")
    final = cache.file_path(file.sha256)
    final.parent.mkdir(parents=True, exist_ok=True)
    final.write_bytes(path.read_bytes())
    return BundleRecord(
        key(batch, precision), Manifest((file,)), Attributes(), {"tool": "test"}, Timestamp(1_700_000_000.25), STATED
    )


def entry(of: BundleRecord, **constraints: Any) -> LockEntry:
    return LockEntry(
        "models/convnet.onnx", "python", Request(of.key, Constraints(**constraints)), of.id, of.manifest.sha256
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def records(cache: Cache) -> list[BundleRecord]:
    return [record(cache, 1, "fp32"), record(cache, 4, "fp32"), record(cache, 4, "fp16")]


@pytest.fixture(scope="module")
def lock(records: list[BundleRecord]) -> LockFile:
    return LockFile(tuple(entry(each) for each in records))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, records: list[BundleRecord], lock: LockFile, cache: Cache) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "bundle.tar"
    exporter.export(records, lock, path, cache, NOBODY)
    return path


def check(path: Path) -> importer.BundleContents:
    with closing(open_layout(path)) as layout:
        return importer.check_bundle(layout)


def test_a_written_bundle_can_be_read(bundle: Path, records: list[BundleRecord], lock: LockFile) -> None:
    found = check(bundle)
    assert found.lock == lock
    assert found.records == tuple(sorted(records, key=lambda each: each.id))


def test_the_same_lock_makes_the_same_bytes(
    bundle: Path, records: list[BundleRecord], lock: LockFile, cache: Cache, tmp_path: Path
) -> None:
    done = exporter.export(records[::-1], lock, tmp_path / "again.tar", cache, NOBODY)
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()
    assert done.size == bundle.stat().st_size
    assert [each.name for each in tmp_path.iterdir()] == ["again.tar"]


def test_shared_weights_occur_once(bundle: Path, records: list[BundleRecord]) -> None:
    one, four, _ = (dict.fromkeys(each.manifest.blobs()) for each in records)
    shared = max(set(one) & set(four), key=lambda blob: blob.size)
    assert shared.size > 64 << 10
    with tarfile.open(bundle) as tar:
        names = tar.getnames()
    assert len(names) == len(set(names))
    assert bundle.stat().st_size < sum(each.manifest.size for each in records) - shared.size


def test_it_is_an_oci_image_layout(bundle: Path, records: list[BundleRecord], lock: LockFile) -> None:
    with tarfile.open(bundle) as tar:
        held = {name: tar.extractfile(name).read() for name in tar.getnames()}

    def follow(row: dict[str, Any]) -> dict[str, Any]:
        algorithm, _, digest = row["digest"].partition(":")
        data = held[f"blobs/{algorithm}/{digest}"]
        assert (sha256(data).hexdigest(), len(data)) == (digest, row["size"])
        return json.loads(data)

    assert json.loads(held["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    top = json.loads(held["index.json"])
    assert (top["schemaVersion"], top["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    (row,) = top["manifests"]
    assert row["annotations"] == {"org.opencontainers.image.ref.name": "mxr"}
    manifests = [follow(each) for each in follow(row)["manifests"]]
    kinds = [each["artifactType"] for each in manifests]
    assert kinds == ["application/vnd.mxr.lock.v1", *["application/vnd.mxr.artifact.v1"] * 3]
    assert manifests[0]["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert held["blobs/sha256/" + manifests[0]["layers"][0]["digest"][7:]] == lock_text(lock).encode()
    for each, of in zip(manifests[1:], sorted(records, key=lambda each: each.id), strict=True):
        assert each["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
        assert follow(each["config"])["key"] == of.key.to_json()
        parts = [held["blobs/sha256/" + layer["digest"][7:]] for layer in each["layers"]]
        assert sha256(b"".join(parts)).hexdigest() == of.manifest.sha256
        titles = [layer["annotations"]["org.opencontainers.image.title"] for layer in each["layers"]]
        assert len(set(titles)) == len(titles) and titles == [title for title, _ in titled(of.manifest)]


def test_a_file_in_one_blob_has_its_own_name(records: list[BundleRecord]) -> None:
    file = records[2].manifest.files[0]
    whole = replace(file, blobs=(replace(file.blobs[0], sha256=file.sha256, size=file.size),))
    assert [title for title, _ in titled(Manifest((whole,)))] == ["model.mxr"]


def test_a_cache_imports_a_bundle_and_serves_from_it(
    bundle: Path, records: list[BundleRecord], lock: LockFile, tmp_path: Path
) -> None:
    other = Cache(tmp_path / "other")
    with closing(open_layout(bundle)) as layout:
        contents = importer.check_bundle(layout)
        first = importer.into_cache(layout, contents, other)
        again = importer.into_cache(layout, contents, other)
    assert [each.new for each in first] == [True] * 3 and [each.new for each in again] == [False] * 3
    for each in lock.entries:
        found = other.lookup(each.request)
        assert found is not None and found.record is not None and found.record.age is None
        answer = found.answer
        assert answer is not None and answer.match.exact and answer.artifact.id == each.id
        assert other.intact_or_removed(each.sha256)
    model = other.model(MODEL)
    assert model is not None and (model.name, model.inputs) == (STATED.name, STATED.inputs)


def test_a_folder_is_read_like_the_tar(bundle: Path, tmp_path: Path) -> None:
    with tarfile.open(bundle) as tar:
        tar.extractall(tmp_path / "layout", filter="data")
    assert check(tmp_path / "layout") == check(bundle)
    blob = next((tmp_path / "layout" / "blobs" / "sha256").iterdir())
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match="not a plain file"):
        check(tmp_path / "layout")


def test_a_nested_index_is_followed(bundle: Path, tmp_path: Path) -> None:
    """A mirroring registry wraps the index of the bundle in another one."""
    with closing(TarLayout(bundle)) as layout:
        files = {name: layout.read_at(name, 0, size) for name, size in layout.sizes().items()}
    files["blobs/sha256/" + sha256(files["index.json"]).hexdigest()] = files["index.json"]
    files["index.json"] = oci.index([oci.descriptor(oci.INDEX, files["index.json"])])
    assert check(repacked(files, tmp_path)) == check(bundle)
    for _ in range(3):
        files["blobs/sha256/" + sha256(files["index.json"]).hexdigest()] = files["index.json"]
        files["index.json"] = oci.index([oci.descriptor(oci.INDEX, files["index.json"])])
    with pytest.raises(DamagedError, match="nested too deeply"):
        check(repacked(files, tmp_path))


def repacked(files: dict[str, bytes], folder: Path) -> Path:
    path = folder / "repacked.tar"
    path.write_bytes(packed(*((name, tarfile.REGTYPE, data) for name, data in files.items())))
    return path


def told(change: Callable[[dict[str, Any]], None], of: BundleRecord) -> dict[str, bytes]:
    """A layout of one artifact with a changed record and correct sha256s."""
    layout = lay_out([of], None)
    documents = dict(layout.documents)
    (name,) = [name for name, data in documents.items() if b'"provenance"' in data]
    record = json.loads(documents.pop(name))
    change(record)
    config = json.dumps(record).encode()
    layers = [
        oci.named(oci.BLOB, each["sha256"], each["size"])
        for file in record["manifest"]["files"]
        for each in file["blobs"]
    ]
    data = oci.manifest(oci.ARTIFACT, oci.descriptor(oci.ARTIFACT_CONFIG, config), layers)
    kept = {"oci-layout": oci.LAYOUT, "index.json": oci.index([oci.descriptor(oci.MANIFEST, data)])}
    for each in (config, data):
        kept["blobs/sha256/" + sha256(each).hexdigest()] = each
    whole = (REAL / f"convnet_b{of.key.inputs[0][1][0]}_{'+'.join(of.key.precision) or 'fp32'}_ref.mxr").read_bytes()
    at = 0
    for blob in of.manifest.files[0].blobs:
        kept["blobs/sha256/" + blob.sha256] = whole[at : at + blob.size]
        at += blob.size
    return kept


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda d: d.update(odd=1), DamagedError, "unknown field"),
        (lambda d: d.update(v=2), DamagedError, "version 1"),
        (lambda d: d["key"].update(v=1), DamagedError, "key version 2"),
        (lambda d: d["key"].update(migraphx="2.15"), MismatchError, "migraphx"),
        (lambda d: d["key"]["inputs"].update(x=[8, 3, 32, 32]), MismatchError, "inputs.x"),
        (lambda d: d["key"].update(kind="gpu", arch="gfx908", rocm="7.2"), MismatchError, "kind|arch"),
        (lambda d: d["attributes"].update(num_cu=-1), DamagedError, "num_cu"),
        (lambda d: d["model"].update(model="sha256:" + "0" * 64), DamagedError, "model.model"),
        (lambda d: d["manifest"]["files"][0].update(name="../model.mxr"), DamagedError, "name"),
        (
            lambda d: d["manifest"]["files"][0].update(sha256="0" * 64),
            DamagedError,
            "content of file .* does not match its sha256",
        ),
        (lambda d: d["manifest"]["files"][0].update(size=1), DamagedError, "do not add up"),
        (
            lambda d: d["manifest"]["files"][0]["blobs"].reverse(),
            DamagedError,
            "content of file .* does not match its sha256",
        ),
        (lambda d: d.update(provenance={"a": "x" * 20_000}), DamagedError, "provenance"),
        (lambda d: d.update(published_at="now"), DamagedError, "published_at"),
    ],
)
def test_a_false_record_is_refused(
    records: list[BundleRecord], tmp_path: Path, change: Any, kind: type[MxrError], said: str
) -> None:
    path = repacked(told(change, records[0]), tmp_path)
    with pytest.raises(kind, match=said):
        check(path)


def test_an_unchanged_record_is_accepted(records: list[BundleRecord], tmp_path: Path) -> None:
    assert check(repacked(told(lambda d: None, records[0]), tmp_path)).records == (records[0],)


def test_a_file_that_is_not_a_program_is_refused(records: list[BundleRecord], tmp_path: Path) -> None:
    data = b"\x7fELF" + bytes(100)
    sha = sha256(data).hexdigest()
    files = told(
        lambda d: d.update(
            manifest={
                "v": 1,
                "files": [{"name": "m", "size": 104, "sha256": sha, "blobs": [{"sha256": sha, "size": 104}]}],
            }
        ),
        records[0],
    )
    files["blobs/sha256/" + sha] = data
    with pytest.raises(DamagedError, match="is not a program"):
        check(repacked(files, tmp_path))


def test_a_lock_that_does_not_fit_its_artifacts_is_refused(
    records: list[BundleRecord], cache: Cache, tmp_path: Path
) -> None:
    one = records[0]
    path = tmp_path / "b.tar"
    exporter.export([one], LockFile((entry(records[1]),)), path, cache, NOBODY)
    with pytest.raises(DamagedError, match="the bundle does not contain"):
        check(path)
    exporter.export([one], LockFile((entry(one, tuning="exhaustive"),)), path, cache, NOBODY)
    with pytest.raises(MismatchError, match="tuning"):
        check(path)


def points(size: int, count: int, seed: int) -> Iterator[int]:
    chance = random.Random(seed)
    yield from (0, 1, 511, 512, size - 1, size - 512, size - 1024, size - 1025)
    yield from (chance.randrange(size) for _ in range(count))


def test_a_truncated_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    """It may lack the zeros that end every tar: they tell nothing."""
    data, path, whole = bundle.read_bytes(), tmp_path / "cut.tar", check(bundle)
    for at in points(len(data), 60, 1):
        path.write_bytes(data[:at])
        if len(data) - at <= 1024:
            assert check(path) == whole
            continue
        with pytest.raises(DamagedError) as caught:
            check(path)
        assert "is not a complete bundle: " in caught.value.message and caught.value.hint


def test_no_changed_byte_changes_what_is_imported(bundle: Path, tmp_path: Path) -> None:
    """A changed byte is refused, unless it has no effect on the import (the padding of a tar, for example)."""
    data, path, whole = bundle.read_bytes(), tmp_path / "flipped.tar", check(bundle)
    with closing(TarLayout(bundle)) as layout:
        small = sum(1024 + size for size in layout.sizes().values() if size < 4096)
    silent = 0
    for at in (*points(len(data), 40, 2), *points(small, 200, 3)):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        path.write_bytes(changed)
        try:
            assert check(path) == whole
            silent += 1
        except MxrError as problem:
            assert problem.exit == 65, problem.message
    assert silent < 60


def test_an_interrupted_export_leaves_nothing(records: list[BundleRecord], lock: LockFile, tmp_path: Path) -> None:
    with pytest.raises(MxrError) as caught:
        exporter.export(records, lock, tmp_path / "made" / "bundle.tar", Cache(tmp_path / "empty"), NOBODY)
    assert caught.value.exit == 69
    assert list((tmp_path / "made").iterdir()) == []


def test_a_file_that_appears_during_an_export_stays(
    records: list[BundleRecord], lock: LockFile, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, real = tmp_path / "bundle.tar", exporter._copy_blobs

    def slow(*arguments: Any) -> None:
        real(*arguments)
        final.write_bytes(b"precious")

    monkeypatch.setattr(exporter, "_copy_blobs", slow)
    with pytest.raises(WouldOverwriteError, match="appeared while"):
        exporter.export(records, lock, final, cache, NOBODY)
    assert final.read_bytes() == b"precious"


def test_an_empty_export_is_refused(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to export"):
        exporter.export([], None, tmp_path / "b.tar", cache, NOBODY)
    with pytest.raises(UsageError, match="There is no bundle"):
        open_layout(tmp_path / "b.tar")
