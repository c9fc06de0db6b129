"""Models named by their identity: complete, by a prefix, by an old hash."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from mxr.artifact.records import Model
from mxr.cache.store import Cache
from mxr.errors import NoSuchModelError, UsageError
from mxr.request import model as models
from mxr.request.model import complete_identity, find_model
from mxr.util.hashing import StatMemo

ONE, TWO, FAR = ("sha256:" + start + "0" * (64 - len(start)) for start in ("aaaaaaaaaaaa1", "aaaaaaaaaaaa2", "b"))


class KnownModels:
    """A registry that knows some models."""

    def __init__(self, *models: str) -> None:
        self.models = models

    def model_identities(self, prefix: str) -> tuple[str, ...]:
        return tuple(model for model in self.models if model.startswith(prefix))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache that knows one model."""
    found = Cache(tmp_path)
    found.store_model(Model(ONE, "m.onnx", ()))
    return found


def registry(*models: str) -> Any:
    return lambda: KnownModels(*models)


def test_all_digits_need_nobody(cache: Cache) -> None:
    assert complete_identity(FAR, cache, None) == FAR


@pytest.mark.parametrize("prefix", [ONE[:19], ONE[:20], ONE[:70]])
def test_a_prefix_of_one_model(cache: Cache, prefix: str) -> None:
    assert complete_identity(prefix, cache, None) == complete_identity(prefix, cache, registry(FAR)) == ONE
    assert complete_identity(FAR[:19], cache, registry(FAR)) == FAR
    assert find_model(prefix, cache, None).identity == ONE


def test_a_prefix_of_several_models_is_refused(cache: Cache) -> None:
    """Also where only the registry knows the second one."""
    with pytest.raises(UsageError, match="2 models begin with") as caught:
        complete_identity(ONE[:19], cache, registry(TWO))
    assert caught.value.exit == 2 and caught.value.context["models"] == [ONE, TWO]
    assert complete_identity(ONE[:20], cache, registry(ONE, TWO)) == ONE


def test_a_prefix_of_no_model(cache: Cache) -> None:
    with pytest.raises(NoSuchModelError):
        complete_identity(FAR[:19], cache, registry(ONE, TWO))


@pytest.mark.parametrize("text", ["sha256:", "sha256:" + "a" * 11, ONE + "0", ONE.upper(), "sha256:*", ONE[:19] + "*"])
def test_what_is_no_prefix(cache: Cache, text: str) -> None:
    with pytest.raises(UsageError):
        complete_identity(text, cache, registry(ONE))


def test_a_command_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock has many entries of one model, and on NFS, for example, no digest is remembered."""
    path = tmp_path / "m.onnx"
    shutil.copy(DATA / "models" / "convrelu.onnx", path)
    read: list[Path] = []

    def hashed(path: Path, *_: Any) -> str:
        read.append(path)
        return ONE

    monkeypatch.setattr(models, "model_identity", hashed)
    identify = models.identifier(StatMemo(None))
    assert {identify(path) for _ in range(3)} == {ONE} and read == [path]
