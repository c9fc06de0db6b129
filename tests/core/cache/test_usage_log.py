"""Uses noted beside the cache: none is lost between processes, and nothing about them can fail a fetch."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mxr.cache import usage_log
from mxr.cache.folder import CacheFolder
from mxr.cache.partition import Partition
from mxr.errors import UnreachableError
from mxr.protocol import artifacts as artifact_protocol

ONE, TWO = "a" * 64, "b" * 64


def at(root: Path) -> Partition:
    """The partition of a registry in a cache."""
    return Partition(CacheFolder(root, "v2"), "r")


def uses(root: Path) -> Path:
    """The log in it."""
    return CacheFolder(root, "v2").prepare_path("r/uses")


class Listener:
    """A client that hears what is told; with `away` it is not reached."""

    def __init__(self, away: bool = False) -> None:
        self.away = away
        self.heard: list[artifact_protocol.Use] = []

    def report_uses(self, some: tuple[artifact_protocol.Use, ...]) -> artifact_protocol.UsesAccepted:
        if self.away:
            raise UnreachableError("no registry")
        self.heard += some
        return artifact_protocol.UsesAccepted(len(some))


def _note(root: Path, count: int) -> None:
    for _ in range(count):
        usage_log.log_use(at(root), ONE)


def test_each_use_is_told_once(tmp_path: Path) -> None:
    for identity in (ONE, TWO, ONE):
        usage_log.log_use(at(tmp_path), identity)
    client = Listener()
    usage_log.report_uses(at(tmp_path), client)
    usage_log.report_uses(at(tmp_path), client)
    assert {use.id: use.count for use in client.heard} == {ONE: 2, TWO: 1}
    assert list(uses(tmp_path).parent.iterdir()) == []


def test_processes_note_at_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4) as pool:
        for done in [pool.submit(_note, tmp_path, 200) for _ in range(4)]:
            done.result()
    client = Listener()
    usage_log.report_uses(at(tmp_path), client)
    assert [use.count for use in client.heard] == [800]


def test_what_a_registry_could_not_be_told_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage_log.log_use(at(tmp_path), ONE)
    usage_log.report_uses(at(tmp_path), Listener(away=True))
    client = Listener()
    usage_log.report_uses(at(tmp_path), client)
    assert client.heard == []
    # The change time of a file cannot be set: the patience is what is shortened.
    monkeypatch.setattr(usage_log, "LATE", -1.0)
    usage_log.report_uses(at(tmp_path), client)
    assert [use.id for use in client.heard] == [ONE]


def test_foreign_lines_and_clocks_that_jump(tmp_path: Path) -> None:
    uses(tmp_path).write_bytes(b"\xff\xfe\n" + f"{ONE} {int(time.time()) + 9999}\nx y z\n{TWO} later\n".encode())
    client = Listener()
    usage_log.report_uses(at(tmp_path), client)
    assert [(use.id, use.count, use.ago) for use in client.heard] == [(ONE, 1, 0.0)]


def test_notes_are_bounded(tmp_path: Path) -> None:
    uses(tmp_path).write_bytes(b"x" * usage_log.MAX_BYTES)
    usage_log.log_use(at(tmp_path), ONE)
    assert uses(tmp_path).stat().st_size == usage_log.MAX_BYTES


def test_a_cache_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    usage_log.log_use(at(tmp_path / "file"), ONE)
    usage_log.report_uses(at(tmp_path / "file"), Listener())
    assert (tmp_path / "file").read_bytes() == b""
