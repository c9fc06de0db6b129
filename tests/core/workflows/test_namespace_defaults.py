"""The defaults of a namespace are asked for once, remembered for `max_age`, and count while the registry is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from core.workflows.test_fetch import lying_registry

from mxr.artifact.request_defaults import NO_DEFAULTS, RequestDefaults
from mxr.cache.store import Cache, CachePolicy
from mxr.client.registry import Client
from mxr.errors import MxrError, UnreachableError
from mxr.settings import Settings
from mxr.workflows.preparation import REGISTRY_DEFAULTS as SOURCE
from mxr.workflows.preparation import find_namespace_defaults

TOLD = {"rocm": "7.2", "migraphx": None, "consumer": "triton", "batch": 8}
FOUND = RequestDefaults.of({"rocm": "7.2", "consumer": "triton", "batch": 8}, SOURCE)


def nobody() -> Client:
    raise AssertionError("the registry must not be asked")


def away() -> Client:
    return Client(Settings(registry="http://127.0.0.1:9"))


def told(cache: Cache, reply: Any) -> RequestDefaults:
    with lying_registry(reply) as client:
        return find_namespace_defaults(cache, lambda: client)


def cache_in(tmp_path: Path, max_age: float = 3600.0) -> Cache:
    return Cache(tmp_path / "cache", CachePolicy(max_age=max_age))


def test_they_are_remembered_for_max_age(tmp_path: Path) -> None:
    assert told(cache_in(tmp_path), TOLD) == FOUND
    assert find_namespace_defaults(cache_in(tmp_path), nobody) == FOUND
    # Older ones are asked for again.
    assert told(cache_in(tmp_path, max_age=0), {**TOLD, "rocm": "7.3"}).rocm == "7.3"
    assert told(cache_in(tmp_path, max_age=0), {}) == NO_DEFAULTS
    assert find_namespace_defaults(cache_in(tmp_path), nobody) == NO_DEFAULTS


def test_what_was_told_last_counts_without_a_registry(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, max_age=0)
    assert find_namespace_defaults(cache, None) == NO_DEFAULTS
    assert find_namespace_defaults(cache, away) == NO_DEFAULTS
    # Several programs of one call do not wait for it each.
    assert find_namespace_defaults(cache, nobody) == NO_DEFAULTS
    told(cache_in(tmp_path), TOLD)
    cache = cache_in(tmp_path, max_age=0)
    assert find_namespace_defaults(cache, None) == FOUND
    assert find_namespace_defaults(cache, away) == FOUND


@pytest.mark.parametrize(
    "reply",
    [
        {"rocm": "seven"},
        {"rocm": 7.2},
        {"batch": 0},
        {"batch": [1, 2]},
        {"consumer": ""},
        {"migraphx": "x" * 10000},
        [],
    ],
    ids=str,
)
def test_an_invalid_reply_is_an_error_and_not_remembered(tmp_path: Path, reply: Any) -> None:
    cache = cache_in(tmp_path)
    with pytest.raises(MxrError, match=r"The reply of the registry at .* is invalid") as caught:
        told(cache, reply)
    assert not isinstance(caught.value, UnreachableError) and len(str(caught.value)) < 500
    assert find_namespace_defaults(cache, None) == NO_DEFAULTS


@pytest.mark.parametrize("stored", [{"rocm": 7}, [], None, "x"], ids=str)
def test_a_damaged_record_is_asked_for_again(tmp_path: Path, stored: Any) -> None:
    cache = cache_in(tmp_path)
    told(cache, TOLD)
    cache.store_defaults(stored)
    assert find_namespace_defaults(cache, None) == NO_DEFAULTS
    assert told(cache, TOLD) == FOUND
