"""A revoked token stays revoked: in every process, while its client downloads, and after a backup was restored."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Any

import pytest
from harness.programs import command
from harness.programs import run as run_program
from harness.waiting import PendingRequest, until
from harness.workers import claim_of
from registry.registry_client import Parts, RegistryUnderTest, Start, marked, on_sqlite

from mxr_registry.access import tokens
from mxr_registry.access.tokens import list_tokens
from mxr_registry.database.session import Database
from mxr_registry.storage.local import LocalStore

WITHIN = 2.0
"""Seconds after which no registry accepts a token that another one has revoked."""


def make(server: RegistryUnderTest, name: str = "reader", *scopes: str) -> tuple[str, dict[str, str]]:
    """The id of a new token, and the header with it."""
    made = server.ok("POST", "/v1/tokens", {"name": name, "scopes": scopes or ["fetch"]})
    return made["token"]["id"], {"authorization": f"Bearer {made['secret']}"}


def status(server: RegistryUnderTest, header: dict[str, str]) -> int:
    """The status of a request with a token."""
    return int(server.call("GET", "/v1/whoami", headers=header)[0])


def test_within_two_seconds_in_every_other_registry(start: Start, databases: Any, tmp_path: Any) -> None:
    rows = databases(tmp_path / "data")
    one = start(rows=rows)
    two = start(rows=rows)
    id, header = make(one, "loader", "admin")
    data = bytes(range(256)) * 200_000
    name = one.upload(data)["sha256"]
    assert status(one, header) == status(two, header) == 200
    url = f"{two.url}/v1/blobs/{name}?direct=no"
    reply = two.http.request("GET", url, headers=header, preload_content=False)
    first = reply.read(1000)
    one.ok("DELETE", f"/v1/tokens/{id}")
    begun = time.monotonic()
    assert status(one, header) == 401, "at once where it was revoked"
    until(lambda: status(two, header) == 401, WITHIN)
    assert time.monotonic() - begun < WITHIN
    assert {status(each, header) for each in (one, two)} == {401}
    assert first + reply.read() == data, "a download that has begun may end"


def test_a_transfer_may_end_and_the_next_request_may_not(server: RegistryUnderTest, parts: Parts) -> None:
    data = bytes(range(256)) * 200_000
    name = server.upload(data)["sha256"]
    _, artifact = server.publish(parts.gfx908, parts.gpu_key(), **parts.explicit)
    id, header = make(server, "loader", "admin")
    url = f"{server.url}/v1/blobs/{name}?direct=no"
    reply = server.http.request("GET", url, headers=header, preload_content=False)
    begun = reply.read(1000)
    server.ok("DELETE", f"/v1/tokens/{id}")
    assert begun + reply.read() == data
    for path in (f"/v1/blobs/{name}", f"/v1/artifacts/{artifact['id']}/files/model.mxr"):
        assert server.call("GET", path, headers=header)[0] == 401


def test_a_claim_that_waits_gets_no_job_any_more(server: RegistryUnderTest, parts: Parts) -> None:
    model = server.register_model()
    worker = server.register_worker()
    id, header = make(server, "gpu", "work")
    claim = PendingRequest(server.url, "POST", "/v1/jobs/claim", claim_of(worker, wait=60), headers=header)
    server.handled(claim)
    server.ok("DELETE", f"/v1/tokens/{id}")
    job = server.submit(parts.ref_key(model=model, env=marked("revoked claim")))
    assert claim.reply(30)[0] == 401
    assert server.job(job["id"])["state"] == "queued"
    server.ok("POST", f"/v1/jobs/{job['id']}/cancel")


@pytest.mark.parametrize("what", ["?wait=60", "/events", "watch"])
def test_who_follows_a_job_hears_no_more_of_it(server: RegistryUnderTest, parts: Parts, what: str) -> None:
    id, header = make(server, "follower", "admin")
    job = server.submit(parts.ref_key(model=server.register_model(), env=marked(f"followed {what}")))["id"]
    known = {job: server.job(job)["version"]}
    if what == "watch":
        waiting = PendingRequest(server.url, "POST", "/v1/jobs/watch", {"jobs": known, "wait": 60}, headers=header)
    else:
        waiting = PendingRequest(server.url, "GET", f"/v1/jobs/{job}{what}", headers=header)
    until(lambda: waiting.answered) if what == "/events" else server.handled(waiting)
    server.ok("DELETE", f"/v1/tokens/{id}")
    server.ok("POST", f"/v1/jobs/{job}/cancel")
    status, text = waiting.text(30)
    assert (status, "cancelled" in text) == (200 if what == "/events" else 401, False)


@on_sqlite
def test_a_restored_backup_does_not_revive_it(start: Start, tmp_path: Any) -> None:
    server = start()
    id, header = make(server)
    kept, kept_header = make(server, "kept")
    assert server.stop() == 0
    backup = tmp_path / "backup.db"
    shutil.copy(server.data / "registry.db", backup)
    server.start()
    server.ok("DELETE", f"/v1/tokens/{id}")
    assert server.stop() == 0
    shutil.copy(backup, server.data / "registry.db")
    for path in server.data.glob("registry.db-*"):
        path.unlink()
    server.start()
    assert status(server, header) == 401 and status(server, kept_header) == 200
    (found,) = [each for each in server.ok("GET", "/v1/tokens")["items"] if each["id"] == id]
    assert found["state"] == "revoked"
    assert "revoked 1 tokens again" in server.log.read_text()
    assert kept != id


DAY = 86_400.0


def endless(server: RegistryUnderTest, name: str = "reader") -> tuple[str, dict[str, str]]:
    """The id of a new token that never expires, and the header with it."""
    made = server.ok("POST", "/v1/tokens", {"name": name, "expires": None})
    return made["token"]["id"], {"authorization": f"Bearer {made['secret']}"}


def ended(server: RegistryUnderTest, what: str, id: str, days: float) -> None:
    """A time of a token was so many days ago."""
    server.rows.execute(f"UPDATE tokens SET {what} = {time.time() - days * DAY} WHERE id = '{id}'")


def swept(server: RegistryUnderTest, *flags: str) -> int:
    done = run_program(
        command("mxr-registry", "sweep", "--json", "--data", server.data, *flags), env=os.environ | server.rows.environ
    )
    return int(json.loads(done.stdout)["tokens"])


def ids(server: RegistryUnderTest) -> set[str]:
    return {each["id"] for each in server.ok("GET", "/v1/tokens")["items"]}


def test_tokens_that_ended_long_ago_go_with_a_sweep(start: Start) -> None:
    server = start()
    made = {name: endless(server, name)[0] for name in ("valid", "revoked", "lately", "expired", "both", "later")}
    for name in ("revoked", "lately", "both", "later"):
        server.ok("DELETE", f"/v1/tokens/{made[name]}")
    for name, what, days in (
        *(("revoked", "revoked_at", 91), ("lately", "revoked_at", 89), ("expired", "expires_at", 91)),
        *(("both", "revoked_at", 300), ("both", "expires_at", 91)),
        *(("later", "revoked_at", 300), ("later", "expires_at", 89)),
    ):
        ended(server, what, made[name], days)
    before = ids(server)
    assert swept(server, "--dry-run") == 3 and ids(server) == before
    assert swept(server) == 3
    assert before - ids(server) == {made[name] for name in ("revoked", "expired", "both")}
    kept = LocalStore(server.data / "store").revoked_tokens()
    assert kept == {made[name] for name in ("revoked", "lately", "later")}, (
        "what a backup can revive stays in the store"
    )
    assert swept(server) == 0


def test_the_row_of_a_revoked_token_stays_until_the_store_has_its_id(start: Start) -> None:
    server = start()
    id, _ = endless(server)
    server.ok("DELETE", f"/v1/tokens/{id}")
    ended(server, "revoked_at", id, 91)
    (server.data / "store" / "revoked-tokens" / id).unlink()
    assert swept(server) == 0 and id in ids(server)
    server.restart()
    assert swept(server) == 1 and id not in ids(server)


@on_sqlite
def test_a_backup_does_not_revive_a_token_whose_row_is_gone(start: Start, tmp_path: Any) -> None:
    server = start()
    id, header = endless(server)
    assert server.stop() == 0
    backup = tmp_path / "backup.db"
    shutil.copy(server.data / "registry.db", backup)
    server.start()
    server.ok("DELETE", f"/v1/tokens/{id}")
    ended(server, "revoked_at", id, 91)
    assert swept(server) == 1 and status(server, header) == 401
    assert server.stop() == 0
    shutil.copy(backup, server.data / "registry.db")
    for path in server.data.glob("registry.db-*"):
        path.unlink()
    server.start()
    assert status(server, header) == 401


@on_sqlite
def test_what_the_store_did_not_take_is_written_later(start: Start, tmp_path: Any) -> None:
    server = start()
    id, _ = make(server)
    folder = server.data / "store" / "revoked-tokens"
    folder.mkdir(exist_ok=True)
    folder.rmdir()
    folder.write_text("no folder")
    assert server.ok("DELETE", f"/v1/tokens/{id}")["state"] == "revoked", "the database has it all the same"
    assert f"the store does not know yet that token {id} is revoked" in server.log.read_text()
    folder.unlink()
    server.restart()
    assert [each.name for each in folder.iterdir()] == [id]


@on_sqlite
def test_after_a_restore_without_its_store_all_that_the_backup_has_can_be_revoked(start: Start) -> None:
    server = start()
    _, header = make(server, "old", "admin")
    new, fresh = make(server, "new", "admin")
    made = {each["id"]: each["created_at"] for each in server.ok("GET", "/v1/tokens")["items"]}
    words = command("mxr-registry", "token", "revoke", "--json", "--data", server.data, "--created-before", made[new])
    done = run_program(words, env=server.environ)
    assert {each["name"] for each in json.loads(done.stdout)["revoked"]} == {"tests", "old"}
    until(lambda: status(server, header) == 401, WITHIN)
    assert status(server, fresh) == 200


@on_sqlite
def test_names_that_are_no_tokens_are_ignored(start: Start, tmp_path: Any) -> None:
    server = start()
    id, _ = make(server)
    assert server.stop() == 0
    db, store = Database(f"sqlite:///{server.data / 'registry.db'}"), LocalStore(server.data / "store")
    folder = server.data / "store" / "revoked-tokens"
    folder.mkdir(exist_ok=True)
    for name in ("x", "0" * 13, "ABCDEF012345", "0" * 12):
        (folder / name).touch()
    assert store.revoked_tokens() == {"0" * 12}
    assert tokens.reconcile(db, store) == 0, "that token is not in this database"
    with db.reading() as session:
        found = {each["id"]: each["state"] for each in list_tokens(session)["items"]}
    assert found[id] == "valid"
    db.close()


@on_sqlite
def test_a_moved_registry_keeps_it_revoked(start: Start, tmp_path: Any) -> None:
    server = start()
    id, header = make(server)
    server.ok("DELETE", f"/v1/tokens/{id}")
    assert server.stop() == 0
    (server.data / "store" / "revoked-tokens" / ("0" * 12)).touch()
    target = f"sqlite:///{tmp_path / 'moved' / 'registry.db'}"
    (tmp_path / "moved").mkdir()
    for words in (
        ("migrate", "--data", tmp_path / "moved"),
        (
            "move",
            "--data",
            server.data,
            "--to-database",
            target,
            "--to-store",
            f"file://{tmp_path / 'moved' / 'store'}",
        ),
    ):
        done = run_program(command("mxr-registry", *words), env=server.environ)
        assert done.returncode == 0, done
    moved = start(data=tmp_path / "moved")
    assert status(moved, header) == 401
    # One whose row is gone, too: a backup may still have it.
    assert LocalStore(tmp_path / "moved" / "store").revoked_tokens() == {id, "0" * 12}
