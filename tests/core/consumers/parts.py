"""Helpers for the tests of layouts: deliveries of small texts as programs, and a cache that holds them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from strategies import GPU

from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache
from mxr.consumers import Consumer
from mxr.consumers.layout import Delivery, Layout
from mxr.install.consumer_folder import write_layout
from mxr.onnxfile import OnnxInput
from mxr.util.codec import Timestamp

INPUTS = (OnnxInput("x", "float32", ("N", 3, 224, 224)),)
OUTPUTS = (OnnxInput("y", "float32", ("N", 1000)),)
FLAGS_OFF = replace(GPU, offload_copy=False, fast_math=False)
BATCH_64 = replace(GPU, inputs=(("x", (64, 3, 224, 224)),))


def delivery(folder: Path, key: Key = GPU, data: bytes = b"program", **fields: Any) -> Delivery:
    """A delivery of `data` for `key`. `fields` are further fields of it, `attributes`, and `described_outputs`."""
    sha = sha256(data).hexdigest()
    file = File("m.mxr", len(data), sha, (Blob(sha, len(data)),))
    batch = key.inputs[0][1][0] if key.inputs and key.inputs[0][1] else 1
    outputs = fields.pop("described_outputs", [{"type": "float_type", "dims": [batch, 1000]}])
    artifact = Artifact(
        id=artifact_id(key.digest, (file,)),
        digest=key.digest,
        sha256=sha,
        size=len(data),
        key=key,
        attributes=fields.pop("attributes", Attributes()),
        provenance={},
        published_at=Timestamp(0),
        origin="built",
        serve="built",
        description={"outputs": outputs},
        manifest=Manifest((file,)),
    )
    plain = {"stem": "m", "constraints": Constraints(), "inputs": INPUTS, "outputs": OUTPUTS}
    return Delivery(key=key, artifact=artifact, folder=folder, **{**plain, **fields})


def held(cache: Cache, data: bytes) -> None:
    """Puts the program into the cache."""
    path = cache.file_path(sha256(data).hexdigest())
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(data)


def place(consumer: Consumer, cache: Cache, made: Delivery, data: bytes = b"program", **how: bool) -> Layout:
    """Computes and places the layout of a delivery."""
    held(cache, data)
    assert consumer.lay_out is not None
    layout = consumer.lay_out(made)
    write_layout(layout, made, consumer.name, cache, **how)
    return layout
