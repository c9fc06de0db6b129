"""How the blobs of a file arrive: in order, out of order, twice, through two registries; and the requests of S3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, Start
from servers.faulty import Faulty
from servers.rows import Rows
from servers.swift import Bucket, S3Server

from mxr.artifact.manifest import NO_CHAIN, Blob, File, next_chain
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.protocol.artifacts import FOLLOWS_HEADER
from mxr.settings import Settings
from mxr_registry.storage.store import OWNER

CUT = 50_000


@pytest.fixture(scope="module")
def engine() -> str:
    """Bytes are the store's, whatever holds the rows."""
    return "sqlite"


@pytest.fixture
def way(swift: S3Server) -> Iterator[Faulty]:
    """The way by which registries reach the S3 server: it counts."""
    with Faulty(swift.url) as found:
        yield found


@pytest.fixture
def on_s3(start: Start, bucket: Bucket, way: Faulty, tmp_path: Path) -> Any:
    """Starts registries on one database and the test's bucket."""
    rows = Rows(f"sqlite:///{tmp_path / 'data' / 'registry.db'}")
    more = bucket.environ | {"MXR_S3_ENDPOINT": way.url}

    def begin() -> Any:
        return start(rows=Rows(rows.url, environ=rows.environ | more))

    return begin


def file_of(data: bytes, cut: int = CUT) -> tuple[File, dict[str, bytes]]:
    """A file in blobs of `cut` bytes, and the bytes of each blob."""
    parts = [data[at : at + cut] for at in range(0, len(data), cut)]
    blobs = tuple(Blob(sha256(part).hexdigest(), len(part)) for part in parts)
    return File("model.mxr", len(data), sha256(data).hexdigest(), blobs), {
        blob.sha256: part for blob, part in zip(blobs, parts, strict=True)
    }


def client_of(server: RegistryUnderTest) -> Client:
    return Client(Settings(registry=server.url, token=server.tokens["admin"]))


def send(server: RegistryUnderTest, file: File, parts: dict[str, bytes]) -> int:
    return transfer.send(client_of(server), [file], lambda blob: iter([parts[blob.sha256]]), file.name)


def put(server: RegistryUnderTest, data: bytes, follows: Sequence[str] = ()) -> tuple[int, Any]:
    headers = {"content-type": "application/octet-stream"}
    if follows:
        headers[FOLLOWS_HEADER] = ",".join(follows)
    reply = server.request("PUT", f"/v1/blobs/{sha256(data).hexdigest()}", body=data, headers=headers)
    return reply.status, reply.json()


def publish(server: RegistryUnderTest, parts: Parts, file: File, **key: Any) -> tuple[int, Any]:
    blobs = [{"sha256": blob.sha256, "size": blob.size} for blob in file.blobs]
    entry = {"name": file.name, "size": file.size, "sha256": file.sha256, "blobs": blobs}
    body = {"key": parts.ref_key(**key), "manifest": {"v": 1, "files": [entry]}}
    found: tuple[int, Any] = server.call("POST", "/v1/artifacts", body)
    return found


def asked(way: Faulty, begun: int) -> dict[str, int]:
    """The requests of S3 since then, by method, without the look at whose bucket it is, once in some seconds."""
    seen = (each for each in way.seen[begun:] if not each.path.partition("?")[0].endswith(f"/{OWNER}"))
    return dict(Counter(each.method for each in seen))


