"""Bytes over HTTP: blobs in and out, whole files, ranges, and uploads that go wrong."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import socket
import struct
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import zstandard
from harness.waiting import until
from registry.registry_client import Parts, RegistryUnderTest, Start

from mxr.artifact.packed import smaller_body

BIG = bytes(range(251)) * 20_000


@pytest.fixture(scope="module")
def engine() -> str:
    """Bytes are the store's, whatever holds the rows."""
    return "sqlite"


@pytest.fixture(scope="module")
def file(server: RegistryUnderTest, parts: Parts) -> tuple[str, str, bytes]:
    """An artifact of several blobs: the path of its file, the file's sha256, and its bytes."""
    said = server.publish(parts.ref, parts.ref_key(), cut=50_000)[1]
    return f"/v1/artifacts/{said['id']}/files/model.mxr", said["sha256"], parts.ref


@pytest.fixture(scope="module")
def blob(server: RegistryUnderTest) -> tuple[str, str, bytes]:
    """A blob: its path, its sha256, and its bytes."""
    name = server.upload(BIG)["sha256"]
    return f"/v1/blobs/{name}", name, BIG


@pytest.fixture(params=["file", "blob"])
def thing(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_the_whole(server: RegistryUnderTest, thing: Any) -> None:
    path, name, data = thing
    reply = server.get(path)
    assert (reply.status, reply.data) == (200, data)
    assert reply.headers["etag"] == f'"{name}"' and reply.headers["accept-ranges"] == "bytes"
    assert reply.headers["content-length"] == str(len(data))


def test_head_has_the_same_headers_and_no_body(server: RegistryUnderTest, thing: Any) -> None:
    path, _, data = thing
    head, whole = server.http.request("HEAD", server.url + path), server.get(path)
    assert (head.status, head.data, head.headers["content-length"]) == (200, b"", str(len(data)))
    assert head.headers.pop("x-request-id") != whole.headers.pop("x-request-id")
    assert {**head.headers} == {**whole.headers}


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=49990-50010", 49_990, 50_011),
        ("bytes=100000-", 100_000, None),
        ("bytes=-7", -7, None),
        ("bytes=10-99999999999", 10, None),
        ("bytes=-99999999999", 0, None),
        ("Bytes = 5 - 6", 5, 7),
    ],
)
def test_a_range_is_that_part(server: RegistryUnderTest, thing: Any, asked: str, start: int, stop: int | None) -> None:
    path, _, data = thing
    reply = server.get(path, range=asked)
    part = data[start:stop]
    first = start if start >= 0 else len(data) + start
    assert (reply.status, reply.data) == (206, part)
    assert reply.headers["content-range"] == f"bytes {first}-{first + len(part) - 1}/{len(data)}"
    assert reply.headers["content-length"] == str(len(part))


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=-0"])
def test_a_range_outside_is_416(server: RegistryUnderTest, thing: Any, asked: str) -> None:
    path, _, data = thing
    reply = server.get(path, range=asked)
    assert (reply.status, reply.headers["content-range"]) == (416, f"bytes */{len(data)}")
    assert reply.json()["code"] == "usage"


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=5-2",
        "bytes=-",
        "bytes=a-b",
        "lines=1-2",
        "bytes=0-1,5-6",
        "bytes=" + "9" * 30,
        "bytes=" + " " * 30_000 + "x",
    ],
)
def test_a_range_that_is_none_gives_the_whole(server: RegistryUnderTest, blob: Any, asked: str) -> None:
    path, _, data = blob
    reply = server.get(path, range=asked)
    assert (reply.status, len(reply.data)) == (200, len(data))


def test_conditions(server: RegistryUnderTest, thing: Any) -> None:
    path, name, data = thing
    for tag in (f'"{name}"', f'W/"{name}"', f'"x", "{name}"', "*"):
        reply = server.get(path, if_none_match=tag)
        assert (reply.status, reply.data, reply.headers["etag"]) == (304, b"", f'"{name}"')
    assert server.get(path, if_none_match='"x"').status == 200
    assert server.get(path, range="bytes=0-9", if_range=f'"{name}"').status == 206
    for other in ('"x"', "Wed, 21 Oct 2015 07:28:00 GMT", f'W/"{name}"'):
        assert server.get(path, range="bytes=0-9", if_range=other).data == data


def test_who_accepts_zstd_gets_what_shrinks_in_zstd(server: RegistryUnderTest, blob: Any) -> None:
    path, name, data = blob
    reply = server.get(path, **{"Accept-Encoding": "gzip, zstd"})
    assert (reply.headers["content-encoding"], reply.headers["etag"]) == ("zstd", f'"{name}.zst"')
    assert int(reply.headers["content-length"]) == len(reply.data) < len(data) / 10
    with zstandard.ZstdDecompressor().stream_reader(reply.data, read_across_frames=True) as plain:
        assert plain.read() == data
    for words in ("identity", "gzip", "zstd;q=0", "zstd2", "xzstd", "*"):
        other = server.get(path, **{"Accept-Encoding": words})
        assert "content-encoding" not in other.headers and other.data == data, words
    assert "zstd" in server.get(path, **{"Accept-Encoding": "br;q=1, zstd;q=0.5"}).headers["content-encoding"]
    part = server.get(path, **{"Accept-Encoding": "zstd", "Range": "bytes=300000-1299999"})
    assert (part.status, part.data) == (206, data[300_000:1_300_000]) and "content-encoding" not in part.headers
    weights = random.Random(3).randbytes(300_000)
    plainly = server.get(f"/v1/blobs/{server.upload(weights)['sha256']}", **{"Accept-Encoding": "zstd"})
    assert plainly.data == weights and "content-encoding" not in plainly.headers
    assert plainly.headers["vary"] == reply.headers["vary"] == "accept-encoding"


