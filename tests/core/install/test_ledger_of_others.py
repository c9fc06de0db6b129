"""A ledger that another user wrote, or that leads out of the folder, replaces and removes nothing."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from paths import DATA

from mxr.cache.store import Cache
from mxr.errors import DamagedError, MxrError
from mxr.install import consumer_folder, ledger
from mxr.install.ledger import LedgerEntry


def test_a_ledger_that_others_can_write_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    path.write_text("not a ledger")
    with pytest.raises(DamagedError):
        ledger.read_ledger(tmp_path)
    path.chmod(0o666)
    assert ledger.read_ledger(tmp_path) == ledger.Ledger()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_ledger_of_another_user_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    path.write_text("not a ledger")
    os.chown(path, 12345, 12345)
    assert ledger.read_ledger(tmp_path) == ledger.Ledger()


def test_a_ledger_that_is_a_pipe_or_a_link_stops_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ledger.NAME)
    with pytest.raises(DamagedError, match="no regular file"):
        ledger.read_ledger(tmp_path)
    (tmp_path / ledger.NAME).unlink()
    (tmp_path / ledger.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MxrError):
        ledger.read_ledger(tmp_path)


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    """A ledger from a cloned repository, and a link beside it."""
    precious = tmp_path / "home" / "model.onnx"
    precious.parent.mkdir()
    shutil.copyfile(DATA / "models" / "convnet.onnx", precious)
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "link").symlink_to(precious.parent)
    entry = LedgerEntry("link/model.onnx", sha256(precious.read_bytes()).hexdigest())
    consumer_folder._remove(folder, [entry], Cache(tmp_path / "cache"))
    assert precious.exists() and (folder / "link").is_symlink()
