"""Registered locks over HTTP: what they pin stays, and the database itself has the last word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, Start, marked, on_sqlite
from sqlalchemy.exc import IntegrityError


def published(server: RegistryUnderTest, parts: Parts, mark: str) -> str:
    status, said = server.publish(
        parts.gfx908,
        parts.gpu_key(env=marked(mark)),
        **parts.explicit,
    )
    assert status in (200, 201)
    return str(said["id"])


def names(server: RegistryUnderTest) -> list[str]:
    return [each["name"] for each in server.call("GET", "/v1/locks")[1]["items"]]


def test_what_a_lock_pins_is_not_removed(server: RegistryUnderTest, parts: Parts) -> None:
    one, two = published(server, parts, "pin-1"), published(server, parts, "pin-2")
    status, said = server.call("PUT", "/v1/locks/prod", {"artifacts": [two, one, one]})
    assert (status, said["name"], said["artifacts"]) == (201, "prod", sorted([one, two]))
    server.call("PUT", "/v1/locks/canary", {"artifacts": [one]})

    status, said = server.call("DELETE", f"/v1/artifacts/{one[:12]}")
    assert (status, said["code"]) == (403, "not_allowed")
    assert said["context"] == {"id": one, "locks": ["canary", "prod"]}
    assert "canary, prod" in said["detail"]
    assert server.call("GET", f"/v1/artifacts/{one}")[0] == 200

    assert server.call("DELETE", "/v1/locks/canary")[0] == 200
    assert server.call("DELETE", f"/v1/artifacts/{one}")[1]["context"]["locks"] == ["prod"]
    assert server.call("PUT", "/v1/locks/prod", {"artifacts": [two]})[1]["artifacts"] == [two]
    assert server.call("DELETE", f"/v1/artifacts/{one}")[0] == 200
    assert server.call("DELETE", "/v1/locks/prod")[1]["artifacts"] == [two]
    assert server.call("DELETE", f"/v1/artifacts/{two}")[0] == 200


def test_a_lock_pins_all_or_nothing(server: RegistryUnderTest, parts: Parts) -> None:
    one = published(server, parts, "all")
    server.call("PUT", "/v1/locks/whole", {"artifacts": [one]})
    absent = "0" * 64
    status, said = server.call("PUT", "/v1/locks/whole", {"artifacts": [one, absent]})
    assert (status, said["code"]) == (404, "no_such_artifact")
    assert said["context"]["ids"] == [absent]
    assert server.call("GET", "/v1/locks/whole")[1]["artifacts"] == [one]
    status, _ = server.call("PUT", "/v1/locks/new", {"artifacts": [absent]})
    assert status == 404 and "new" not in names(server)


def test_locks_are_listed_by_name_and_keep_their_first_time(server: RegistryUnderTest, parts: Parts) -> None:
    one = published(server, parts, "list")
    first = server.call("PUT", "/v1/locks/b.2026-11_x", {"artifacts": [one]})[1]
    server.call("PUT", "/v1/locks/a", {"artifacts": []})
    again = server.call("PUT", "/v1/locks/b.2026-11_x", {"artifacts": [one]})[1]
    assert again["created_at"] == first["created_at"] <= again["updated_at"]
    assert [name for name in names(server) if name in ("a", "b.2026-11_x")] == ["a", "b.2026-11_x"]


@on_sqlite
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/v1/locks/.hidden", {"artifacts": []}, 422),
        ("PUT", "/v1/locks/" + "x" * 101, {"artifacts": []}, 422),
        ("PUT", "/v1/locks/a%20b", {"artifacts": []}, 422),
        ("PUT", "/v1/locks/ok", {"artifacts": ["abc"]}, 422),
        ("PUT", "/v1/locks/ok", {"artifacts": ["A" * 64]}, 422),
        ("PUT", "/v1/locks/ok", {"artifacts": [], "more": 1}, 422),
        ("PUT", "/v1/locks/ok", {"artifacts": ["0" * 64] * 20_001}, 422),
        ("PUT", "/v1/locks/ok", b"{", 400),
        ("GET", "/v1/locks/nobody", None, 404),
        ("DELETE", "/v1/locks/nobody", None, 404),
    ],
)
def test_bad_words_are_refused(server: RegistryUnderTest, method: str, path: str, body: Any, status: int) -> None:
    found, said = server.call(method, path, body)
    assert found == status and said["detail"] and said["hint"]


def test_many_writers_of_one_lock_leave_one_of_their_answers(server: RegistryUnderTest, parts: Parts) -> None:
    ids = [published(server, parts, f"crowd-{at}") for at in range(4)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda at: server.call("PUT", "/v1/locks/crowd", {"artifacts": [ids[at % 4]]}), range(16)))
    assert {status for status, _ in said} <= {200, 201}
    assert server.call("GET", "/v1/locks/crowd")[1]["artifacts"] in [[id] for id in ids]


def test_the_database_itself_keeps_a_pinned_artifact(start: Start, parts: Parts) -> None:
    server = start()
    one = published(server, parts, "constraint")
    server.call("PUT", "/v1/locks/prod", {"artifacts": [one]})
    with pytest.raises(IntegrityError):
        server.rows.execute(f"DELETE FROM artifacts WHERE id = '{one}'", checked=True)
