"""Tokens: made, shown once, listed with their last use, and nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
from hashlib import sha256
from typing import Any

import pytest
from harness.programs import command
from harness.programs import run as run_program
from harness.waiting import until
from registry.registry_client import RegistryUnderTest, Start, on_sqlite

from mxr.errors import UnauthenticatedError
from mxr.protocol.access import TOKEN
from mxr_registry.access.authentication import Authenticator
from mxr_registry.database.session import Database


def token(server: RegistryUnderTest, *words: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs `mxr-registry token` for a registry."""
    done = run_program(command("mxr-registry", "token", *words, "--data", server.data), env=server.environ)
    assert done.returncode == expect, done
    return done


def as_token(secret: str) -> dict[str, str]:
    """The header with a token."""
    return {"authorization": f"Bearer {secret}"}


def whoami(server: RegistryUnderTest, secret: str) -> tuple[int, Any]:
    """Status and answer of a request with a token."""
    found: tuple[int, Any] = server.call("GET", "/v1/whoami", headers=as_token(secret))
    return found


def test_a_token_from_the_command_line(server: RegistryUnderTest) -> None:
    done = token(server, "create", "ci", "--scopes", "ask,fetch,ask")
    secret = done.stdout.strip()
    found = TOKEN.fullmatch(secret)
    assert found and done.stdout == secret + "\n" and secret not in done.stderr
    assert f"Token {found[1]} of ci: fetch,ask, expires 20" in done.stderr
    status, said = whoami(server, secret)
    assert status == 200 and said.pop("expires_at")
    assert said == {"name": "ci", "namespace": "default", "scopes": ["fetch", "ask"], "token": found[1]}


def test_the_registry_keeps_only_a_hash(server: RegistryUnderTest) -> None:
    secret = token(server, "create", "ci").stdout.strip()
    rows = server.rows.execute("SELECT * FROM tokens")
    assert sha256(secret.encode()).hexdigest() in str(rows)
    assert secret.rpartition("_")[2] not in str(rows)
    assert secret.rpartition("_")[2] not in json.dumps(server.ok("GET", "/v1/tokens"))
    assert secret.rpartition("_")[2] not in server.log.read_text()


def test_the_last_use_is_shown(server: RegistryUnderTest) -> None:
    made = json.loads(token(server, "create", "prod", "--scopes", "metrics", "--expires", "never", "--json").stdout)
    assert made["token"]["expires_at"] is None and "no use recorded" in token(server, "ls").stdout
    (before,) = [each for each in server.ok("GET", "/v1/tokens")["items"] if each["id"] == made["token"]["id"]]
    assert before == made["token"] and before["used_at"] is None and before["created_by"] == "mxr-registry"
    agent = {"user-agent": "mxr/0.0.9\x9b" + "x" * 200}
    assert server.call("GET", "/v1/whoami", headers=as_token(made["secret"]) | agent)[0] == 200

    def used() -> Any:
        (found,) = [each for each in server.ok("GET", "/v1/tokens")["items"] if each["id"] == made["token"]["id"]]
        return found["used_at"]

    assert until(used) > made["token"]["created_at"]
    line = rf"{made['token']['id']} of prod: metrics, never expires, last used 20\S+ \S+ UTC by mxr/0.0.9\\x9bx{{80,}}$"
    assert re.search(line, token(server, "ls").stdout, re.MULTILINE)


def test_two_tokens_of_one_principal_overlap(server: RegistryUnderTest) -> None:
    old, new = (token(server, "create", "turning").stdout.strip() for _ in range(2))
    assert whoami(server, old)[0] == whoami(server, new)[0] == 200
    ambiguous = token(server, "revoke", "turning", expect=2)
    assert "turning has 2 valid tokens: " in ambiguous.stderr and "--all" in ambiguous.stderr
    token(server, "revoke", old.split("_")[1])
    until(lambda: whoami(server, old)[0] == 401, 2.0)
    assert whoami(server, new)[0] == 200
    token(server, "revoke", "turning")
    until(lambda: whoami(server, new)[0] == 401, 2.0)
    assert "has no valid token" in token(server, "revoke", "turning", expect=3).stderr