def packed_body(data: bytes, step: int = 100_000) -> bytes:
    with smaller_body((data[at : at + step] for at in range(0, len(data), step)), len(data)) as (chunks, size, packed):
        body = b"".join(chunks)
    assert packed and len(body) == size
    return body


class TestPackedUploads:
    def put(self, server: RegistryUnderTest, data: bytes, body: bytes, encoding: str = "zstd") -> Any:
        path = f"/v1/blobs/{sha256(data).hexdigest()}"
        return path, server.request("PUT", path, body=body, headers={"Content-Encoding": encoding})

    def test_it_is_stored_as_if_it_came_plain(self, server: RegistryUnderTest) -> None:
        data = b"packed upload" * 100_000
        path, reply = self.put(server, data, packed_body(data))
        assert (reply.status, reply.json()["size"]) == (201, len(data))
        assert server.get(path).data == data
        assert server.get(path, **{"Accept-Encoding": "zstd"}).headers["content-encoding"] == "zstd"

    @pytest.mark.parametrize("spoil", ["cut", "more", "other", "plain", "tool", "frame", "large", "gzip"])
    def test_what_is_wrong_is_refused_and_nothing_is_kept(self, server: RegistryUnderTest, spoil: str) -> None:
        data = spoil.encode() * 100_000
        body = packed_body(data)
        bodies = {
            "cut": body[:-5],
            "more": body + b"\0" * 9,
            "other": packed_body(data[:-1] + b"?"),
            "plain": data,
            "tool": zstandard.ZstdCompressor().compress(data),
            "frame": body[:-20] + bytes(20),
            "large": struct.pack("<II4sQII", 0x184D2A5D, 20, b"mxr1", 1 << 50, 1 << 15, 9) + bytes(1000),
        }
        path, reply = self.put(server, data, bodies.get(spoil, body), "gzip" if spoil == "gzip" else "zstd")
        assert reply.status in (400, 413, 422), reply.data
        assert server.get(path).status == 404
        assert not list(server.blob_path(path.rpartition("/")[2]).parent.glob("*"))

    def test_a_head_of_many_frames_takes_no_memory_before_they_arrive(self, server: RegistryUnderTest) -> None:
        count = 1 << 17
        words = struct.pack("<4sQI", b"mxr1", count << 15, 1 << 15) + struct.pack("<I", 40) * count
        _, reply = self.put(server, b"x", struct.pack("<II", 0x184D2A5D, len(words)) + words + bytes(4000))
        assert reply.status in (400, 413, 422)


def test_a_download_tool_resumes_a_file(server: RegistryUnderTest, file: Any, tmp_path: Path) -> None:
    """With the requests of `curl -C -`: the size of the begun file as an open range, then the rest is appended."""
    path, _, data = file
    place = tmp_path / "model.mxr"
    place.write_bytes(data[:70_000])
    request = urllib.request.Request(
        server.url + path, headers={"Range": f"bytes={place.stat().st_size}-", **server.http.headers}
    )
    with urllib.request.urlopen(request) as reply, place.open("ab") as begun:
        assert reply.status == 206
        shutil.copyfileobj(reply, begun)
    assert place.read_bytes() == data


def test_what_is_not_there_is_said(server: RegistryUnderTest, file: Any) -> None:
    path, _, _ = file
    assert server.call("GET", path + "x")[1]["code"] == "not_found"
    assert server.call("GET", f"/v1/blobs/{'0' * 64}")[1]["code"] == "no_such_blob"
    assert server.call("GET", "/v1/blobs/abc")[0] == 422
    assert server.call("PUT", "/v1/blobs/" + "A" * 64, b"x")[0] == 422


def test_missing_names_what_to_upload(server: RegistryUnderTest, blob: Any) -> None:
    _, name, data = blob
    rows = [{"sha256": name, "size": len(data)}, {"sha256": "0" * 64, "size": 5}, {"sha256": "0" * 64, "size": 5}]
    status, said = server.call("POST", "/v1/blobs/missing", {"blobs": rows})
    assert (status, said["missing"]) == (200, ["0" * 64])
    assert said["grace"] == 24 * 3600
    server.blob_path(name).unlink()
    assert server.call("POST", "/v1/blobs/missing", {"blobs": rows[:1]})[1]["missing"] == [name]
    assert server.get(f"/v1/blobs/{name}").json()["code"] == "no_such_blob"
    server.upload(data)
    assert server.get(f"/v1/blobs/{name}").data == data


