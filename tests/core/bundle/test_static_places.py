"""The places of static registries: writers take turns, in a folder and in a bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.swift import Bucket

from mxr.bundle import static_places
from mxr.bundle.static_places import FOREVER, SHORTLY, WRITERS, BucketPlace, StaticPlace, open_place
from mxr.errors import NotARegistryError, TemporaryError, UsageError, WouldOverwriteError
from mxr.util import disk

OPEN: dict[str, Callable[[Path, Bucket], str]] = {
    "folder": lambda tmp_path, _: str(tmp_path / "site"),
    "bucket": lambda _, bucket: f"s3://{bucket.name}/mxr",
}


@pytest.fixture(params=OPEN)
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    bucket: Bucket = request.getfixturevalue("bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
    return OPEN[request.param](tmp_path, bucket)


def test_files_are_kept(where: str) -> None:
    place = open_place(where)
    with place.locked():
        assert place.size("mxr.json") is None and place.read("mxr.json") is None
        with place.blob("blobs/ab/ab12") as (descriptor, _):
            disk.write_at(descriptor, b"bytes", 0)
        with pytest.raises(ZeroDivisionError), place.blob("blobs/cd/cd34"):
            raise ZeroDivisionError
        place.write("mxr.json", b"{}")
    with place.locked():
        assert place.size("blobs/ab/ab12") == 5 and place.read("blobs/ab/ab12") == b"bytes"
        assert place.size("blobs/cd/cd34") is None
        (found,) = place.files("blobs")
        assert (found.name, found.size) == ("blobs/ab/ab12", 5) and abs(found.modified - time.time()) < 300
        place.remove("blobs/ab/ab12")
    with open_place(where).locked():
        assert list(place.files("index")) == [] and open_place(where).read("blobs/ab/ab12") is None


def test_one_writer_at_a_time(where: str) -> None:
    inside, most, failed = 0, 0, []

    def write() -> None:
        nonlocal inside, most
        try:
            with open_place(where).locked():
                inside += 1
                most = max(most, inside)
                time.sleep(0.3)
                inside -= 1
        except Exception as problem:
            failed.append(problem)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert (failed, most) == ([], 1)


def test_other_files_are_left_alone(where: str) -> None:
    place = open_place(where)
    with place.locked():
        place.write("photos/cat.jpg", b"precious")
    with pytest.raises(WouldOverwriteError, match="other files"), open_place(where).locked():
        pass


class TestBuckets:
    @pytest.fixture
    def place(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> BucketPlace:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
        return BucketPlace(f"s3://{bucket.name}/mxr")

    def test_caches_are_told_what_never_changes(self, place: StaticPlace, bucket: Bucket) -> None:
        with place.locked():
            for name in ("mxr.json", "statements/ab.json", "index/ab.json"):
                place.write(name, b"{}")
            with place.blob("blobs/ab/ab12"):
                pass
        kept = {"blobs/ab/ab12": FOREVER, "statements/ab.json": FOREVER, "index/ab.json": SHORTLY, "mxr.json": SHORTLY}
        for name, cache in kept.items():
            head = bucket.client.head_object(Bucket=bucket.name, Key=f"mxr/{name}")
            assert head["CacheControl"] == cache
            assert head["ContentType"].endswith("json") == name.endswith(".json")
        listed = bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]
        assert {each["Key"] for each in listed} == {f"mxr/{name}" for name in kept}, "and no writer is left"

    def test_a_writer_that_was_killed_is_not_waited_for_for_ever(
        self, place: StaticPlace, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(static_places, "DEAD", 2.0)
        bucket.client.put_object(Bucket=bucket.name, Key=f"mxr/{WRITERS}dead", Body=b"")
        with place.locked():
            pass
        assert "Contents" not in bucket.client.list_objects_v2(Bucket=bucket.name)

    def test_who_was_away_for_long_writes_nothing_more(self, place: BucketPlace, bucket: Bucket) -> None:
        with place.locked():
            place.write("mxr.json", b"first")
            place._beat -= 600
            with pytest.raises(TemporaryError, match="another writer"):
                place.write("mxr.json", b"second")
        assert place.read("mxr.json") == b"first"

    def test_a_bucket_that_cannot_be_used(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
        with pytest.raises(NotARegistryError, match="the bucket does not exist") as missing:
            BucketPlace("s3://no-such-bucket/mxr").read("mxr.json")
        assert "MXR_" not in str(missing.value.hint)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(NotARegistryError, match=r"s3://.*the signature is wrong") as refused:
            BucketPlace(f"s3://{bucket.name}/mxr").read("mxr.json")
        assert "AWS_SECRET_ACCESS_KEY" in str(refused.value.hint) and "wrong " not in str(refused.value.hint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://user:secret@host")
        with pytest.raises(UsageError, match="AWS_ENDPOINT_URL_S3") as named:
            BucketPlace(f"s3://{bucket.name}/mxr")
        assert "secret@" not in str(named.value)
        with pytest.raises(UsageError, match="no URL of a bucket"):
            BucketPlace("s3://bucket/a/../b")