def test_a_publication_writes_each_blob_once_and_reads_nothing(on_s3: Any, way: Faulty, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    assert len(file.blobs) > 3
    begun = len(way.seen)
    assert send(server, file, pieces) == file.size
    status, said = publish(server, parts, file)
    assert status == 201, said
    assert asked(way, begun) == {"PUT": len(file.blobs)}

    begun = len(way.seen)
    assert server.call("POST", "/v1/resolve", {"key": parts.ref_key()})[0] == 200
    assert asked(way, begun) == {}
    reply = server.get(f"/v1/blobs/{file.blobs[0].sha256}")
    assert (reply.status, asked(way, begun)) == (307, {})
    reply = server.get(f"/v1/artifacts/{said['id']}/files/model.mxr")
    assert reply.data == parts.ref
    assert asked(way, begun)["GET"] == len(file.blobs)


def test_a_file_of_one_blob_is_one_request(on_s3: Any, way: Faulty, bucket: Bucket, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref, len(parts.ref))
    begun = len(way.seen)
    send(server, file, pieces)
    assert publish(server, parts, file)[0] == 201
    assert asked(way, begun) == {"PUT": 1}
    bucket.spoil(file.sha256)
    other = on_s3()
    key = {"env": {"MIGRAPHX_MLIR_TUNE_LIMIT": "7"}}
    assert publish(other, parts, file, **key)[1]["code"] == "no_such_blob"
    send(other, file, pieces)
    assert publish(other, parts, file, **key)[0] == 201


def test_a_second_publication_asks_only_whether_the_blobs_are_there(on_s3: Any, way: Faulty, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    send(server, file, pieces)
    assert publish(server, parts, file)[0] == 201
    begun = len(way.seen)
    assert send(server, file, pieces) == 0
    assert publish(server, parts, file, migraphx="2.16", env={"MIGRAPHX_MLIR_TUNE_LIMIT": "7"})[0] == 201
    assert asked(way, begun) == {"HEAD": len(file.blobs)}


def test_blobs_that_other_files_share_are_not_read_back(on_s3: Any, way: Faulty, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    shared = [file.blobs[0], file.blobs[2]]
    for blob in shared:
        put(server, pieces[blob.sha256])
    begun = len(way.seen)
    assert send(server, file, pieces) == file.size - sum(blob.size for blob in shared)
    assert publish(server, parts, file)[0] == 201
    assert asked(way, begun) == {"HEAD": 2, "PUT": len(file.blobs) - 2}


def test_blobs_in_any_order_make_the_same_artifact(on_s3: Any, way: Faulty, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    for blob in reversed(file.blobs):
        assert put(server, pieces[blob.sha256])[0] == 201
    assert put(server, pieces[file.blobs[1].sha256], [NO_CHAIN, file.blobs[0].sha256])[0] == 201
    begun = len(way.seen)
    assert publish(server, parts, file)[0] == 201
    # The first two are known in order, the others are read.
    assert asked(way, begun)["GET"] == len(file.blobs) - 2


def test_the_order_that_a_client_claims_proves_nothing(on_s3: Any, parts: Parts) -> None:
    """It claims the chain of another file for its blobs: the bytes decide."""
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    send(server, file, pieces)
    first, second, *_ = file.blobs
    swapped = (second, first, *file.blobs[2:])
    chain = NO_CHAIN
    for blob in swapped:
        assert put(server, pieces[blob.sha256], [chain])[0] == 201
        chain = next_chain(chain, blob.sha256)
    forged = File(file.name, file.size, file.sha256, swapped)
    status, said = publish(server, parts, forged)
    assert (status, said["code"]) == (422, "damaged")
    assert "together" in said["detail"]
    for follows in (["0" * 64], [NO_CHAIN, "0" * 64], [chain, chain]):
        assert put(server, pieces[first.sha256], follows)[0] == 201
    assert publish(server, parts, forged)[0] == 422
    assert publish(server, parts, file)[0] == 201


@pytest.mark.parametrize("follows", [["x"], ["0" * 63], ["0" * 64] * 501, [NO_CHAIN, ""]], ids=len)
def test_what_is_no_chain_is_refused_before_the_bytes(
    on_s3: Any, way: Faulty, parts: Parts, follows: list[str]
) -> None:
    server = on_s3()
    begun = len(way.seen)
    status, said = put(server, parts.ref[:100], follows)
    assert status == 422 and FOLLOWS_HEADER in said["detail"]
    assert asked(way, begun) == {}


def test_blobs_of_a_missing_or_another_file_are_refused(on_s3: Any, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    other, others = file_of(bytes(reversed(parts.ref)))
    for blob in file.blobs[:-1]:
        put(server, pieces[blob.sha256])
    status, said = publish(server, parts, file)
    assert (status, said["context"]["missing"]) == (404, [file.blobs[-1].sha256])
    send(server, other, others)
    mixed = File(file.name, file.size, file.sha256, (*file.blobs[:-2], *other.blobs[-2:]))
    assert publish(server, parts, mixed)[0] == 422
    assert send(server, file, pieces) == file.blobs[-1].size
    assert publish(server, parts, file)[0] == 201


def test_two_registries_receive_one_file(on_s3: Any, way: Faulty, parts: Parts) -> None:
    one, two = on_s3(), on_s3()
    file, pieces = file_of(parts.ref)
    chain = NO_CHAIN
    for number, blob in enumerate(file.blobs):
        assert put((one, two)[number % 2], pieces[blob.sha256], [chain])[0] == 201
        chain = next_chain(chain, blob.sha256)
    begun = len(way.seen)
    assert publish(two, parts, file)[0] == 201
    assert asked(way, begun)["GET"] >= len(file.blobs)


def test_a_registry_that_was_restarted_reads_what_it_no_longer_knows(on_s3: Any, way: Faulty, parts: Parts) -> None:
    server, (file, pieces) = on_s3(), file_of(parts.ref)
    half = File(file.name, sum(blob.size for blob in file.blobs[:2]), "0" * 64, file.blobs[:2])
    send(server, half, pieces)
    server.end()
    server = on_s3()
    assert send(server, file, pieces) == file.size - half.size
    assert publish(server, parts, file)[0] == 201


def test_a_blob_that_is_damaged_before_the_publication_of_another_registry_is_found(
    on_s3: Any, bucket: Bucket, parts: Parts
) -> None:
    one, two = on_s3(), on_s3()
    file, pieces = file_of(parts.ref)
    send(one, file, pieces)
    bucket.spoil(file.blobs[1].sha256)
    status, said = publish(two, parts, file)
    assert (status, said["code"]) == (404, "no_such_blob")
    # It was moved out of the way, so the same push repairs it.
    assert send(two, file, pieces) == file.blobs[1].size
    assert publish(two, parts, file)[0] == 201
    reply = two.get(f"/v1/blobs/{file.blobs[1].sha256}?direct=no")
    assert reply.data == pieces[file.blobs[1].sha256]
