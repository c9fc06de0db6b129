"""Yank, quarantine and what ends them, over HTTP: who gets an artifact then, and what outlives it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, Start, marked, on_sqlite

from mxr_registry.artifacts import recalls

EXPLICIT = {"sramecc": "+", "xnack": "-"}
WORDS = ("yanked", "quarantined")


@pytest.fixture
def registry(server: RegistryUnderTest) -> Any:
    """The registry of the module, empty."""
    server.clear()
    server.rows.execute("DELETE FROM namespaces")
    server.rows.execute("DELETE FROM events")
    return server


@pytest.fixture
def artifact(registry: Any, parts: Parts) -> dict[str, Any]:
    """A published program."""
    status, said = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT)
    assert status == 201
    return dict(said)


def recall(registry: Any, id: str, word: str, reason: str = "wrong results") -> Any:
    """What the registry says of it now."""
    return registry.ok("PUT", f"/v1/artifacts/{id}/recall", {"word": word, "reason": reason})["recall"]


@pytest.mark.parametrize("word", WORDS)
def test_what_was_recalled_is_chosen_for_no_request(
    registry: Any, parts: Parts, artifact: dict[str, Any], word: str
) -> None:
    asked = {"key": parts.gpu_key(), "constraints": {}}
    _, second = registry.publish(parts.same_key[1], parts.gpu_key(), attributes=EXPLICIT)
    ids = {artifact["id"], second.get("id")} - {None}
    registry.ok("POST", f"/v1/artifacts/{artifact['id']}/promote")
    assert registry.ok("POST", "/v1/resolve", asked)["artifact"]["id"] == artifact["id"]
    partial = {name: value for name, value in asked["key"].items() if name not in ("migraphx", "v")}
    assert registry.ok("POST", "/v1/candidates", partial)["total"] >= 1
    for id in ids:
        recall(registry, id, word)
    status, miss = registry.call("POST", "/v1/resolve", asked)
    assert (status, miss["code"], miss["context"]["reason"]) == (404, "no_such_artifact", "recalled")
    assert f"matches, but it was {word}" in miss["detail"] and "accept" not in miss["context"]
    assert registry.call("POST", "/v1/candidates", partial)[0] == 404
    assert registry.ok("GET", f"/v1/artifacts?state={word}")["items"][0]["recall"]["word"] == word
    assert registry.ok("GET", f"/v1/artifacts?state={WORDS[word == 'yanked']}")["items"] == []
    for id in ids:
        registry.ok("DELETE", f"/v1/artifacts/{id}/recall")
    assert registry.ok("POST", "/v1/resolve", asked)["artifact"]["id"] == artifact["id"], "it is still promoted"


def test_a_yanked_one_is_given_to_who_names_it_and_a_quarantined_one_to_nobody(
    registry: Any, artifact: dict[str, Any]
) -> None:
    path = f"/v1/artifacts/{artifact['id']}"
    before = registry.request("GET", path).headers["etag"]
    said = recall(registry, artifact["id"], "yanked", " half as fast ")
    assert (said["reason"], said["recalled_by"]) == ("half as fast", "tests")
    shown = registry.get(path, if_none_match=before)
    assert shown.status == 200 and shown.headers["etag"] != before, "caches notice"
    assert registry.ok("GET", path)["recall"] == said
    assert registry.get(f"{path}/files/model.mxr").status == 200
    recall(registry, artifact["id"], "quarantined")
    refused = registry.call("GET", f"{path}/files/model.mxr")
    assert refused[0] == 410 and refused[1]["code"] == "recalled" and refused[1]["context"]["reason"] == "wrong results"
    assert registry.ok("GET", path)["recall"]["word"] == "quarantined", "people still read about it"
    weaker = registry.error("PUT", f"{path}/recall", {"word": "yanked", "reason": "no"})
    assert (weaker["code"], registry.ok("GET", path)["recall"]["word"]) == ("conflict", "quarantined")


def test_a_recall_outlives_the_artifact_and_holds_when_it_returns(
    registry: Any, parts: Parts, artifact: dict[str, Any]
) -> None:
    registry.get(f"/v1/artifacts/{artifact['id']}/files/model.mxr")
    refused = registry.error("DELETE", f"/v1/artifacts/{artifact['id']}")
    assert refused["context"]["used"] is True and "Yank or quarantine" in refused["hint"]
    recall(registry, artifact["id"], "quarantined")
    registry.ok("DELETE", f"/v1/artifacts/{artifact['id']}")
    (item,) = registry.ok("GET", "/v1/recalls")["items"]
    assert (item["id"], item["recall"]["word"]) == (artifact["id"], "quarantined")
    _, back = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT, intent={"restore": True})
    assert back["id"] == artifact["id"] and back["recall"]["word"] == "quarantined"
    assert registry.get(f"/v1/artifacts/{artifact['id']}/files/model.mxr").status == 410


def test_what_was_removed_or_never_there_can_be_recalled(registry: Any, artifact: dict[str, Any]) -> None:
    """Copies of it may be in caches and bundles."""
    registry.ok("DELETE", f"/v1/artifacts/{artifact['id']}?force=yes")
    for id, whole in ((artifact["id"][:12], artifact["id"]), ("ab" * 32, "ab" * 32)):
        assert registry.ok("PUT", f"/v1/artifacts/{id}/recall", {"word": "quarantined", "reason": "x"})["id"] == whole
        assert registry.ok("DELETE", f"/v1/artifacts/{whole[:8]}/recall")["id"] == whole
    assert registry.error("PUT", "/v1/artifacts/abababab/recall", {"word": "yanked", "reason": "x"})["code"] == (
        "not_found"
    )


def test_each_change_of_the_list_has_a_higher_number(registry: Any, artifact: dict[str, Any]) -> None:
    numbers = [registry.ok("GET", "/v1/recalls")["sequence"]]
    for change in ("PUT", "PUT", "DELETE", "PUT"):
        body = {"word": "yanked", "reason": "x"} if change == "PUT" else None
        registry.ok(change, f"/v1/artifacts/{artifact['id']}/recall", body)
        numbers.append(registry.ok("GET", "/v1/recalls")["sequence"])
    assert numbers[0] == 0 and numbers == sorted(set(numbers))
    # A database that was restored goes on above what hosts have seen, although it forgot it.
    registry.rows.execute("UPDATE namespaces SET recall_sequence = 5")
    registry.ok("DELETE", f"/v1/artifacts/{artifact['id']}/recall")
    assert registry.ok("GET", "/v1/recalls")["sequence"] >= numbers[-1] - len(numbers)


@pytest.mark.parametrize(
    "body",
    [
        {"word": "revoked", "reason": "x"},
        {"word": "yanked"},
        {"word": "yanked", "reason": "  "},
        {"word": "yanked", "reason": "x" * 301},
        {"word": "yanked", "reason": 7},
        {"word": "yanked", "reason": "x", "id": "y"},
    ],
)
def test_bad_recalls_change_nothing(registry: Any, artifact: dict[str, Any], body: Any) -> None:
    assert registry.error("PUT", f"/v1/artifacts/{artifact['id']}/recall", body)["code"] == "usage"
    found = registry.ok("GET", "/v1/recalls")
    assert (found["namespace"], found["sequence"], found["items"]) == ("default", 0, [])


def test_a_reason_that_looks_like_a_recall_is_only_a_reason(registry: Any, artifact: dict[str, Any]) -> None:
    recall(registry, artifact["id"], "yanked", '","word":"quarantined","x":"')
    assert registry.ok("GET", "/v1/artifacts?state=quarantined")["items"] == []
    assert registry.get(f"/v1/artifacts/{artifact['id']}/files/model.mxr").status == 200


def test_the_list_has_an_end(registry: Any, artifact: dict[str, Any]) -> None:
    recall(registry, artifact["id"], "yanked")
    text = registry.rows.execute("SELECT recall_json FROM recalls")[0][0]
    rows = ", ".join(f"('default', '{number:064x}', '{text}')" for number in range(recalls.MAX_RECALLS - 1))
    registry.rows.execute(f"INSERT INTO recalls VALUES {rows}")
    recall(registry, artifact["id"], "quarantined")
    said = registry.error("PUT", f"/v1/artifacts/{'cd' * 32}/recall", {"word": "yanked", "reason": "x"})
    assert said["context"]["recalls"] == recalls.MAX_RECALLS == len(registry.ok("GET", "/v1/recalls")["items"])


def test_the_trail_tells_each_word(registry: Any, artifact: dict[str, Any]) -> None:
    recall(registry, artifact["id"], "yanked", "first")
    recall(registry, artifact["id"], "quarantined", "second")
    registry.ok("DELETE", f"/v1/artifacts/{artifact['id']}/recall")
    events = registry.ok("GET", f"/v1/events?subject={artifact['id']}")["items"]
    told = [(each["kind"], each["detail"]["reason"]) for each in events if "publish" not in each["kind"]]
    assert told == [("artifact.unyank", "second"), ("artifact.quarantine", "second"), ("artifact.yank", "first")]


@on_sqlite
def test_a_database_that_was_restored_learns_its_recalls_from_the_store(
    start: Start, parts: Parts, tmp_path: Path
) -> None:
    """What was said and what was ended after the backup; the number goes on above all that hosts have seen."""
    server = start()
    path, older = server.data / "registry.db", tmp_path / "older.db"
    ids = [
        server.publish(parts.gfx908, parts.gpu_key() | {"env": marked(name)}, attributes=EXPLICIT)[1]["id"]
        for name in ("one", "two")
    ]
    recall(server, ids[0], "quarantined")
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(older)) as then:
        now.backup(then)
    server.ok("DELETE", f"/v1/artifacts/{ids[0]}/recall")
    recall(server, ids[1], "quarantined")
    recall(server, "ab" * 32, "yanked")
    before = server.ok("GET", "/v1/recalls")
    server.stop()
    for each in server.data.glob("registry.db*"):
        each.unlink()
    shutil.copy(older, path)
    server.restart()
    after = server.ok("GET", "/v1/recalls")
    assert after["items"] == before["items"] and after["sequence"] > before["sequence"]
    assert server.get(f"/v1/artifacts/{ids[0]}/files/model.mxr").status == 200
    assert server.get(f"/v1/artifacts/{ids[1]}/files/model.mxr").status == 410
    assert "had forgotten recalls" in server.log.read_text()
    # What the store lacks is written there at the next start.
    server.stop()
    shutil.rmtree(server.data / "store" / "notes")
    server.restart()
    assert len(list((server.data / "store" / "notes").iterdir())) == 1
    assert server.ok("GET", "/v1/recalls")["items"] == after["items"]
