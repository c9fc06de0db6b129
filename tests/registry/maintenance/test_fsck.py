"""fsck finds what was lost or left over, says by name who needs it, and repairs only what it may."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryUnderTest, on_sqlite
from servers.rows import Databases

from mxr_registry.database.session import Database
from mxr_registry.maintenance.fsck import Fsck
from mxr_registry.storage.local import LocalStore


@pytest.fixture(scope="module")
def snapshot(snapshot_of: Any, parts: Parts) -> Any:
    """A registry with one artifact of several blobs; the facts are its document."""
    return snapshot_of(lambda server: server.publish(parts.gfx908, parts.gpu_key(), cut=5000, **parts.explicit)[1])


@pytest.fixture
def stopped(tmp_path: Path, snapshot: Any, databases: Databases) -> Any:
    """What that registry keeps, for this test."""
    found = snapshot.copy(tmp_path / "data", databases)
    found.said = snapshot.facts
    found.names = [blob["sha256"] for blob in found.said["manifest"]["files"][0]["blobs"]]
    return found


def kinds(report: Any) -> list[str]:
    return sorted(each["kind"] for each in report["findings"])


def change(server: RegistryUnderTest, words: str) -> None:
    # What guards references is switched off, as a careless restore does.
    free = ["SET session_replication_role = replica"] if server.rows.environ else []
    server.rows.execute(*free, words)


def put(server: RegistryUnderTest, data: bytes, *, old: bool, temporary: bool = False) -> Any:
    path = server.blob_path(sha256(data).hexdigest())
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(".upload-x") if temporary else path
    path.write_bytes(data)
    if old:
        os.utime(path, (1, 1))
    return path


def test_a_sound_registry_is_clean(stopped: Any, fsck: Any) -> None:
    code, report = fsck(stopped.data)
    assert (code, report["findings"]) == (0, [])
    assert (report["artifacts"], report["blobs"], report["stored"]) == (1, 4, 4)


@on_sqlite
@pytest.mark.parametrize("flags", [(), ("--repair",)])
def test_lost_bytes_are_damage_whoever_repairs(stopped: Any, fsck: Any, flags: Any) -> None:
    stopped.blob_path(stopped.names[0]).unlink()
    code, report = fsck(stopped.data, *flags)
    assert (code, kinds(report)) == (65, ["missing"])
    assert stopped.said["id"] in report["findings"][0]["words"]


@on_sqlite
def test_changed_bytes_are_found_and_set_aside(stopped: Any, fsck: Any) -> None:
    stopped.corrupt(stopped.names[1])
    assert kinds(fsck(stopped.data, "--quick")[1]) == ["bytes"], "by the XXH3-128 that was recorded at the upload"
    stopped.rows.execute("UPDATE blobs SET xxh3 = NULL")
    assert kinds(fsck(stopped.data, "--quick")[1]) == ["bytes"], "without a record, by the sha256"
    code, report = fsck(stopped.data)
    assert (code, kinds(report), report["findings"][0]["repaired"]) == (65, ["bytes"], False)
    assert stopped.blob_path(stopped.names[1]).exists()
    code, report = fsck(stopped.data, "--repair")
    assert (code, kinds(report), report["findings"][0]["repaired"]) == (65, ["bytes"], True)
    assert not stopped.blob_path(stopped.names[1]).exists()


@on_sqlite
def test_cut_off_bytes_are_found_by_size_alone(stopped: Any, fsck: Any) -> None:
    path = stopped.blob_path(stopped.names[1])
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    assert kinds(fsck(stopped.data, "--quick")[1]) == ["size"]


def test_leftovers_are_no_damage_and_go_when_they_are_old(stopped: Any, fsck: Any) -> None:
    paths = [
        put(stopped, b"old orphan", old=True),
        put(stopped, b"new orphan", old=False),
        put(stopped, b"old upload", old=True, temporary=True),
        put(stopped, b"new upload", old=False, temporary=True),
    ]
    code, report = fsck(stopped.data)
    assert (code, kinds(report)) == (0, ["orphan", "orphan", "temporary", "temporary"])
    assert all(path.exists() for path in paths)
    code, report = fsck(stopped.data, "--repair")
    assert (code, [path.exists() for path in paths]) == (0, [False, True, False, True])
    assert kinds(fsck(stopped.data)[1]) == ["orphan", "temporary"]


def test_a_row_that_nothing_needs_is_forgotten(stopped: Any, fsck: Any) -> None:
    change(
        stopped,
        "INSERT INTO blobs (namespace, sha256, size, created_at, touched_at) "
        f"VALUES ('default', '{'0' * 64}', 5, 1, 1)",
    )
    assert fsck(stopped.data)[0] == 0
    assert kinds(fsck(stopped.data, "--repair")[1]) == ["unused"]
    assert fsck(stopped.data)[1]["findings"] == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("DELETE FROM blobs", "database"),
        ("UPDATE artifacts SET digest = id", "row"),
        ("UPDATE artifacts SET id = digest", "row"),
        ("UPDATE artifacts SET manifest_json = '{}'", "row"),
        ("DELETE FROM artifact_blobs", "row"),
    ],
)
def test_rows_that_do_not_fit_together_are_found(stopped: Any, fsck: Any, words: str, kind: str) -> None:
    change(stopped, words)
    code, report = fsck(stopped.data)
    assert (code, kind in kinds(report)) == (65, True), report


def test_a_folder_without_a_registry_is_said(tmp_path: Any) -> None:
    command = ["mxr-registry", "fsck", "--data", str(tmp_path / "none")]
    done = run_program(command)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 2)
    assert not (tmp_path / "none").exists()


@on_sqlite
def test_what_a_sweep_removes_meanwhile_is_no_damage(stopped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that nothing needs, whose bytes go after their size was asked for."""
    stopped.rows.execute("DELETE FROM artifact_inputs", "DELETE FROM artifact_blobs", "DELETE FROM artifacts")
    store = LocalStore(stopped.data / "store")
    read = LocalStore.read

    def gone(self: LocalStore, name: str, *more: Any) -> Any:
        self.path(name).unlink()
        return read(self, name, *more)

    monkeypatch.setattr(LocalStore, "read", gone)
    database = Database(stopped.rows.url)
    report = Fsck(database, store, 0.0, lambda _: None, False, False).run()
    database.close()
    assert {each.kind for each in report.findings} - {"database"} == {"unused"}
