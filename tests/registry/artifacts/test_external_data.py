"""Attacks by external data, sent straight to the API: no such model is ever complete."""

from __future__ import annotations

from typing import Any

import pytest
from harness.hostile_models import attacks, model
from registry.registry_client import RegistryUnderTest, on_sqlite

from mxr.artifact.manifest import Manifest
from mxr.artifact.model_files import ModelFiles
from mxr.util.codec import decode


def register(server: RegistryUnderTest, onnx: bytes, **external: bytes) -> tuple[int, Any, str]:
    """Upload and register a model with its bytes: status, reply and the model's identity."""
    parts = [server.manifest(data, name)["files"][0] for name, data in {"model.onnx": onnx, **external}.items()]
    manifest = {"v": 1, "files": parts}
    named = ModelFiles.of(decode(Manifest, manifest), "model.onnx").model
    status, said = server.call(
        "POST",
        "/v1/models",
        {
            "model": named,
            "name": "m.onnx",
            "inputs": [],
            "onnx": "model.onnx",
            "manifest": manifest,
        },
    )
    return status, said, named


@on_sqlite
@pytest.mark.parametrize("target", ["/proc/self/environ", "../secret"])
def test_a_model_that_names_a_forbidden_file_is_refused(server: RegistryUnderTest, target: str) -> None:
    for what, onnx in attacks(targets=(target,)):
        for external in ({}, {"w.bin": bytes(16)}):
            status, said, named = register(server, onnx, **external)
            assert (status, said["code"]) == (422, "damaged"), what
            assert server.call("GET", f"/v1/models/{named}")[0] == 404, what


@on_sqlite
def test_the_external_data_must_be_that_in_the_manifest(server: RegistryUnderTest) -> None:
    onnx = model(("location", "w.bin"))
    for external in ({}, {"v.bin": bytes(16)}, {"w.bin": bytes(16), "more.bin": b"more"}):
        status, said, named = register(server, onnx, **external)
        assert (status, said["code"]) == (422, "damaged"), external
        assert "manifest" in said["detail"]
        assert server.call("GET", f"/v1/models/{named}")[0] == 404
    # Without `data_location`, MIGraphX reads the file all the same: it belongs to the model.
    for flag in (True, False):
        status, said, _ = register(server, model(("location", "w.bin"), flag=flag), **{"w.bin": bytes(16)})
        assert (status, said["complete"]) == (201, True)


@on_sqlite
def test_what_cannot_be_read_as_a_model_is_refused(server: RegistryUnderTest) -> None:
    """Nobody could tell which files it names."""
    status, said, _ = register(server, b"<!doctype html>" * 9)
    assert (status, said["code"]) == (422, "damaged")