def test_an_administrator_revokes_by_the_api_and_it_holds_at_once(server: RegistryUnderTest) -> None:
    made = server.ok("POST", "/v1/tokens", {"name": "alice", "scopes": ["fetch"]})
    for _ in range(3):
        assert whoami(server, made["secret"])[0] == 200
    gone = server.ok("DELETE", f"/v1/tokens/{made['token']['id']}")
    assert whoami(server, made["secret"])[0] == 401
    assert gone["state"] == "revoked" and gone["revoked_at"]
    assert server.ok("DELETE", f"/v1/tokens/{made['token']['id']}") == gone, "again changes nothing"
    assert server.call("DELETE", "/v1/tokens/000000000000")[0] == 404
    assert made["token"]["created_by"] == "tests"


@on_sqlite
def test_an_administrator_may_be_a_token_itself(server: RegistryUnderTest) -> None:
    made = server.ok("POST", "/v1/tokens", {"name": "root@example.com", "scopes": ["admin"]})
    _, other = server.call("POST", "/v1/tokens", {"name": "team-a/worker"}, as_token(made["secret"]))
    assert other["token"]["created_by"] == "root@example.com" and other["token"]["scopes"] == ["fetch"]


@on_sqlite
def test_tokens_are_listed_by_pages_newest_first(server: RegistryUnderTest) -> None:
    made = [server.ok("POST", "/v1/tokens", {"name": f"p{number}"})["token"]["id"] for number in range(3)]
    first = server.ok("GET", "/v1/tokens?limit=2")
    then = server.ok("GET", f"/v1/tokens?limit=1&after={first['next']}")
    assert [each["id"] for each in first["items"] + then["items"]] == made[::-1]
    listed = json.loads(token(server, "ls", "--json").stdout)["tokens"]
    assert [each["id"] for each in listed[:3]] == made[::-1]


@on_sqlite
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "local"}, "belongs to the tokens of"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["fetch", "root"]}, "scopes"),
        ({"name": "a", "scopes": ["FETCH"]}, "scopes"),
        ({"name": "a", "expires": 0}, "expires"),
        ({"name": "a", "expires": -1}, "expires"),
        ({"name": "a", "expires": 1e12}, "expires"),
        ({"name": "a", "expires": "90d"}, "expires"),
        ({"name": "a", "secret": "mxr_0_0"}, "secret"),
        ({}, "name"),
    ],
)
def test_a_token_that_cannot_be_made(server: RegistryUnderTest, body: Any, words: str) -> None:
    status, said = server.call("POST", "/v1/tokens", body)
    assert status == 422 and words in said["detail"], said


@on_sqlite
@pytest.mark.parametrize(
    ("words", "exit", "said"),
    [
        (("create", "x y"), 2, "name"),
        (("create", "x", "--scopes", ","), 2, "scopes"),
        (("create", "x", "--scopes", "fetch,writ"), 2, "scopes"),
        (("create", "x", "--expires", "tomorrow"), 2, "--expires"),
        (("create", "x", "--expires", "0"), 2, "--expires"),
        (("revoke",), 2, "Which tokens?"),
        (("revoke", "nobody"), 3, "nobody"),
        (("revoke", "nobody", "--created-before", "2026-11-24T20:33:41Z"), 2, "Which tokens?"),
        (("revoke", "--created-before", "yesterday"), 2, "a time such as"),
        (("revoke", "0" * 12), 3, "000000000000"),
    ],
)
def test_a_command_that_is_wrong(server: RegistryUnderTest, words: tuple[str, ...], exit: int, said: str) -> None:
    done = token(server, *words, expect=exit)
    assert said in done.stderr and done.stdout == ""


@on_sqlite
def test_ten_thousand_wrong_tokens_keep_the_log_small(start: Start) -> None:
    """By way of the one place that checks them, and some over the network."""
    server = start()
    size = server.log.stat().st_size
    for number in range(100):
        assert whoami(server, f"mxr_{number:012x}_{number:064x}")[0] == 401
    text = server.log.read_text()[size:]
    assert len(text.splitlines()) == 1 and len(text) < 500
    assert "a request from 127.0.0.1 was refused: The token is not valid here." in text


def test_their_number_is_told_once_a_minute(
    server: RegistryUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moment = [1000.0]
    db = Database(server.rows.url)
    authenticator = Authenticator(db)
    monkeypatch.setattr(authenticator._refusals, "_clock", lambda: moment[0])
    for number in range(10_000):
        with pytest.raises(UnauthenticatedError) as caught:
            authenticator.read(f"mxr_{number:012x}_{number:064x}")
        authenticator.log_refusal("192.0.2.1", caught.value)
        moment[0] += 0.01
    db.close()
    first, second = (each.message.partition("here.")[2] for each in caplog.records)
    assert first == "" and re.fullmatch(r" \((5999|600[01]) more like it in 60 s\)", second)