@pytest.mark.parametrize(
    "blobs", [[{"sha256": "x", "size": 1}], [{"sha256": "0" * 64, "size": -1}], [{"size": 1}], {}, "x"]
)
def test_questions_that_are_not_right_are_refused(server: RegistryUnderTest, blobs: Any) -> None:
    assert server.call("POST", "/v1/blobs/missing", {"blobs": blobs})[0] == 422


def test_other_bytes_are_refused_and_nothing_is_kept(server: RegistryUnderTest) -> None:
    name = sha256(b"these").hexdigest()
    status, said = server.call("PUT", f"/v1/blobs/{name}", b"those")
    assert (status, said["code"]) == (422, "damaged")
    assert not server.blob_path(name).exists() and not list(server.blob_path(name).parent.glob(".*"))
    assert server.call("GET", f"/v1/blobs/{name}")[0] == 404
    assert server.call("PUT", f"/v1/blobs/{sha256(b'').hexdigest()}", b"")[0] == 422


def test_the_same_bytes_from_many_at_once_are_fine(server: RegistryUnderTest) -> None:
    data = b"many" * 300_000
    with ThreadPoolExecutor(6) as pool:
        names = {each["sha256"] for each in pool.map(lambda _: server.upload(data), range(6))}
    (name,) = names
    assert server.get(f"/v1/blobs/{name}").data == data


def test_damage_is_found_at_fetch_and_a_new_push_repairs_it(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "11"})
    said = server.publish(parts.gfx908, key, cut=4444, **parts.explicit)[1]
    path, name = f"/v1/artifacts/{said['id']}/files/model.mxr", said["manifest"]["files"][0]["blobs"][1]["sha256"]
    assert server.get(path).data == parts.gfx908
    server.corrupt(name)
    assert server.get(path, range="bytes=0-4443").data == parts.gfx908[:4444]
    for _ in range(2):
        reply = server.get(path)
        assert (reply.status, reply.json()["code"]) == (404, "no_such_blob")
        assert name in reply.json()["detail"] and parts.gfx908[4444:4500] not in reply.data
    assert [each.name[:64] for each in (server.data / "store" / "damaged").iterdir()].count(name) == 1
    assert server.publish(parts.gfx908, key, cut=4444, **parts.explicit)[0] == 200
    assert server.get(path).data == parts.gfx908


def test_a_push_that_is_cut_otherwise_repairs_as_well(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "12"})
    said = server.publish(parts.gfx908, key, cut=3333, **parts.explicit)[1]
    server.blob_path(said["manifest"]["files"][0]["blobs"][0]["sha256"]).unlink()
    status, repaired = server.publish(parts.gfx908, key, cut=7777, **parts.explicit)
    assert (status, repaired["id"]) == (200, said["id"])
    assert server.get(f"/v1/artifacts/{said['id']}/files/model.mxr").data == parts.gfx908


def begin_upload(server: RegistryUnderTest, data: bytes) -> tuple[socket.socket, Path]:
    """The first half of an upload, and the folder that it goes to."""
    name = sha256(data).hexdigest()
    line = socket.create_connection(("127.0.0.1", server.port))
    kind = "host: localhost\r\ncontent-type: application/octet-stream"
    kind += f"\r\nauthorization: {server.http.headers['authorization']}"
    head = f"PUT /v1/blobs/{name} HTTP/1.1\r\n{kind}\r\ncontent-length: {len(data)}\r\n\r\n"
    line.sendall(head.encode() + data[: len(data) // 2])
    folder = server.blob_path(name).parent
    until(lambda: any(each.stat().st_size for each in folder.glob(".upload-*")))
    return line, folder


def test_an_upload_that_is_cut_off_leaves_nothing(start: Start, fsck: Any) -> None:
    server = start()
    line, folder = begin_upload(server, b"cut off" * 1_000_000)
    line.close()
    until(lambda: not list(folder.iterdir()))
    code, report = fsck(server.data)
    assert (code, report["ok"]) == (0, True)


def test_a_full_disk_is_said_and_leaves_nothing(start: Start, fsck: Any) -> None:
    server, data = start(), random.Random(4).randbytes(4_000_000)
    name = sha256(data).hexdigest()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
    status, said = server.call("PUT", f"/v1/blobs/{name}", data)
    assert (status, said["code"], said["retry"]) == (507, "disk_full", True)
    assert not list(server.blob_path(name).parent.iterdir())
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    server.upload(data)
    assert fsck(server.data)[1]["findings"] == []


def test_a_registry_killed_in_the_middle_of_an_upload_loses_nothing(start: Start, fsck: Any) -> None:
    server = start()
    kept = server.upload(b"kept" * 1000)["sha256"]
    line, folder = begin_upload(server, b"killed" * 1_000_000)
    server.stop(signal.SIGKILL)
    line.close()
    code, report = fsck(server.data)
    assert (code, report["ok"]) == (0, True)
    assert [each["kind"] for each in report["findings"]] == ["temporary"]
    assert all(each.name.startswith(".upload-") for each in folder.iterdir())
    again = start(data=server.data)
    assert again.get(f"/v1/blobs/{kept}").data == b"kept" * 1000
