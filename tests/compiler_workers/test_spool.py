"""The worker's folder: what it keeps, what it drops, and that a transfer can be broken off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.artifact.qualities import Demands
from mxr.errors import Interrupted
from mxr.protocol import jobs as job_protocol
from mxr_workers.spool import KEPT_MODELS, Spool


class Bytes:
    """A registry that has these blobs."""

    def __init__(self, *blobs: bytes) -> None:
        self._blobs = {sha256(each).hexdigest(): each for each in blobs}

    @contextmanager
    def blob(self, sha: str, offset: int = 0, *, direct: bool = True) -> Iterator[Iterator[bytes]]:
        data = self._blobs[sha]
        yield (data[at : at + 10] for at in range(0, len(data), 10))


def lease(number: int, data: bytes, name: str = "model.onnx") -> job_protocol.Lease:
    sha = sha256(data).hexdigest()
    key = Key(f"xxh3:{number:032x}", "ref", "2.15", (("x", (1, 3)),))
    model = Manifest((File(name, len(data), sha, (Blob(sha, len(data)),)),))
    return job_protocol.Lease("ab" * 16, 1, 60.0, key, Demands(), model, name)


def names(spool: Spool) -> set[int]:
    return {int(path.name, 16) for path in (spool.folder / "models").iterdir()}


def test_the_latest_models_are_kept_and_those_in_use(tmp_path: Path) -> None:
    spool, registry = Spool(tmp_path), Bytes(b"a model")
    with spool.keeping(lease(0, b"a model")):
        for number in range(KEPT_MODELS + 4):
            folder = spool.model(registry, lease(number, b"a model"))  # type: ignore[arg-type]
            os.utime(folder, (number, number))
        assert names(spool) == {0, *range(4, KEPT_MODELS + 4)}
    spool.model(registry, lease(99, b"a model"))  # type: ignore[arg-type]
    assert names(spool) == {99, *range(5, KEPT_MODELS + 4)}


def test_a_file_in_a_folder_of_its_model(tmp_path: Path) -> None:
    folder = Spool(tmp_path).model(Bytes(b"w" * 30), lease(1, b"w" * 30, "data/weights.bin"))  # type: ignore[arg-type]
    assert (folder / "data" / "weights.bin").read_bytes() == b"w" * 30


def test_a_transfer_that_is_no_longer_wanted_ends_and_leaves_nothing(tmp_path: Path) -> None:
    came: list[int] = []

    def enough(count: int) -> None:
        came.append(count)
        if len(came) == 2:
            raise Interrupted()

    with pytest.raises(Interrupted):
        Spool(tmp_path).bring(Bytes(b"x" * 1000), lease(1, b"x" * 1000), enough)  # type: ignore[arg-type]
    assert came == [10, 10]
    assert [path for path in (tmp_path / "models").rglob("*") if path.is_file()] == []
