"""Uses: counted where the registry sees them, told by hosts where it does not, listed by demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, Start

from mxr_registry.artifacts import usage
from mxr_registry.database.session import Database


@pytest.fixture(scope="module")
def snapshot(snapshot_of: Any, parts: Parts) -> Any:
    """A registry with two artifacts; the facts are their ids."""
    return snapshot_of(
        lambda server: [
            server.publish(parts.gfx908, parts.gpu_key(), **parts.explicit)[1]["id"],
            server.publish(parts.ref, parts.ref_key())[1]["id"],
        ]
    )


@pytest.fixture
def published(start: Start, snapshot: Any) -> Any:
    """A registry of its own, with two artifacts; it, and their ids."""
    return start(snapshot=snapshot), snapshot.facts


def counts(server: RegistryUnderTest, query: str = "") -> dict[str, int]:
    status, said = server.call("GET", f"/v1/uses{query}")
    assert status == 200, said
    return {each["artifact"]["id"]: each["count"] for each in said["items"]}


def resolve(server: RegistryUnderTest, key: dict[str, Any]) -> None:
    status, said = server.call("POST", "/v1/resolve", {"key": key})
    assert status == 200, said


def test_resolves_and_whole_downloads_are_uses_and_survive_a_stop(published: Any, start: Start, parts: Parts) -> None:
    server, ids = published
    for _ in range(3):
        resolve(server, parts.gpu_key())
    whole = f"/v1/artifacts/{ids[1][:12]}/files/model.mxr"
    assert server.get(whole).status == 200
    assert server.get(whole, range="bytes=0-9").status == 206
    assert server.http.request("HEAD", server.url + whole).status == 200
    server.stop()
    assert server.rows.execute("SELECT SUM(value) FROM tallies WHERE name = 'answered'") == [(3,)]
    assert counts(start(data=server.data)) == {ids[0]: 3, ids[1]: 1}


def test_hosts_tell_of_their_caches(published: Any) -> None:
    server, ids = published
    told = [{"id": ids[0], "count": 5, "ago": 30.0}, {"id": "f" * 64, "count": 2}]
    assert server.call("POST", "/v1/uses", {"uses": told}) == (200, {"noted": 1})
    assert server.call("POST", "/v1/uses", {"uses": told}) == (200, {"noted": 1})
    assert counts(server) == {ids[0]: 10}


def test_old_uses_are_old_and_no_use_is_in_the_future(published: Any) -> None:
    server, ids = published
    told = [{"id": ids[0], "count": 1, "ago": 40 * 86400.0}, {"id": ids[1], "count": 1, "ago": 1e300}]
    assert server.call("POST", "/v1/uses", {"uses": told})[0] == 200
    assert counts(server) == {}
    assert counts(server, "?days=60") == {ids[0]: 1}
    refused, said = server.call("POST", "/v1/uses", {"uses": [{"id": ids[0], "count": 1, "ago": -1}]})
    assert (refused, said["code"]) == (422, "usage")


def test_what_is_used_most_comes_first_and_can_be_filtered(published: Any) -> None:
    server, ids = published
    told = [{"id": ids[0], "count": 2}, {"id": ids[1], "count": 7}]
    server.call("POST", "/v1/uses", {"uses": told})
    assert list(counts(server)) == [ids[1], ids[0]]
    assert counts(server, "?arch=gfx908&rocm=7.2&migraphx=2.15") == {ids[0]: 2}
    assert counts(server, "?arch=gfx908:sramecc%2B") == {ids[0]: 2}, "as in a list of artifacts: without its features"
    assert counts(server, "?limit=1") == {ids[1]: 7}
    for wrong in ("?days=0", "?days=x", "?limit=100000", "?color=red"):
        assert server.call("GET", f"/v1/uses{wrong}")[0] == 422


def test_uses_of_a_removed_artifact_go_with_it(published: Any) -> None:
    server, ids = published
    server.call("POST", "/v1/uses", {"uses": [{"id": id, "count": 1} for id in ids]})
    assert server.call("DELETE", f"/v1/artifacts/{ids[0]}?force=yes")[0] == 200
    assert counts(server) == {ids[1]: 1}


def test_what_cannot_be_written_is_kept(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path}/absent/registry.db")
    tally = usage.UsageCounter(db)
    tally.count("default", "a" * 64)
    tally.count("default", "a" * 64)
    tally.write()
    tally.count("default", "a" * 64)
    assert tally._counts == {("default", "a" * 64): 3}
    tally.close()
