"""A registry on the schema of the next release, as in an upgrade and after going back: it does all it did."""

from __future__ import annotations

import os
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryUnderTest, Start

from mxr_registry.database import schema

TABLES = ("artifacts", "blobs", "models", "jobs", "tokens", "locks", "misses")


@pytest.fixture
def migrated(start: Start) -> Any:
    """A registry that was started again after the next release had migrated its database."""
    server = start()
    server.stop()
    server.rows.execute(
        "CREATE TABLE next_things (name TEXT PRIMARY KEY)",
        *(f"ALTER TABLE {table} ADD COLUMN next_thing TEXT" for table in TABLES),
        *(f"ALTER TABLE {table} ADD COLUMN next_count INTEGER NOT NULL DEFAULT 7" for table in TABLES),
        "UPDATE alembic_version SET version_num = '9999'",
        f"UPDATE registry SET compatible = '{schema.newest()}'",
    )
    server.start()
    return server


def run(server: RegistryUnderTest, *words: str, expect: int = 0) -> str:
    done = run_program(["mxr-registry", *words, "--data", str(server.data)], env=os.environ | server.environ)
    assert done.returncode == expect, done
    return str(done.stdout + done.stderr)


def test_everything_works_on_it(migrated: RegistryUnderTest, parts: Parts) -> None:
    assert "of a newer release (9999)" in migrated.log.read_text()
    model = migrated.register_model()
    key = parts.ref_key(model=model)
    assert migrated.call("POST", "/v1/resolve", {"key": key})[0] == 404
    worker = migrated.register_worker()
    migrated.submit(key)
    made = migrated.finish(migrated.claim(worker))["artifact"]
    assert migrated.ok("POST", "/v1/resolve", {"key": key})["artifact"]["id"] == made
    pushed = migrated.publish(parts.gfx908, parts.gpu_key(), cut=5000, **parts.explicit)[1]
    migrated.ok("PUT", "/v1/locks/one", {"artifacts": [made]})
    token = migrated.ok("POST", "/v1/tokens", {"name": "alice", "scopes": ["fetch"]})["token"]["id"]
    assert migrated.call("DELETE", f"/v1/artifacts/{pushed['id']}")[0] == 200
    # Commands beside it.
    assert "9999" in run(migrated, "status")
    assert token in run(migrated, "token", "revoke", token)
    run(migrated, "sweep", "--unused-days", "1")
    run(migrated, "fsck")
    assert "9999" in run(migrated, "migrate")
    assert "knows only a part" in run(migrated, "move", "--to-database", "sqlite:////nowhere/x.db", expect=2)


def test_a_release_before_that_does_not_start(migrated: RegistryUnderTest) -> None:
    migrated.stop()
    migrated.rows.execute("UPDATE registry SET compatible = '9999'")
    for words in (("serve", "--port", "0"), ("token", "ls"), ("sweep",)):
        said = run(migrated, *words, expect=2)
        assert "revision 9999, which this registry does not know" in said and "Run the mxr-registry that" in said
