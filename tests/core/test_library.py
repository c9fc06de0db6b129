"""`import mxr`: its names, its version, and its errors as a program meets them."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import version
from pathlib import Path

import pytest
from paths import DATA

import mxr

CONVNET = DATA / "models" / "convnet.onnx"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mxr.Settings:
    monkeypatch.delenv("MXR_CONSUMER", raising=False)
    return mxr.Settings(registry="http://127.0.0.1:9", cache_dir=tmp_path / "cache")


def test_the_version_is_that_of_the_package() -> None:
    assert mxr.__version__ == version("mxr-cache")


def test_every_exported_name_exists() -> None:
    assert all(getattr(mxr, name) is not None for name in mxr.__all__)
    errors = [name for name in mxr.__all__ if isinstance(getattr(mxr, name), type)]
    errors = [name for name in errors if issubclass(getattr(mxr, name), Exception)]
    assert errors and all(name.endswith("Error") for name in errors)


def test_a_name_that_does_not_exist_is_told_the_nearest(settings: mxr.Settings) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'fetchh'\. Did you mean fetch\?"):
        mxr.fetchh  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError, match=r"no argument 'precison'\. Did you mean precision\?"):
        mxr.fetch(CONVNET, settings=settings, precison="fp16")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no argument 'batch_size'\. Did you mean batch\?"):
        mxr.fetch_set(CONVNET, [1], settings=settings, batch_size=8)  # type: ignore[call-arg]
    with pytest.raises(mxr.UsageError, match=r"no consumer 'tritn'\. Did you mean triton\?"):
        mxr.fetch(CONVNET, settings=settings, consumer="tritn", kind="ref", migraphx="2.16", batch=4)


def test_hints_name_arguments(settings: mxr.Settings) -> None:
    with pytest.raises(mxr.UsageError) as caught:
        mxr.fetch(CONVNET, settings=settings, kind="ref", exact=True, offline=True)
    error = caught.value
    assert 'migraphx="2.15"' in error.hint and "batch=N" in error.hint
    assert "--" not in error.message + error.hint
    with pytest.raises(mxr.UsageError, match="exact=True and allow cannot be used together") as caught:
        mxr.fetch(CONVNET, settings=settings, exact=True, allow=["cu"], kind="ref", migraphx="2.16", batch=4)
    if sys.version_info >= (3, 11):
        shown = "".join(traceback.format_exception(error))
        assert shown.count(error.hint) == 1, "a traceback shows the hint"
    with pytest.raises(mxr.UnreachableError) as offline:
        mxr.fetch(CONVNET, settings=settings, kind="ref", migraphx="2.16", batch=4, consumer="python", offline=True)
    assert "offline=True" in offline.value.message
