"""The trail: each change is a row that says who, from where, to what and replacing what; and who sees it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryUnderTest, Start, on_sqlite


def events(server: RegistryUnderTest, query: str = "", **headers: str) -> list[Any]:
    reply = server.request("GET", f"/v1/events{query}", headers=headers or None)
    assert reply.status == 200, reply.data
    return list(reply.json()["items"])


def run(server: RegistryUnderTest, *words: str) -> str:
    done = run_program(["mxr-registry", *words, "--data", str(server.data)], env=os.environ | server.environ)
    assert done.returncode == 0, done
    return str(done.stdout)


def made(server: RegistryUnderTest, name: str, *scopes: str) -> tuple[str, dict[str, str]]:
    said = server.ok("POST", "/v1/tokens", {"name": name, "scopes": list(scopes)})
    return said["token"]["id"], {"authorization": f"Bearer {said['secret']}"}


def test_the_life_of_an_artifact(start: Start, parts: Parts) -> None:
    server = start()
    key = parts.gpu_key("gfx90a")
    one, two = (server.publish(data, key, **parts.explicit)[1]["id"] for data in parts.same_key[:2])
    server.ok("POST", f"/v1/artifacts/{one}/promote")
    server.ok("POST", f"/v1/artifacts/{two}/promote")
    server.ok("PUT", "/v1/locks/prod", {"artifacts": [one]})
    server.ok("PUT", "/v1/locks/prod", {"artifacts": [two]})
    server.ok("DELETE", "/v1/locks/prod")
    server.ok("DELETE", f"/v1/artifacts/{one}")
    assert server.call("DELETE", f"/v1/artifacts/{one}")[0] == 404
    found = [each for each in events(server) if not each["kind"].startswith(("token", "key"))]
    assert [(each["kind"], each["subject"]) for each in reversed(found)] == [
        ("artifact.publish", one),
        ("artifact.publish", two),
        ("artifact.promote", one),
        ("artifact.promote", two),
        ("lock.put", "prod"),
        ("lock.put", "prod"),
        ("lock.remove", "prod"),
        ("artifact.remove", one),
    ]
    assert {(each["principal"], each["address"]) for each in found} == {("tests", "127.0.0.1")}
    removed, unlocked, relocked, _, second, first, _, published = found
    assert (first["detail"], second["detail"]) == ({"replaced": None}, {"replaced": one})
    assert relocked["detail"] == {"added": [two], "removed": [one], "artifacts": 1}
    assert unlocked["detail"] == {"artifacts": 1} and removed["detail"]["forced"] is False
    assert published["detail"]["origin"] == "pushed" and published["detail"]["digest"]
    assert {each["model"] for each in (removed, second, published)} == {key["model"]}
    assert [each["subject"] for each in events(server, f"?subject={one[:10]}")] == [one] * 3
    assert len(events(server, f"?model={key['model']}")) == 5
    assert [each["kind"] for each in events(server, "?kind=lock.remove&principal=tests")] == ["lock.remove"]
    assert events(server, "?principal=nobody") == []
    log = server.log.read_text()
    assert f"artifact.promote {two} by tests from 127.0.0.1" in log and one in log


def test_pages_go_on(start: Start, parts: Parts) -> None:
    server = start()
    for number in range(5):
        server.ok("PUT", f"/v1/locks/lock{number}", {"artifacts": []})
    names, after = [], ""
    while True:
        page = server.ok("GET", f"/v1/events?kind=lock.put&limit=2{after}")
        names += [each["subject"] for each in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert names == [f"lock{number}" for number in reversed(range(5))]


@on_sqlite
def test_who_sees_what(server: RegistryUnderTest, parts: Parts) -> None:
    id, alice = made(server, "alice", "fetch", "publish")
    server.ok("PUT", "/v1/locks/seen", {"artifacts": []})
    run(server, "namespace", "set", "default", "--batch", "4")
    run(server, "token", "revoke", id)
    _, bob = made(server, "bob", "fetch")
    _, worker = made(server, "worker", "work")
    assert server.request("GET", "/v1/events", headers=alice).status == 401
    assert server.request("GET", "/v1/events", headers=worker).status == 403
    seen = events(server, **bob)
    assert {each["kind"].partition(".")[0] for each in seen} <= {"artifact", "lock"} and seen
    assert {each["address"] for each in seen} == {None}
    assert events(server, "?kind=token.create", **bob) == []
    kinds = [each["kind"] for each in events(server)]
    assert {"token.create", "token.revoke", "namespace.set", "lock.put"} <= set(kinds)
    (revoked,) = events(server, f"?kind=token.revoke&subject={id}")
    assert (revoked["principal"], revoked["address"]) == ("mxr-registry", None)
    (created,) = events(server, f"?kind=token.create&subject={id}")
    assert created["principal"] == "tests" and created["detail"]["scopes"] == "fetch publish"
    (named,) = events(server, "?kind=namespace.set")
    assert named["detail"]["set"]["defaults"]["batch"] == 4 and named["detail"]["replaced"]["defaults"]["batch"] is None
    text = str(events(server)) + server.log.read_text()
    assert "mxr_" + id not in text, "no event has a secret"


def test_what_a_worker_built_and_retention_removed(start: Start, parts: Parts) -> None:
    server = start()
    key = parts.ref_key(model=server.register_model())
    server.submit(key)
    job = server.finish(server.claim(server.register_worker()))
    (published,) = events(server, "?kind=artifact.publish")
    assert published["detail"]["origin"] == "built" and published["detail"]["job"] == job["id"]
    server.rows.execute("UPDATE artifacts SET used_at = used_at - 8640000")
    run(server, "sweep", "--unused-days", "90")
    (expired,) = events(server, "?kind=artifact.expire")
    assert expired["subject"] == job["artifact"] and expired["detail"] == {"why": "not used for 90 days"}
    assert expired["principal"] == "mxr-registry"
    assert events(server, "?kind=sweep")[0]["detail"]["artifacts"] == 1
    server.rows.execute("UPDATE events SET at = at - 400 * 86400.0")
    run(server, "sweep")
    assert [each["kind"] for each in events(server)] == ["sweep"]


@on_sqlite
@pytest.mark.parametrize("query", ["?after=x", "?subject=", "?limit=0", "?colour=red"])
def test_questions_that_are_not_right(server: RegistryUnderTest, query: str) -> None:
    assert server.request("GET", f"/v1/events{query}").status == 422


@on_sqlite
def test_nobody_floods_it(start: Start) -> None:
    """A lock is a request only, and each leaves a row for a year."""
    server = start()
    server.ok("PUT", "/v1/locks/mine", {"artifacts": []})
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT "
    into = "INSERT INTO events (namespace, at, kind, principal, address, subject) "
    server.rows.execute(
        f"{into}{many}namespace, at, kind, principal, address, subject FROM n, (SELECT * FROM events WHERE "
        "kind = 'lock.put' LIMIT 1)"
    )
    status, said = server.call("PUT", "/v1/locks/mine", {"artifacts": []})
    assert (status, said["retry"]) == (429, True) and "5000 times lock.put in an hour" in said["detail"]
    server.ok("DELETE", "/v1/locks/mine")
    server.rows.execute("UPDATE events SET at = at - 3600")
    server.ok("PUT", "/v1/locks/mine", {"artifacts": []})


@on_sqlite
def test_a_change_that_is_refused_leaves_none(server: RegistryUnderTest, parts: Parts) -> None:
    before = len(events(server, "?kind=artifact.remove"))
    assert server.call("DELETE", "/v1/artifacts/00000000")[0] == 404
    assert server.call("PUT", "/v1/locks/none", {"artifacts": ["0" * 64]})[0] == 404
    assert len(events(server, "?kind=artifact.remove")) == before
    assert events(server, "?subject=none") == []
