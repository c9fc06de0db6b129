"""Backups of an embedded registry: what they hold, what they refuse, and the way back."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryUnderTest, Start
from servers.rows import Databases
from servers.swift import Bucket

from mxr.errors import MxrError
from mxr_registry.maintenance import backup as backups


@pytest.fixture(scope="module")
def engine() -> str:
    """PostgreSQL has its own tools."""
    return "sqlite"


@pytest.fixture(scope="module")
def snapshot(snapshot_of: Any, parts: Parts) -> Any:
    """A registry with one artifact of several blobs; the facts are its document."""
    return snapshot_of(lambda server: server.publish(parts.gfx908, parts.gpu_key(), cut=5000, **parts.explicit)[1])


@pytest.fixture
def source(tmp_path: Path, snapshot: Any, databases: Databases) -> Any:
    """What that registry keeps, for this test; it does not run."""
    found = snapshot.copy(tmp_path / "data", databases)
    found.id = snapshot.facts["id"]
    found.names = [blob["sha256"] for blob in snapshot.facts["manifest"]["files"][0]["blobs"]]
    return found


def run(command: str, *words: object, expect: int = 0, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """The document of a command of `mxr-registry`, or of its error."""
    done = run_program(["mxr-registry", command, "--json", *map(str, words)], env=os.environ | (environ or {}))
    assert done.returncode == expect, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found.get("error", found)


def test_a_second_backup_copies_what_is_new_and_drops_what_is_gone(
    source: Any, start: Start, parts: Parts, fsck: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    first = run("backup", folder, "--data", source.data)
    assert (first["copied"], first["present"], first["dropped"]) == (4, 0, 0)
    assert first["bytes"] == len(parts.gfx908)
    server = start()
    server.publish(parts.gfx942, parts.gpu_key("gfx942"), **parts.explicit)
    second = run("backup", folder, "--data", source.data)
    assert second["copied"] >= 1 and second["present"] == 4
    assert fsck(folder) == (0, fsck(folder)[1]) and fsck(folder)[1]["artifacts"] == 2
    server.stop()
    server.rows.execute("DELETE FROM artifact_blobs", "DELETE FROM artifacts", "DELETE FROM blobs")
    third = run("backup", folder, "--data", source.data)
    assert (third["copied"], third["present"], third["dropped"]) == (0, 0, 4 + second["copied"])
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "registry.db").stat().st_mode & 0o777 == 0o600


def test_damaged_bytes_are_named_and_all_others_are_there(source: Any, tmp_path: Path) -> None:
    source.corrupt(source.names[0])
    source.blob_path(source.names[1]).unlink()
    found = run("backup", tmp_path / "backup", "--data", source.data, expect=65)
    assert sorted(found["damaged"]) == sorted(source.names[:2]) and found["copied"] == 2
    said = run_program(["mxr-registry", "backup", str(tmp_path / "backup"), "--data", str(source.data)], env=os.environ)
    assert said.returncode == 65 and source.names[0] in said.stderr


def test_a_folder_that_is_no_backup_is_left_alone(source: Any, tmp_path: Path, start: Start) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    mine.chmod(mode := 0o755)
    assert "notes.txt" in run("backup", mine, "--data", source.data, expect=2)["detail"]
    for folder in (source.data, source.data / "backup", tmp_path):
        assert "contain each other" in run("backup", folder, "--data", source.data, expect=2)["detail"]
    assert [path.name for path in mine.iterdir()] == ["notes.txt"] and mine.stat().st_mode & 0o777 == mode
    assert "no registry" in run("backup", tmp_path / "b", "--data", tmp_path / "empty", expect=3)["detail"]
    # Somebody serves the backup.
    run("backup", tmp_path / "b", "--data", source.data)
    served = start(data=tmp_path / "b")
    assert "is in use" in run("backup", tmp_path / "b", "--data", source.data, expect=75)["detail"]
    served.stop()
    descriptor = os.open(tmp_path / "b", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "Another backup" in run("backup", tmp_path / "b", "--data", source.data, expect=75)["detail"]
    os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can give files to another user.")
def test_what_root_restores_belongs_to_the_registry(source: Any, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    run("backup", folder, "--data", source.data)
    os.chown(source.data, 1234, 1234)
    for _ in range(2):
        run("restore", folder, "--data", source.data)
        new = [source.data / "registry.db", *(source.data / "store").rglob("*")]
        assert {path.stat().st_uid for path in new} == {1234}


def test_a_restore_keeps_what_was_there_and_the_revocations(
    source: Any, start: Start, parts: Parts, fsck: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    run("backup", folder, "--data", source.data)
    server = start()
    late = server.publish(parts.gfx942, parts.gpu_key("gfx942"), **parts.explicit)[1]
    assert "is in use" in run("restore", folder, "--data", source.data, expect=75)["detail"]
    server.stop()
    revoked = source.data / "store" / "revoked-tokens" / ("ab" * 6)
    revoked.parent.mkdir(exist_ok=True)
    revoked.touch()
    found = run("restore", folder, "--data", source.data)
    assert (found["copied"], found["damaged"]) == (4, [])
    aside = Path(found["aside"])
    assert aside.parent == source.data and {"registry.db", "store"} <= {path.name for path in aside.iterdir()}
    assert revoked.exists() and fsck(source.data)[0] == 0
    assert not (source.data / ".restoring").exists()
    again = start()
    assert again.get(f"/v1/artifacts/{source.id}").status == 200
    assert again.get(f"/v1/artifacts/{late['id']}").status == 404
    again.stop()
    # And to where nothing is.
    found = run("restore", folder, "--data", tmp_path / "new")
    assert found["aside"] is None and fsck(tmp_path / "new")[0] == 0


def test_a_damaged_backup_changes_nothing_unless_it_is_forced(source: Any, tmp_path: Path, fsck: Any) -> None:
    folder = tmp_path / "backup"
    run("backup", folder, "--data", source.data)
    RegistryUnderTest.corrupt(_at(folder), source.names[0])
    error = run("restore", folder, "--data", source.data, expect=65)
    assert source.names[0] in error["detail"] and "--force" in error["hint"]
    assert not list(source.data.glob("before-restore-*"))
    assert fsck(source.data)[0] == 0
    assert run("restore", folder, "--force", "--data", source.data)["damaged"] == [source.names[0]]
    code, report = fsck(source.data)
    assert code == 65 and [each["kind"] for each in report["findings"]] == ["missing"]


def _at(folder: Path) -> Any:
    """The part of a registry that names the files of its store."""

    class Folder:
        data = folder
        blob_path = RegistryUnderTest.blob_path

    return Folder()


@pytest.mark.parametrize("step", range(1, 4))
def test_an_interrupted_restore_is_continued(
    source: Any, tmp_path: Path, fsck: Any, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Stopped while it moves what was there, and what comes: the same command does the rest."""
    folder = tmp_path / "backup"
    run("backup", folder, "--data", source.data)
    rename, calls = Path.rename, iter(range(100))

    def stop_at(path: Path, target: Path) -> Path:
        inside = (".restoring" in str(path) and path.parent.name == ".restoring") or "before-restore" in str(target)
        if inside and next(calls) == step:
            raise KeyboardInterrupt
        return rename(path, target)

    restore = backups.Restore(folder, source.data, None, lambda _: None)
    with monkeypatch.context() as changed, pytest.raises(KeyboardInterrupt):
        changed.setattr(Path, "rename", stop_at)
        restore.run()
    restore.run()
    assert fsck(source.data)[0] == 0
    kept = [path for path in source.data.glob("before-restore-*/*") if path.name in ("registry.db", "store")]
    assert {path.name for path in kept} == {"registry.db", "store"}
    assert {"registry.db", "store"} <= {path.name for path in source.data.iterdir()}
    assert not (source.data / ".restoring").exists()


