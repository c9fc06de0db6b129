"""The identity of a registry in every reply, and conditional requests for what clients keep."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from registry.registry_client import REF, RegistryUnderTest, ref_key
from servers.rows import Databases

MODEL = "sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def engine() -> str:
    """The engine makes no difference here."""
    return "sqlite"


def test_every_reply_names_the_database(server: RegistryUnderTest, databases: Databases, tmp_path: Path) -> None:
    replies = [
        server.get(path) for path in ("/healthz", "/v1/artifacts", "/v1/artifacts/abcdef12", "/none", "/v1/resolve")
    ]
    assert [reply.status for reply in replies] == [200, 200, 404, 404, 405]
    (uuid,) = {reply.headers["MXR-Registry"] for reply in replies}
    assert str(UUID(uuid)) == uuid
    other = RegistryUnderTest(tmp_path / "other", rows=databases(tmp_path / "other"))
    first = other.get("/healthz").headers["MXR-Registry"]
    other.end()
    again = RegistryUnderTest(tmp_path / "other", rows=databases.known[tmp_path / "other"])
    assert again.get("/healthz").headers["MXR-Registry"] == first != uuid
    again.end()


def test_an_artifact_and_a_lock_are_confirmed_by_their_entity_tags(server: RegistryUnderTest) -> None:
    _, said = server.publish(REF, ref_key(MODEL))
    hit = server.ok("POST", "/v1/resolve", {"key": ref_key(MODEL), "constraints": {}})
    path = f"/v1/artifacts/{said['id']}"
    assert server.get(path).headers["etag"] == hit["etag"]
    for tag in (hit["etag"], f'"other", {hit["etag"]}', "*"):
        same = server.get(path, if_none_match=tag)
        assert (same.status, same.data, same.headers["etag"]) == (304, b"", hit["etag"])
    server.ok("PUT", "/v1/locks/prod", {"artifacts": [said["id"]]})
    tag = server.get("/v1/locks/prod").headers["etag"]
    assert server.get("/v1/locks/prod", if_none_match=tag).status == 304
    server.ok("POST", f"{path}/promote")
    changed = server.get(path, if_none_match=hit["etag"])
    assert changed.status == 200 and changed.headers["etag"] != hit["etag"]
    server.ok("DELETE", "/v1/locks/prod")
    server.ok("DELETE", path + "?force=yes")
    assert server.get(path, if_none_match="*").status == 404
