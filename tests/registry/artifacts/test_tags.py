"""Tags over HTTP: revisions of a lock, which keep their artifacts, and the way back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest

from mxr.protocol.tags import MAX_REVISIONS

from .test_locks import published


def lock_of(*ids: str, note: str = "") -> str:
    """What the registry reads of a lock; `note` makes another text of it."""
    return json.dumps({"version": 1, "entries": [{"id": id} for id in ids], "note": note})


def move(server: RegistryUnderTest, name: str, *ids: str, note: str = "") -> dict[str, Any]:
    status, said = server.call("PUT", f"/v1/tags/{name}", {"lock": lock_of(*ids, note=note)})
    assert status in (200, 201), said
    return dict(said)


def revisions(server: RegistryUnderTest, name: str) -> list[tuple[int, int | None]]:
    found = server.ok("GET", f"/v1/tags/{name}/revisions")["items"]
    return [(each["revision"], each["repeats"]) for each in found]


def test_a_tag_moves_and_goes_back(server: RegistryUnderTest, parts: Parts) -> None:
    one, two = published(server, parts, "tag-1"), published(server, parts, "tag-2")
    status, said = server.call("PUT", "/v1/tags/prod", {"lock": lock_of(one)})
    assert (status, said["revision"], said["artifacts"], said["repeats"]) == (201, 1, 1, None)
    assert said["sha256"] == sha256(lock_of(one).encode()).hexdigest()
    assert server.call("PUT", "/v1/tags/prod", {"lock": lock_of(one)}) == (200, said), "the same lock moves nothing"
    assert move(server, "prod", one, two)["revision"] == 2
    back = server.ok("PUT", "/v1/tags/prod", {"revision": 1})
    assert (back["revision"], back["repeats"], back["sha256"]) == (3, 1, said["sha256"])
    assert revisions(server, "prod") == [(3, 1), (2, None), (1, None)]
    assert server.ok("GET", "/v1/tags/prod")["lock"] == lock_of(one)
    assert server.ok("GET", "/v1/tags/prod?revision=2")["lock"] == lock_of(one, two)
    listed = server.ok("GET", "/v1/tags")["items"]
    assert [(each["name"], each["revision"]) for each in listed] == [("prod", 3)]
    kinds = [(each["kind"], each["subject"]) for each in server.ok("GET", "/v1/events?limit=3")["items"]]
    assert kinds == [("tag.move", "prod")] * 3


def test_a_tag_keeps_the_artifacts_of_its_revisions(server: RegistryUnderTest, parts: Parts) -> None:
    one, two = published(server, parts, "keep-1"), published(server, parts, "keep-2")
    move(server, "keep", one)
    move(server, "keep", two)
    for id in (one, two):
        status, said = server.call("DELETE", f"/v1/artifacts/{id}")
        assert (status, said["context"]["locks"]) == (403, ["tag:keep"])
    for at in range(MAX_REVISIONS):
        move(server, "keep", two, note=str(at))
    assert len(revisions(server, "keep")) == MAX_REVISIONS
    # No revision that is kept has it any more.
    assert server.call("DELETE", f"/v1/artifacts/{one}")[0] == 200
    assert server.call("PUT", "/v1/tags/keep", {"revision": 1})[0] == 404
    assert server.call("DELETE", "/v1/tags/keep")[0] == 200
    assert server.call("GET", "/v1/tags/keep")[0] == 404
    assert server.call("DELETE", f"/v1/artifacts/{two}")[0] == 200
    assert move(server, "keep", published(server, parts, "keep-3"))["revision"] == 1


def test_a_tag_names_only_what_hosts_may_have(server: RegistryUnderTest, parts: Parts) -> None:
    good, bad = published(server, parts, "may-1"), published(server, parts, "may-2")
    move(server, "may", bad)
    move(server, "may", good)
    server.ok("PUT", f"/v1/artifacts/{bad}/recall", {"word": "quarantined", "reason": "wrong"})
    for body in ({"lock": lock_of(good, bad)}, {"revision": 1}):
        status, said = server.call("PUT", "/v1/tags/may", body)
        assert (status, said["code"], said["context"]["id"]) == (410, "recalled", bad)
    absent = "0" * 64
    status, said = server.call("PUT", "/v1/tags/may", {"lock": lock_of(good, absent)})
    assert (status, said["context"]["ids"]) == (404, [absent])
    assert revisions(server, "may") == [(2, None), (1, None)], "nothing changed"
    status, said = server.call("PUT", "/v1/tags/new", {"lock": lock_of(absent)})
    assert status == 404 and server.call("GET", "/v1/tags/new")[0] == 404


def test_nobody_but_the_tag_moves_what_it_pins(server: RegistryUnderTest, parts: Parts) -> None:
    one = published(server, parts, "own")
    move(server, "own", one)
    for method in ("PUT", "DELETE"):
        body = {"artifacts": []} if method == "PUT" else None
        assert server.call(method, "/v1/locks/tag:own", body)[0] == 422
    assert server.call("DELETE", f"/v1/artifacts/{one}")[0] == 403


def test_many_who_move_a_tag_at_once_leave_a_whole_history(server: RegistryUnderTest, parts: Parts) -> None:
    ids = [published(server, parts, f"tags-{at}") for at in range(4)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda at: move(server, "busy", ids[at % 4], note=str(at)), range(12)))
    assert sorted(each["revision"] for each in said) == list(range(1, 13))
    assert [number for number, _ in revisions(server, "busy")] == list(range(12, 0, -1))
    for id in ids:
        assert server.call("DELETE", f"/v1/artifacts/{id}")[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/v1/tags/.hidden", {"lock": lock_of("0" * 64)}, 422),
        ("PUT", "/v1/tags/" + "x" * 81, {"lock": lock_of("0" * 64)}, 422),
        ("PUT", "/v1/tags/a:b", {"lock": lock_of("0" * 64)}, 422),
        ("PUT", "/v1/tags/ok", {}, 422),
        ("PUT", "/v1/tags/ok", {"lock": lock_of("0" * 64), "revision": 1}, 422),
        ("PUT", "/v1/tags/ok", {"lock": "not JSON"}, 422),
        ("PUT", "/v1/tags/ok", {"lock": "[" * 5000}, 422),
        ("PUT", "/v1/tags/ok", {"lock": lock_of()}, 422),
        ("PUT", "/v1/tags/ok", {"lock": lock_of("abc")}, 422),
        ("PUT", "/v1/tags/ok", {"lock": '{"entries": [1]}'}, 422),
        ("PUT", "/v1/tags/ok", {"lock": '{"entries": {}}'}, 422),
        ("PUT", "/v1/tags/ok", {"lock": lock_of(*["0" * 64] * 20_001)}, 422),
        ("PUT", "/v1/tags/ok", {"lock": "x" * ((4 << 20) + 1)}, 422),
        ("PUT", "/v1/tags/ok", {"revision": 1}, 404),
        ("PUT", "/v1/tags/ok", b"{", 400),
        ("PUT", "/v1/tags/ok", {"revision": 10**30}, 422),
        ("PUT", "/v1/tags/ok", {"revision": 0}, 404),
        ("GET", "/v1/tags/nobody", None, 404),
        ("GET", f"/v1/tags/nobody?revision={10**30}", None, 404),
        ("GET", "/v1/tags/nobody?revision=-1", None, 404),
        ("GET", "/v1/tags/a%00b", None, 404),
        ("GET", "/v1/tags/a%00b/revisions", None, 404),
        ("DELETE", "/v1/tags/a%00b", None, 404),
        ("GET", "/v1/tags/nobody/revisions", None, 404),
        ("DELETE", "/v1/tags/nobody", None, 404),
    ],
)
def test_bad_words_are_refused(server: RegistryUnderTest, method: str, path: str, body: Any, status: int) -> None:
    found, said = server.call(method, path, body)
    assert found == status and said["detail"] and said["hint"]
    assert server.call("GET", "/v1/tags/ok")[0] == 404
