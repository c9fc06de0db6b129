"""The S3 store on a real server: signed URLs, damage, and a way to the server on which things go wrong."""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.waiting import until
from registry.storage.s3_settings import s3_settings
from servers.certificates import write_certificate
from servers.faulty import Alter, Answer, Cut, Fault, Faulty, Lose, Stall, refused
from servers.swift import Bucket, S3Server

from mxr.errors import (
    DamagedBlobError,
    DamagedError,
    DiskFullError,
    MxrError,
    NoSuchBlobError,
    TemporaryError,
    UsageError,
)
from mxr.s3 import bucket as s3
from mxr.util.hashing import CHUNK
from mxr_registry.storage import open_store
from mxr_registry.storage.object_streams import ObjectUpload
from mxr_registry.storage.objects import ObjectStore
from mxr_registry.storage.store import Upload

DATA = random.Random(1).randbytes(253 * 16_000)
NAME = sha256(DATA).hexdigest()
LARGE = random.Random(2).randbytes(241 * (8 * CHUNK // 241))

Open = Callable[..., ObjectStore]


@pytest.fixture
def way(swift: S3Server) -> Iterator[Faulty]:
    """A way to the server for the registry."""
    with Faulty(swift.url) as found:
        yield found


@pytest.fixture
def open_s3(bucket: Bucket) -> Open:
    """Opens a store in the test's bucket, with other settings where they are given."""

    def begin(url: str | None = None, **settings: Any) -> ObjectStore:
        store = open_store(url or bucket.url, replace(s3_settings(bucket.environ), **settings))
        assert isinstance(store, ObjectStore)
        return store

    return begin


@pytest.fixture
def store(open_s3: Open, way: Faulty) -> ObjectStore:
    """A store that reaches its server by the way."""
    return open_s3(endpoint=way.url)


@pytest.fixture
def impatient(open_s3: Open, way: Faulty) -> ObjectStore:
    """A store that gives the server half a second."""
    return open_s3(endpoint=way.url, timeout=0.5)


def keep(store: ObjectStore, data: bytes = DATA) -> str:
    name = sha256(data).hexdigest()
    upload = store.begin(name, len(data))
    try:
        write(upload, data)
        upload.commit()
    finally:
        upload.discard()
    return name


def write(upload: Upload, data: bytes) -> None:
    for at in range(0, len(data), CHUNK):
        upload.write(data[at : at + CHUNK])


def kept(store: ObjectStore, data: bytes) -> str | None:
    """The name of the blob; None while the store answers nothing after an outage."""
    with suppress(TemporaryError):
        return keep(store, data)
    return None


def get(url: str, **headers: str) -> urllib3.BaseHTTPResponse:
    with urllib3.PoolManager(retries=False, timeout=60) as http:
        return http.request("GET", url, headers=headers, redirect=False)


class TestTree:
    def test_it_is_that_of_the_file_store(self, store: ObjectStore, bucket: Bucket) -> None:
        keep(store)
        store.ready()
        assert sorted(bucket.names()) == [f"fleet/one/blobs/{NAME[:2]}/{NAME[2:4]}/{NAME}", "fleet/one/ready"]

    def test_a_bucket_without_a_prefix_serves_as_well(self, open_s3: Open, bucket: Bucket) -> None:
        store = open_s3(f"s3://{bucket.name}")
        keep(store)
        assert bucket.names() == [f"blobs/{NAME[:2]}/{NAME[2:4]}/{NAME}"]
        assert [kept.sha256 for kept in store.walk()] == [NAME]

    def test_what_others_keep_in_the_bucket_is_not_touched(self, store: ObjectStore, bucket: Bucket) -> None:
        bucket.client.put_object(Bucket=bucket.name, Key="fleet/two/blobs/x", Body=b"theirs")
        bucket.client.put_object(Bucket=bucket.name, Key="fleet/one/blobs/note", Body=b"odd")
        (odd,) = store.walk()
        assert (odd.sha256, odd.size) == (None, 3)
        store.drop(odd)
        assert sorted(bucket.names()) == ["fleet/one/blobs/note", "fleet/two/blobs/x"]


class TestUploads:
    def test_small_ones_are_one_request(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        assert [seen.method for seen in way.seen] == ["PUT"]

    def test_large_ones_are_one_request_that_carries_their_sha256(self, store: ObjectStore, way: Faulty) -> None:
        name = keep(store, LARGE)
        (seen,) = way.seen
        assert (seen.method, seen.headers["content-length"]) == ("PUT", str(len(LARGE)))
        assert seen.headers["x-amz-content-sha256"] == name
        assert store.check(name) == len(LARGE)

    @pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
    def test_the_server_itself_refuses_other_bytes(self, open_s3: Open, bucket: Bucket, data: bytes) -> None:
        """As if the check of this process were broken."""
        store, other = open_s3(), b"?" + data[1:]
        rest = iter([other[:CHUNK], other[CHUNK:], b""])
        name = sha256(data).hexdigest()
        with pytest.raises(TemporaryError, match=r"answered 400 \w+"):
            store.bucket.put_chunks(store.key(name), lambda: next(rest), len(data), name)
        with pytest.raises(TemporaryError, match=r"answered 400 \w+"):
            store.bucket.put(store.key(name), other, name)
        assert bucket.names() == []

    def test_no_extension_of_aws_is_asked_for(self, store: ObjectStore, way: Faulty) -> None:
        keep(store, LARGE)
        keep(store)
        assert b"".join(store.open(NAME)) == DATA
        for seen in way.seen:
            assert not [name for name in seen.headers if name.startswith(("x-amz-checksum", "x-amz-sdk-checksum"))]
            assert not {"if-none-match", "if-match", "x-amz-trailer"} & set(seen.headers)
            if seen.method == "PUT":
                assert re.fullmatch("[0-9a-f]{64}", seen.headers["x-amz-content-sha256"])

    def test_one_that_is_given_up_leaves_nothing_and_is_no_outage(self, open_s3: Open, bucket: Bucket) -> None:
        store = open_s3()
        upload = store.begin(sha256(LARGE).hexdigest(), len(LARGE))
        assert isinstance(upload, ObjectUpload)
        write(upload, LARGE[: 4 * CHUNK])
        upload.discard()
        upload.discard()
        assert upload._sender is not None
        upload._sender.join(30)
        assert not upload._sender.is_alive() and bucket.names() == []
        name = keep(store, LARGE)
        assert store.check(name) == len(LARGE)

    def test_wrong_bytes_are_found_before_the_last_of_them_is_sent(self, open_s3: Open, bucket: Bucket) -> None:
        store, name = open_s3(), sha256(LARGE).hexdigest()
        upload = store.begin(name, len(LARGE))
        write(upload, LARGE[:-1] + b"?")
        with pytest.raises(DamagedError, match="sha256"):
            upload.commit()
        assert bucket.names() == []

    def test_a_lost_answer_is_temporary_and_the_bytes_can_be_sent_again(self, store: ObjectStore, way: Faulty) -> None:
        way.spoil(Lose(), method="PUT", times=1)
        with pytest.raises(TemporaryError):
            keep(store, LARGE)
        name = until(lambda: kept(store, LARGE))
        assert store.check(name) == len(LARGE)

    def test_a_stream_that_fails_is_not_sent_twice(self, store: ObjectStore, way: Faulty, bucket: Bucket) -> None:
        way.spoil(Answer(503), method="PUT")
        with pytest.raises(TemporaryError, match="503 SlowDown"):
            keep(store, LARGE)
        assert (way.count("PUT"), bucket.names()) == (1, [])

    def test_a_server_that_stalls_ends_the_upload(self, impatient: ObjectStore, way: Faulty) -> None:
        way.spoil(Stall())
        with pytest.raises(TemporaryError, match="did not answer"):
            keep(impatient, LARGE * 4)

    def test_a_full_server_is_said(self, store: ObjectStore, way: Faulty) -> None:
        way.spoil(Answer(403, "QuotaExceeded"), method="PUT")
        with pytest.raises(DiskFullError):
            keep(store)


class TestReading:
    def test_a_part_is_all_that_is_asked_for(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        assert b"".join(store.open(NAME, 100, 50)) == DATA[100:150]
        assert [seen.headers.get("range") for seen in way.seen if seen.method == "GET"] == ["bytes=100-149"]

    def test_one_that_was_stored_in_the_other_form_meanwhile_is_the_same(
        self, store: ObjectStore, open_s3: Open, bucket: Bucket
    ) -> None:
        data = b"the same in both forms" * 50_000
        name = keep(store, data)
        _, reader = store.open_packed(name) or (0, iter(()))
        packed = b"".join(reader)
        again = open_s3()
        for form in (data, packed, data):
            bucket.write(name, form)
            for each in (store, again):
                assert each.check(name) == len(data)
                assert b"".join(each.open(name)) == data
                assert b"".join(each.open(name, 70_000, 100)) == data[70_000:70_100]
                assert each.is_packed(name) == (form is packed)

    def test_nothing_after_the_end(self, store: ObjectStore) -> None:
        keep(store)
        for offset, length in ((len(DATA), None), (len(DATA) + 9, 5), (3, 0)):
            assert b"".join(store.open(NAME, offset, length)) == b""

    def test_bytes_are_hashed_once(self, store: ObjectStore, open_s3: Open, way: Faulty) -> None:
        keep(store)
        store.check(NAME)
        assert way.count("GET") == 0
        again = open_s3(endpoint=way.url)
        for _ in range(3):
            again.check(NAME)
        assert [seen.headers.get("range") for seen in way.seen if seen.method == "GET"] == ["bytes=0-10239", None]

    def test_a_body_that_breaks_off_is_read_on(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        way.spoil(Cut(1_500_000), method="GET", times=2)
        assert b"".join(store.open(NAME)) == DATA
        assert way.count("GET") == 3

    def test_one_that_always_breaks_off_is_an_error_after_a_few_times(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        way.spoil(Cut(1000), method="GET")
        with pytest.raises(TemporaryError):
            list(store.open(NAME))
        assert way.count("GET") <= 5

    def test_one_that_was_replaced_meanwhile_is_not_mixed(
        self, store: ObjectStore, way: Faulty, bucket: Bucket
    ) -> None:
        keep(store)
        way.spoil(Cut(CHUNK + 10), method="GET", times=1)
        reader = store.read(NAME)
        assert next(reader) == DATA[:CHUNK]
        bucket.write(NAME, DATA[::-1])
        with pytest.raises(TemporaryError, match="replaced"):
            list(reader)


def test_credentials_in_a_file_can_be_replaced(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a Secret of Kubernetes is."""
    file = tmp_path / "credentials"

    def write(secret: str) -> None:
        access = bucket.environ["AWS_ACCESS_KEY_ID"]
        file.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(s3, "RENEW", 0.05)
    write(bucket.environ["AWS_SECRET_ACCESS_KEY"])
    store = open_store(bucket.url, s3_settings({"MXR_S3_ENDPOINT": bucket.endpoint}))
    assert store.stat(NAME) is None

    def refused() -> bool:
        try:
            store.stat(NAME)
        except TemporaryError:
            return True
        return False

    write("another")
    until(refused, 10)
    write(bucket.environ["AWS_SECRET_ACCESS_KEY"])
    until(lambda: not refused(), 10)
    file.unlink()
    time.sleep(0.1)
    assert not refused(), "what was read last goes on"


class TestDamage:
    @pytest.mark.parametrize("fresh", [False, True])
    @pytest.mark.parametrize("verb", ["check", "open"])
    def test_it_is_found_set_aside_and_never_handed_out(
        self, store: ObjectStore, open_s3: Open, bucket: Bucket, verb: str, fresh: bool
    ) -> None:
        keep(store)
        bucket.spoil(NAME)
        wrong = bucket.read(NAME)
        found = open_s3() if fresh else store
        with pytest.raises(DamagedBlobError):
            getattr(found, verb)(NAME)
        (aside,) = bucket.names()
        assert aside.startswith(f"fleet/one/damaged/{NAME}.")
        assert bucket.client.get_object(Bucket=bucket.name, Key=aside)["Body"].read() == wrong
        with pytest.raises(NoSuchBlobError):
            found.open(NAME)
        keep(found)
        assert b"".join(found.open(NAME)) == DATA
        (item,) = found.damaged()
        assert (item.name, item.sha256, item.size) == (aside, NAME, len(wrong))
        assert abs(item.modified - time.time()) < 60
        found.drop(item)
        assert not list(found.damaged()) and found.stat(NAME) == len(DATA)

    def test_bytes_that_change_on_the_way_for_once_are_not_damage(self, open_s3: Open, way: Faulty) -> None:
        keep(open_s3())
        store = open_s3(endpoint=way.url)
        way.spoil(Alter(7), method="GET", times=1)
        assert store.check(NAME) == len(DATA)

    def test_bytes_that_change_on_the_way_never_come_to_their_end(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        way.spoil(Alter(7), method="GET", times=1)
        came = bytearray()
        with pytest.raises(DamagedBlobError):
            for data in store.open(NAME):
                came += data
        assert len(came) < len(DATA)
        assert b"".join(store.open(NAME)) == DATA

    def test_a_server_that_returns_other_bytes_is_not_believed(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        store.forget(NAME)
        way.spoil(Alter(7), method="GET")
        with pytest.raises(DamagedBlobError):
            store.open(NAME)


class TestOutages:
    def test_a_busy_server_is_asked_again(self, store: ObjectStore, way: Faulty) -> None:
        small = DATA[:CHUNK]
        way.spoil(Answer(503), times=2)
        name = keep(store, small)
        way.spoil(Answer(503), times=2)
        assert b"".join(store.open(name)) == small

    def test_one_that_stays_busy_is_temporary(self, store: ObjectStore, way: Faulty) -> None:
        keep(store)
        way.spoil(Answer(503))
        begun = len(way.seen)
        with pytest.raises(TemporaryError, match="503") as found:
            store.stat(NAME)
        assert "S3" in found.value.hint
        assert len(way.seen) - begun == s3.ATTEMPTS

    @pytest.mark.parametrize("fault", [Stall(), Stall(1000)])
    def test_one_that_stalls_is_given_up(
        self, store: ObjectStore, impatient: ObjectStore, way: Faulty, fault: Fault
    ) -> None:
        keep(store)
        way.spoil(fault, method="GET")
        with pytest.raises(TemporaryError, match="did not answer"):
            list(impatient.read(NAME))

    def test_one_that_did_not_answer_is_left_alone_for_a_moment(
        self, impatient: ObjectStore, way: Faulty, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(s3, "OUTAGE_PAUSE", 600.0)
        way.spoil(Stall())
        with pytest.raises(TemporaryError):
            impatient.stat(NAME)
        begun = len(way.seen)
        for verb in (impatient.stat, impatient.check, keep_in(impatient), impatient.delete):
            with pytest.raises(TemporaryError, match="a moment ago"):
                verb(NAME)
        assert len(way.seen) == begun

    def test_one_that_is_not_there(self, open_s3: Open) -> None:
        store = open_s3(endpoint=refused())
        with pytest.raises(TemporaryError, match="unreachable"):
            store.ready()

    @pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId"])
    def test_a_refusal_while_it_serves_is_temporary(self, store: ObjectStore, way: Faulty, code: str) -> None:
        store.ready()
        way.spoil(Answer(403, code))
        with pytest.raises(TemporaryError, match=code):
            keep(store)
        with pytest.raises(UsageError, match=code):
            store.ready()


def keep_in(store: ObjectStore) -> Callable[[str], object]:
    return lambda _: keep(store)


class TestReady:
    def test_another_secret(self, open_s3: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(UsageError, match="signature is wrong") as found:
            open_s3().ready()
        assert "AWS_SECRET_ACCESS_KEY" in found.value.hint

    def test_an_unknown_key(self, open_s3: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        with pytest.raises(UsageError) as found:
            open_s3().ready()
        assert found.value.hint

    def test_no_key_at_all(self, open_s3: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(UsageError, match="No credentials"):
            open_s3().ready()

    def test_no_such_bucket(self, open_s3: Open) -> None:
        with pytest.raises(UsageError, match="the bucket does not exist"):
            open_s3("s3://there-is-none/x").ready()

    def test_it_writes_once(self, store: ObjectStore, way: Faulty) -> None:
        for _ in range(3):
            store.ready()
        assert way.count("PUT") == 1


class TestSignedUrls:
    def test_anyone_gets_the_bytes_and_a_part_of_them(self, store: ObjectStore) -> None:
        keep(store)
        url = store.url(NAME, local=True)
        assert url is not None
        assert get(url).data == DATA
        part = get(url, Range="bytes=5-9")
        assert (part.status, part.data) == (206, DATA[5:10])

    def test_a_forged_one_is_refused(self, store: ObjectStore) -> None:
        other = keep(store, b"another")
        keep(store)
        url = store.url(NAME, local=True) or ""
        last = url[-1]
        for forged in (url[:-1] + ("0" if last != "0" else "1"), url.replace(NAME, other), url.partition("?")[0]):
            assert get(forged).status in (400, 403)
        longer = re.sub("X-Amz-Expires=[0-9]+", "X-Amz-Expires=90000", url)
        assert longer != url and get(longer).status in (400, 403)

    def test_an_old_one_is_refused(self, store: ObjectStore) -> None:
        keep(store)
        url = store.bucket.sign(store.key(NAME), 1)
        until(lambda: get(url).status == 403, pause=0.1)

    def test_packed_bytes_say_that_they_are(self, open_s3: Open) -> None:
        for data in (b"small and empty" * 10_000, b"large and empty" * (3 * CHUNK)):
            store = open_s3()
            reply = get(store.url(keep(store, data), local=True) or "")
            assert reply.headers["content-encoding"] == "zstd" and len(reply.data) < len(data) / 10
            assert b"".join(store.open(sha256(data).hexdigest())) == data

    def test_it_names_the_public_endpoint(self, open_s3: Open, swift: S3Server) -> None:
        store = open_s3(endpoint=refused(), public_endpoint=swift.url)
        keep(open_s3())
        for near in (False, True):
            url = store.url(NAME, near) or ""
            assert url.startswith(swift.url + "/") and get(url).data == DATA

    @pytest.mark.parametrize(
        ("environ", "far", "near"),
        [
            ({}, True, True),
            ({"MXR_S3_ENDPOINT": "http://127.0.0.1:9000"}, False, True),
            ({"MXR_S3_ENDPOINT": "http://[::1]:9000"}, False, True),
            ({"MXR_S3_ENDPOINT": "http://localhost:9000"}, False, True),
            ({"MXR_S3_ENDPOINT": "https://s3.example.com/"}, True, True),
            (
                {"MXR_S3_ENDPOINT": "http://localhost:9000", "MXR_S3_PUBLIC_ENDPOINT": "https://s3.example.com"},
                True,
                True,
            ),
            ({"MXR_S3_ENDPOINT": "https://s3.example.com", "MXR_S3_SIGNED": "off"}, False, False),
            ({"MXR_S3_SIGNED": "off"}, False, False),
        ],
    )
    def test_who_gets_one(self, environ: dict[str, str], far: bool, near: bool) -> None:
        place = s3_settings(environ)
        assert (place.signs_for(local=False), place.signs_for(local=True)) == (far, near)


def test_a_server_with_a_certificate_of_its_own(open_s3: Open, swift: S3Server, tmp_path: Path) -> None:
    ca_file, key = write_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(ca_file, key)
    with Faulty(swift.url, tls) as way:
        with pytest.raises(UsageError, match="certificate") as found:
            open_s3(endpoint=way.url).ready()
        assert "MXR_S3_CA_FILE" in found.value.hint
        store = open_s3(endpoint=way.url, ca_file=str(ca_file))
        store.ready()
        keep(store)
        assert b"".join(store.open(NAME)) == DATA


class TestSettings:
    def test_path_style_where_an_endpoint_is_given(self) -> None:
        assert s3_settings({}).addressing == "auto"
        assert s3_settings({"MXR_S3_ENDPOINT": "http://host:9000/"}).addressing == "path"
        assert s3_settings({"MXR_S3_ENDPOINT": "http://host", "MXR_S3_STYLE": "virtual"}).addressing == "virtual"

    @pytest.mark.parametrize(
        ("name", "begin"),
        [("plain", "https://plain.s3.eu-west-3.amazonaws.com/"), ("a.b", "https://s3.eu-west-3.amazonaws.com/a.b/")],
    )
    def test_urls_to_aws_name_the_region(self, open_s3: Open, name: str, begin: str) -> None:
        store = open_s3(f"s3://{name}/x", endpoint=None, style="auto", region="eu-west-3")
        assert (store.url(NAME) or "").startswith(begin)

    def test_virtual_style_names_the_bucket_in_the_host(self, open_s3: Open, bucket: Bucket) -> None:
        store = open_s3(endpoint="https://s3.example.com", style="virtual")
        assert (store.url(NAME) or "").startswith(f"https://{bucket.name}.s3.example.com/fleet/one/blobs/")

    @pytest.mark.parametrize(
        "environ",
        [
            {"MXR_S3_ENDPOINT": "s3.example.com"},
            {"MXR_S3_PUBLIC_ENDPOINT": "ftp://s3.example.com"},
            {"MXR_S3_STYLE": "other"},
            {"MXR_S3_SIGNED": "perhaps"},
            {"MXR_S3_TIMEOUT": "soon"},
            {"MXR_S3_TIMEOUT": "0"},
            {"MXR_S3_CA_FILE": "/there/is/none.pem"},
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, environ: dict[str, str]) -> None:
        (name,) = environ
        with pytest.raises(UsageError, match=name):
            s3_settings(environ)

    @pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://b/p?x=1", "S3"])
    def test_a_url_that_names_no_bucket(self, url: str) -> None:
        with pytest.raises(MxrError, match="MXR_STORE_URL"):
            open_store(url)
