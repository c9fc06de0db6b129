"""What `mxr.load` finds out before MIGraphX would fail over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from core.consumers.parts import delivery
from paths import DATA

from mxr.artifact.matching import Match
from mxr.cache.store import Answer
from mxr.errors import MismatchError
from mxr.request.builder import RequestOptions
from mxr.runtime.migraphx_program import _check, _load_on, _version
from mxr.settings import Settings
from mxr.workflows.fetch import Fetched

PROGRAM = DATA / "mxr_spliced" / "v7_gfx942_sramecc+_xnack-.cov5.mxr"
FOUND = Fetched(PROGRAM, "registry", Answer(delivery(Path("/")).artifact, Match()))


def test_a_file_that_is_not_for_this_target_is_refused_field_by_field() -> None:
    said = {"rocm": "7.2", "migraphx": "2.15"}
    _check(FOUND, Settings(), RequestOptions(arch="gfx942:sramecc+:xnack-", **said))
    with pytest.raises(MismatchError, match="cannot be loaded on this host") as caught:
        _check(FOUND, Settings(), RequestOptions(arch="gfx908", **said))
    assert [row["field"] for row in caught.value.context["differences"]] == ["arch"]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ("2.15.0", "2.15.0"),
        ("2.17.0.dev+2e9924db6", "2.17.0"),
        ("2.16.0.dev+20250912-17-470-gf729a52faf", "2.16.0"),
        ("4.0", "4.0"),
        ("dev", None),
        ("", None),
    ],
)
def test_the_version_of_the_module(told: str, version: str | None) -> None:
    """Forms seen in builds of MIGraphX: src/py/migraphx_py.cpp, MIGRAPHX_VERSION of the build."""

    class Module:
        __version__ = told

    assert _version(Module) == version


def test_a_module_that_takes_a_device_gets_it() -> None:
    """As `file_options.device_id` in C++. Source: qianqing13579/MIGraphX_Dynamic, src/load_save.cpp."""
    asked: list[tuple[str, dict[str, int]]] = []

    class Module:
        @staticmethod
        def load(path: str, **words: int) -> str:
            """load(filename: str, format: str = 'msgpack', device_id: int = 0) -> migraphx.program"""
            asked.append((path, words))
            return path

    for device in (None, 0, 1):
        _load_on(Module, "m.mxr", device)
    assert asked == [("m.mxr", {}), ("m.mxr", {}), ("m.mxr", {"device_id": 1})]
