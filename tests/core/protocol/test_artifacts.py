"""The words of API v1: what is read back as it was sent, what is refused, and what an artifact must agree on."""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256
from typing import Any

import pytest
from harness.rows import for_each
from strategies import GPU, MODEL, OTHER_MODEL

from mxr.artifact import limits
from mxr.artifact.attributes import Attributes
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.matching import Match
from mxr.errors import UsageError
from mxr.protocol import artifacts as artifact_protocol
from mxr.util import codec
from mxr.util.codec import Timestamp

DATA = b"a program"
FILE = File("model.mxr", len(DATA), sha256(DATA).hexdigest(), (Blob(sha256(DATA).hexdigest(), len(DATA)),))
MANIFEST = Manifest((FILE,))
ID = artifact_id(GPU.digest, MANIFEST.files)
CLAIM = artifact_protocol.ModelClaim(
    name="resnet50.onnx",
    inputs=(
        artifact_protocol.ModelInput("x", "float32", ("N", 3, None)),
        artifact_protocol.ModelInput("y", "int64", None),
    ),
)
REGISTRATION = artifact_protocol.RegisterModel(CLAIM.name, "model.mxr", MANIFEST, CLAIM.inputs, MODEL)
PUBLISH = artifact_protocol.Publish(GPU, MANIFEST, Attributes("+", "-", 104), {"by": "ci", "run": [1, None]}, CLAIM)
ARTIFACT = artifact_protocol.Artifact(
    id=ID,
    digest=GPU.digest,
    sha256=MANIFEST.sha256,
    size=MANIFEST.size,
    key=GPU,
    attributes=Attributes(libraries=("miopen",)),
    provenance={"file": "a.mxr"},
    published_at=Timestamp(1.7e9),
    origin="built",
    serve="built",
    created_by="local",
    job="ab" * 16,
    worker="one",
    sources={"model": "worker", "arch": "reader"},
    description={"compiled": True},
    manifest=MANIFEST,
)
LISTED = artifact_protocol.ListedArtifact(
    **{field.name: getattr(ARTIFACT, field.name) for field in fields(artifact_protocol.ListedArtifact)}
)
VALUES = [
    CLAIM,
    REGISTRATION,
    PUBLISH,
    ARTIFACT,
    replace(ARTIFACT, promoted_at=Timestamp(1.8e9), description=None, manifest=None),
    artifact_protocol.Model(MODEL, "m.onnx", CLAIM.inputs, True, False, "m.onnx", MANIFEST),
    artifact_protocol.Models((artifact_protocol.Model(MODEL, "m.onnx", (), claimed=True),)),
    artifact_protocol.Artifacts((LISTED,), "17"),
    artifact_protocol.ResolveReply(ARTIFACT, Match(), {"model.mxr": "/v1/x"}),
    artifact_protocol.MissingRequest((Blob("ab" * 32, 5),)),
    artifact_protocol.Missing(("ab" * 32,), 60.0),
    artifact_protocol.Misses(
        (
            artifact_protocol.RecordedMiss(
                ID, GPU.digest, {"key": {}}, 2, Timestamp(1), Timestamp(2), ({"id": ID, "differences": []},)
            ),
        )
    ),
]
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


@each_value
def test_over_the_wire_and_back(value: object) -> None:
    sent = codec.canonical(artifact_protocol.message_document(value))
    found = codec.decode(type(value), codec.parse(sent.encode(), "the body"))
    assert found == value
    assert codec.canonical(artifact_protocol.message_document(found)) == sent


@each_value
def test_unknown_fields_are_refused_and_a_lenient_reader_passes_over_them(value: object) -> None:
    document = artifact_protocol.message_document(value) | {"surprise": 1}
    with pytest.raises(UsageError, match="surprise: unknown field"):
        codec.decode(type(value), document)
    assert codec.decode(type(value), document, lenient=True) == value


@each_value
def test_every_needed_field_is_missed(value: object) -> None:
    document = artifact_protocol.message_document(value)
    for name in codec.shape_of(type(value))[1]:
        with pytest.raises(UsageError, match=f"^{name}: this field is missing"):
            codec.decode(type(value), {field: each for field, each in document.items() if field != name})


@for_each(
    [
        ("key", {"surprise": 1}),
        ("key", {"v": 1}),
        ("key", {"arch": "gfx90a:xnack+"}),
        ("attributes", {"surprise": 1}),
        ("attributes", {"num_cu": "104"}),
        ("attributes", {"libraries": ["cuda"]}),
        ("attributes", {"rocm_patch": "6.4.1"}),
        ("attributes", {"latency_ms": float("inf")}),
        ("manifest", {"surprise": 1}),
        ("manifest", {"files": []}),
        ("model", {"surprise": 1}),
        ("model", {"name": "../m.onnx"}),
        ("model", {"model": OTHER_MODEL}),
        ("model", {"inputs": [{"name": "x", "type": "float32", "dims": [True]}]}),
        ("model", {"inputs": [{"name": "x", "type": "float32", "dims": [10**30]}]}),
        ("model", {"onnx": "m.onnx"}),
        ("provenance", {"a": float("nan")}),
        ("provenance", {"a": "\ud800"}),
        ("provenance", {"a": "x" * limits.MAX_PROVENANCE_BYTES}),
    ]
)
def test_publishing_refuses(name: str, change: dict[str, Any]) -> None:
    document = artifact_protocol.message_document(PUBLISH)
    assert codec.decode(artifact_protocol.Publish, document) == PUBLISH
    document[name] = document[name] | change
    with pytest.raises(UsageError) as caught:
        codec.decode(artifact_protocol.Publish, document)
    assert caught.value.message.encode() and len(caught.value.message) < 400


def test_provenance_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="provenance"):
        artifact_protocol.Publish(GPU, MANIFEST, provenance={"a": deep})


def test_nobody_asks_for_too_many_blobs_at_once() -> None:
    blobs = (Blob("ab" * 32, 1),) * limits.MAX_ASKED
    artifact_protocol.MissingRequest(blobs)
    with pytest.raises(UsageError, match="at most"):
        artifact_protocol.MissingRequest((*blobs, blobs[0]))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "0" * 64},
        {"digest": replace(GPU, migraphx="2.16").digest},
        {"key": replace(GPU, migraphx="2.16")},
        {"sha256": "0" * 64},
        {"manifest": None},
        {"manifest": Manifest((replace(FILE, name="other.mxr"),))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_artifact_agrees_with_itself(change: dict[str, Any]) -> None:
    assert ARTIFACT.sound
    assert not replace(ARTIFACT, **change).sound


@pytest.mark.parametrize("value", ["", "sha256:", "sha256:" + "g" * 64, "xxh3:" + "0" * 32, MODEL + "0", MODEL + "\n"])
def test_what_is_no_model_hash(value: str) -> None:
    with pytest.raises(UsageError, match=r"asked: expected the identity|XXH3 does not"):
        artifact_protocol.check_model(value, "asked")
    assert artifact_protocol.check_model(MODEL) == MODEL
