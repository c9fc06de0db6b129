"""Reading a file that changes meanwhile, on a share that fails, and on a mount without memory maps."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest
from paths import DATA

from mxr.errors import TemporaryError
from mxr.onnxfile import protobuf
from mxr.onnxfile.freezing import freeze
from mxr.onnxfile.protobuf import MalformedProtobuf, opened
from mxr.onnxfile.reader import read_model

MODEL = DATA / "models" / "convrelu.onnx"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that the test changes."""
    path = tmp_path / "m.onnx"
    path.write_bytes(MODEL.read_bytes())
    return path


def test_a_file_that_shrinks_while_it_is_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory map would end the process with SIGBUS."""
    monkeypatch.setattr(protobuf, "WHOLE", 0)
    with pytest.raises(TemporaryError, match="changed while it was read"), opened(model) as data:
        os.truncate(model, 10)
        data[5:5000]


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_what_was_read_of_a_file_that_changes_is_not_used(
    model: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """It may be from two files: neither facts nor "not a model" can be said of it."""
    monkeypatch.setattr(protobuf, "WHOLE", whole)
    with pytest.raises(TemporaryError), opened(model):
        model.write_bytes(b"another")
    with pytest.raises(TemporaryError), opened(model):
        os.truncate(model, 5)
        raise MalformedProtobuf("It contains no graph")


def test_a_share_that_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(TemporaryError, match="Input/output error"):
        read_model(model)


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_a_mount_without_memory_maps(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(mmap, "mmap", fail)
    monkeypatch.setattr(protobuf, "WHOLE", whole)
    read = read_model(model, weight_dims=True)
    assert [each.name for each in read.inputs] == ["x"]
    with (tmp_path / "frozen.onnx").open("wb") as target:
        freeze(model, target, {"x": (4, 3, 32, 32)}, {})
    assert read_model(tmp_path / "frozen.onnx").inputs[0].dims == (4, 3, 32, 32)


def test_a_read_that_gives_less_is_continued(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: read(descriptor, min(length, 7), offset))
    with opened(model) as data:
        assert data[0 : len(data)] == MODEL.read_bytes()