def test_what_is_no_backup_is_not_restored(source: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no registry.db" in run("restore", tmp_path / "empty", "--data", source.data, expect=3)["detail"]
    (tmp_path / "empty" / "registry.db").write_bytes(b"no database")
    with pytest.raises(MxrError, match="damaged"):
        backups.Restore(tmp_path / "empty", source.data, None, lambda _: None).run()
    postgresql = {"MXR_DATABASE_URL": "postgresql://a@127.0.0.1:1/b"}
    for command in ("backup", "restore"):
        assert "pg_" in run(command, tmp_path / "empty", "--data", source.data, expect=2, environ=postgresql)["detail"]


def test_bytes_in_a_bucket_come_down_and_go_up(source: Any, tmp_path: Path, bucket: Bucket, fsck: Any) -> None:
    for name in source.names:
        bucket.client.put_object(Bucket=bucket.name, Key=bucket.key(name), Body=source.blob_path(name).read_bytes())
    shutil.rmtree(source.data / "store")
    folder = tmp_path / "backup"
    run("adopt-store", "--data", source.data, environ=dict(bucket.environ))
    assert run("backup", folder, "--data", source.data, environ=dict(bucket.environ))["copied"] == 4
    assert fsck(folder)[0] == 0
    for name in bucket.names():
        bucket.client.delete_object(Bucket=bucket.name, Key=name)
    assert run("restore", folder, "--data", source.data, environ=dict(bucket.environ))["copied"] == 4
    assert fsck(source.data, environ=dict(bucket.environ))[0] == 0
