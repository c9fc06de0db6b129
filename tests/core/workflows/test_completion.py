"""What a registry lists for a partial request is held against it, and what disappears in between is a plain miss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core.workflows.test_fetch import lying_registry
from strategies import MODEL

from mxr.artifact.candidates import Candidates, Choice
from mxr.artifact.key import Key
from mxr.cache.store import Cache
from mxr.errors import DamagedError, MxrError, NoSuchArtifactError
from mxr.host_facts import Host
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.protocol.artifacts import message_document
from mxr.request.builder import PreparedRequest, RequestOptions, gather
from mxr.request.model import ModelReference
from mxr.workflows.completion import complete_request
from mxr.workflows.fetch import lookup_prepared

SUBJECT = ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, (OnnxInput("x", "float32", ("N", 3)),), (), (), 17, 8, ""))
KEY = Key(model=MODEL, kind="gpu", arch="gfx908", migraphx="2.15", rocm="7.2", inputs=(("x", (8, 3)),))
OPTIONS = RequestOptions(arch="gfx908", batch=8)


def completed(cache: Cache, reply: Any) -> PreparedRequest:
    built = gather(OPTIONS, SUBJECT, Host())
    with lying_registry(reply) as client:
        return complete_request(built, cache, lambda: client)


def listed(*keys: Key, **more: Any) -> dict[str, Any]:
    rows = tuple(Choice(key, id=f"{number:064x}") for number, key in enumerate(keys))
    return message_document(Candidates(rows, len(rows))) | more


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_one_candidate_completes_the_request(cache: Cache) -> None:
    found = completed(cache, listed(KEY))
    assert found.request.key == KEY
    assert found.assumed == {"migraphx": "2.15", "rocm": "7.2", "offload_copy": True, "fast_math": True}
    stated = [word for row in found.stating for word in row]
    assert stated == ["--rocm", "7.2", "--migraphx", "2.15", "--offload-copy", "--fast-math"]


@pytest.mark.parametrize(
    "reply",
    [
        listed(),
        listed(replace(KEY, arch="gfx90a")),
        listed(replace(KEY, precision=("int8",))),
        listed(replace(KEY, vendor="hygon")),
        listed(replace(KEY, inputs=(("x", (4, 3)),))),
        listed(replace(KEY, env=(("MIGRAPHX_NSTREAMS", "2"),))),
        listed(KEY, replace(KEY, model="sha256:" + "f" * 64)),
        listed(total="one"),
        listed() | {"candidates": [{"id": "x"}]},
        {},
    ],
    ids=range(10),
)
def test_candidates_for_another_request_are_refused(cache: Cache, reply: Any) -> None:
    with pytest.raises(MxrError) as caught:
        completed(cache, reply)
    assert isinstance(caught.value, DamagedError) or "is invalid" in caught.value.message


def test_a_candidate_that_disappears_is_a_miss(cache: Cache) -> None:
    found = completed(cache, listed(KEY))
    gone = NoSuchArtifactError("gone", hint="").to_json()
    with lying_registry(gone, status=404) as client, pytest.raises(NoSuchArtifactError, match="gone"):
        lookup_prepared(found, cache, lambda: client)
