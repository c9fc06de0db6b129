"""The worker's folder: which models it keeps, and how a transfer is interrupted."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from mxr.artifact.attributes import Constraints
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.display import progress
from mxr.errors import InterruptionError, NotAllowedError
from mxr.protocol import jobs as job_protocol
from mxr_workers import spool
from mxr_workers.reading import RefusedInput
from mxr_workers.spool import KEPT, Spool


class FakeRegistry:
    """A registry with these blobs."""

    transfers = None

    def __init__(self, *blobs: bytes) -> None:
        self._blobs = {sha256(each).hexdigest(): each for each in blobs}

    @contextmanager
    def blob(self, sha: str, size: int = 0, *, direct: bool = True, start: int = 0) -> Iterator[Iterator[bytes]]:
        data = self._blobs[sha][start:]
        yield (data[at : at + 10] for at in range(0, len(data), 10))


def lease(number: int, data: bytes, name: str = "model.onnx") -> job_protocol.Lease:
    sha = sha256(data).hexdigest()
    key = Key(f"sha256:{number:064x}", "ref", "2.15", (("x", (1, 3)),))
    model = Manifest((File(name, len(data), sha, (Blob(sha, len(data)),)),))
    return job_protocol.Lease("ab" * 16, 60.0, key, Constraints(), model, name)


def test_a_compile_that_crashed_before_runs_alone(tmp_path: Path) -> None:
    running: list[str] = []
    seen: list[tuple[str, ...]] = []
    begun, waits, end = ({name: threading.Event() for name in "abcd"} for _ in range(3))

    def compile_it(name: str) -> None:
        def wait() -> bool:
            waits[name].set()
            return False

        # A slot of another process has a spool of its own in the same folder.
        with Spool(tmp_path).turn(wait, alone=name == "c"):
            running.append(name)
            seen.append(tuple(running))
            begun[name].set()
            end[name].wait(60)
            running.remove(name)

    threads = {name: threading.Thread(target=compile_it, args=(name,)) for name in "abcd"}
    try:
        for name, at in (("a", begun), ("b", begun), ("c", waits), ("d", waits)):
            threads[name].start()
            assert at[name].wait(60)
        with pytest.raises(InterruptionError), Spool(tmp_path).turn(lambda: True, alone=False):
            pass
        end["a"].set()
        threads["a"].join(60)
        assert not begun["c"].is_set(), "another one runs"
    finally:
        for each in end.values():
            each.set()
        for thread in threads.values():
            if thread.ident:
                thread.join(60)
    assert ("c",) in seen and not any("c" in each and len(each) > 1 for each in seen)


def names(spool: Spool) -> set[int]:
    return {int(path.name, 16) for path in (spool.folder / "models").iterdir()}


def test_recent_models_and_those_in_use_are_kept(tmp_path: Path) -> None:
    spool, registry = Spool(tmp_path), FakeRegistry(b"a model")
    with spool.in_use(lease(0, b"a model")):
        for number in range(KEPT + 4):
            folder = spool.model(registry, lease(number, b"a model"))
            os.utime(folder, (number, number))
        assert names(spool) == {0, *range(4, KEPT + 4)}
    spool.model(registry, lease(99, b"a model"))
    assert names(spool) == {99, *range(5, KEPT + 4)}


def test_recent_calibration_data_and_those_in_use_are_kept(tmp_path: Path) -> None:
    data = [bytes([number]) * 20 for number in range(KEPT + 4)]
    spool, registry = Spool(tmp_path), FakeRegistry(*data)

    def calibrated(number: int) -> job_protocol.Lease:
        found = lease(1, b"a model")
        return replace(found, key=replace(found.key, precision=("int8",), calibration=sha256(data[number]).hexdigest()))

    with spool.in_use(calibrated(0)):
        for number in range(len(data)):
            path = spool.calibration(registry, calibrated(number))
            assert path is not None
            os.utime(path, (number, number))
    kept = {path.stem for path in (tmp_path / "calibration").iterdir()}
    assert kept == {sha256(data[number]).hexdigest() for number in (0, *range(4, KEPT + 4))}


def test_a_model_is_read_only_and_one_that_was_changed_is_not_used(tmp_path: Path) -> None:
    spool, registry = Spool(tmp_path), FakeRegistry(b"a model")
    path = spool.model(registry, lease(1, b"a model")) / "model.onnx"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    before = path.stat()
    path.chmod(0o600)
    path.write_bytes(b"A model")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (spool.model(registry, lease(1, b"a model")) / "model.onnx").read_bytes() == b"a model"


def test_a_file_name_may_contain_a_folder(tmp_path: Path) -> None:
    folder = Spool(tmp_path).model(FakeRegistry(b"w" * 30), lease(1, b"w" * 30, "data/weights.bin"))
    assert (folder / "data" / "weights.bin").read_bytes() == b"w" * 30


def test_an_interrupted_transfer_leaves_no_file(tmp_path: Path) -> None:
    received: list[int] = []

    def interrupt(count: int) -> None:
        received.append(count)
        if len(received) == 2:
            raise InterruptionError()

    with pytest.raises(InterruptionError), progress.shown_by(lambda *_: interrupt):
        Spool(tmp_path).fetch(FakeRegistry(b"x" * 1000), lease(1, b"x" * 1000))
    assert [count for count in received if count > 0] == [10, 10]
    assert [path for path in (tmp_path / "models").rglob("*") if path.is_file()] == []


def test_calibration_data_end_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the registry knows their size: what it sends must not fill the disk."""
    sha = sha256(b"x" * 1000).hexdigest()
    given = lease(1, b"m")
    key = Key(given.key.model, "ref", "2.15", (("x", (1, 3)),), precision=("int8",), calibration=sha)
    monkeypatch.setattr(spool, "MAX_FILE_BYTES", 500)
    with pytest.raises(RefusedInput, match="more than 500 bytes"):
        Spool(tmp_path).calibration(FakeRegistry(b"x" * 1000), replace(given, key=key))
    assert [path for path in (tmp_path / "calibration").rglob("*") if path.is_file()] == []


def test_a_spool_is_private(tmp_path: Path) -> None:
    """It has the models and the calibration data of all teams."""
    Spool(tmp_path / "spool")
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    for mode in (0o755, 0o770):
        (tmp_path / "spool").chmod(mode)
        Spool(tmp_path / "spool")
        assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    (tmp_path / "spool").chmod(0o707)
    with pytest.raises(NotAllowedError, match="Other users can write to"):
        Spool(tmp_path / "spool")
    (tmp_path / "spool").chmod(0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path / "spool", 12_345, 12_345)
        with pytest.raises(NotAllowedError, match="belongs to user 12345"):
            Spool(tmp_path / "spool")
