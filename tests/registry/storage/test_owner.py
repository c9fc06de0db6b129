"""A store belongs to one registry: what is not its own is neither started on nor served, and nothing is lost by it."""

from __future__ import annotations

import json
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from harness.waiting import until
from registry.registry_client import GFX908, RegistryUnderTest, Start
from servers.rows import Rows
from servers.swift import Bucket

OTHER = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"


@pytest.fixture(scope="module")
def engine() -> str:
    """The rows' engine makes no difference here."""
    return "sqlite"


def command(server: RegistryUnderTest, *words: object, expect: int = 0) -> Any:
    """What a command of the registry's host says: its JSON, or its error."""
    environ = server.environ
    done = run_program(["mxr-registry", *map(str, words), "--data", str(server.data), "--json"], env=environ)
    assert done.returncode == expect, done
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout or "null")


def refused(server: RegistryUnderTest, *more: str) -> str:
    """What `serve` says where it does not start: wrong configuration."""
    words = ["mxr-registry", "serve", "--port", "0", "--data", str(server.data), *more]
    done = run_program(words, env=server.environ)
    assert done.returncode == 2 and not done.stdout, done
    return done.stderr


def put(server: RegistryUnderTest, data: bytes) -> tuple[int, Any]:
    return server.call("PUT", f"/v1/blobs/{sha256(data).hexdigest()}", data)


def published(server: RegistryUnderTest, parts: Any) -> str:
    """The path of the one file of an artifact that is there."""
    status, made = server.publish(GFX908, parts.gpu_key(), **parts.explicit)
    assert status == 201
    return f"/v1/artifacts/{made['id']}/files/{made['manifest']['files'][0]['name']}"


def is_not_own(reply: tuple[int, Any]) -> None:
    status, said = reply
    assert (status, said["code"], said["retry"]) == (503, "temporary", True), said
    assert "not its own any more" in said["detail"] and "adopt-store" in said["hint"]


def test_the_first_start_says_what_is_new(start: Start) -> None:
    server = start()
    said = command(server, "status")
    (line,) = [line for line in server.log.read_text().splitlines() if "new registry" in line]
    assert said["id"] in line and str(server.data) in line
    assert said["store"] == said["id"] == server.request("GET", "/v1/whoami").headers["mxr-registry"]
    server.restart()
    assert server.log.read_text().count("new registry") == 1


def test_a_store_that_was_emptied_serves_nothing_until_it_is_back(start: Start, parts: Any) -> None:
    """An unmounted file system: the folder is there, and empty."""
    server = start()
    path, store = published(server, parts), server.data / "store"
    store.rename(server.data / "away")
    store.mkdir(mode=0o700)
    is_not_own(put(server, b"into the mount point"))
    status, said = server.call("GET", path)
    is_not_own((status, said))
    ready = server.ok("GET", "/readyz")
    assert ready["ok"] and "not its own any more" in ready["store"], "resolves and hits are served"
    assert server.call("POST", "/v1/resolve", {"key": parts.gpu_key()})[0] == 200
    assert list(store.rglob("*")) == [], "nothing is written into what is hidden when the file system is back"
    server.stop()
    said = refused(server)
    assert "is empty, but registry" in said and "Mount" in said and "adopt-store" in said
    for words in (["fsck"], ["sweep"], ["backup", server.data.parent / "copy"]):
        assert "is empty" in command(server, *words, expect=2)["error"]["detail"]
    store.rmdir()
    (server.data / "away").rename(store)
    server.start()
    assert server.request("GET", path).data == GFX908
    assert put(server, b"into the store")[0] == 201


def test_the_store_of_another_registry_is_left_alone(start: Start, parts: Any, tmp_path: Path) -> None:
    one, two = start(data=tmp_path / "one"), start(data=tmp_path / "two")
    path = published(one, parts)
    two.stop()
    two.environ["MXR_STORE_URL"] = f"file://{one.data / 'store'}"
    assert "belongs to registry" in refused(two)
    before = sorted(path for path in (one.data / "store").rglob("*"))
    for words in (["fsck", "--repair"], ["sweep"], ["adopt-store"]):
        assert "belongs to registry" in command(two, *words, expect=2)["error"]["detail"]
    assert sorted(path for path in (one.data / "store").rglob("*")) == before
    assert one.request("GET", path).data == GFX908
    # Who means it says so, and the first one notices at once.
    ids = [command(each, "status")["id"] for each in (one, two)]
    assert command(two, "adopt-store", "--force") == {"id": ids[1], "before": ids[0]}
    is_not_own(put(one, b"too late"))


def test_bytes_that_were_copied_by_hand_are_adopted(start: Start, parts: Any) -> None:
    server = start()
    path, store = published(server, parts), server.data / "store"
    server.stop()
    (store / "registry").unlink()
    assert "not the id of this one" in refused(server)
    assert command(server, "adopt-store")["before"] is None
    assert command(server, "fsck")["ok"]
    server.start()
    assert server.request("GET", path).data == GFX908


def test_a_registry_with_an_id_serves_no_other(start: Start, tmp_path: Path) -> None:
    server = start()
    id = command(server, "status")["id"]
    server.stop()
    assert f"is that of registry {id}" in refused(server, "--set", f"serve.registry_id={OTHER}")
    server.flags = ("--set", f"serve.registry_id={id.upper()}")
    server.start()
    server.stop()
    # Its file system is not mounted.
    server.data.rename(tmp_path / "away")
    assert "there is no registry in" in refused(server, "--set", f"serve.registry_id={id}")
    assert not server.data.exists()
    assert "the id of a registry" in refused(server, "--set", "serve.registry_id=mine")


def test_a_bucket_that_was_emptied_serves_nothing(start: Start, parts: Any, bucket: Bucket, tmp_path: Path) -> None:
    rows = Rows(f"sqlite:///{tmp_path / 'data' / 'registry.db'}", bucket.environ | {"MXR_S3_SIGNED": "off"})
    server = start(rows=rows)
    path = published(server, parts)
    kept = {key: bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read() for key in keys(bucket)}
    for key in kept:
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    server.stop()
    assert "is empty, but registry" in refused(server)
    for key, data in kept.items():
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data)
    server.start()
    assert server.request("GET", path).data == GFX908
    for key in kept:
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    # Within the seconds for which a check is good.
    other = secrets.token_bytes(100)
    is_not_own(until(lambda: (found := put(server, other))[0] == 503 and found))


def keys(bucket: Bucket) -> list[str]:
    return [row["Key"] for row in bucket.client.list_objects_v2(Bucket=bucket.name).get("Contents", ())]
