"""Models over HTTP: with their bytes, as publishers claim them, and under attack."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
import xxhash
from identities import model_of
from paths import DATA
from registry.registry_client import Parts, RegistryUnderTest, Start, on_sqlite
from xxh3_preimage import second_preimage

from mxr.artifact.model_files import ModelFiles, PiecedFile
from mxr.onnxfile.reader import walk_model

MODELS = DATA / "models"
PROGRAMS = MODELS.parent / "mxr_real"
ONNX = (MODELS / "mlp_ext.onnx").read_bytes()
WEIGHTS = (MODELS / "mlp_ext.onnx.data").read_bytes()
INPUTS = [{"name": "x", "type": "float32", "dims": ["N", 256]}, {"name": "y", "type": "int64", "dims": None}]


def manifest(server: RegistryUnderTest, **files: bytes) -> dict[str, Any]:
    parts = [server.manifest(data, name, cut=64 << 20)["files"][0] for name, data in files.items()]
    return {"v": 1, "files": parts}


@pytest.fixture(scope="module")
def statement() -> dict[str, Any]:
    external = {"mlp_ext.onnx.data": WEIGHTS}
    return {
        "model": model_of(ONNX, external),
        "name": "mlp.onnx",
        "inputs": INPUTS,
    }


def test_a_model_with_its_bytes(start: Start, statement: Any) -> None:
    """The registry reads the inputs from the ONNX file, whatever the registration says."""
    server = start()
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    whole = {**statement, "onnx": "model.onnx", "manifest": files}
    status, said = server.call("POST", "/v1/models", whole)
    assert (status, said["complete"], said["claimed"], said["onnx"]) == (201, True, False, "model.onnx")
    assert said["inputs"] == [{"name": "x", "type": "float32", "dims": ["batch", 256]}]
    assert server.call("GET", f"/v1/models/{statement['model']}") == (200, said)
    assert server.call("GET", "/v1/models")[1]["items"] == [{**said, "manifest": None}]
    assert server.call("POST", "/v1/models", {**whole, "name": "other.onnx", "inputs": []})[1] == said


@on_sqlite
def test_a_model_that_is_here_is_not_read_again(start: Start, statement: Any) -> None:
    """Its bytes were checked when they came, and are again by whoever fetches them: here they are others by now."""
    server = start()
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    whole = {**statement, "onnx": "model.onnx", "manifest": files}
    first = server.call("POST", "/v1/models", whole)
    blob = files["files"][1]["blobs"][0]["sha256"]
    path = server.data / "store" / "blobs" / blob[:2] / blob[2:4] / blob
    found = bytearray(path.read_bytes())
    found[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(found)
    assert server.call("POST", "/v1/models", whole) == (200, first[1])
    path.unlink()
    status, said = server.call("POST", "/v1/models", whole)
    assert (status, said["code"]) == (404, "no_such_blob")


@on_sqlite
def test_the_registry_computes_the_identity_for_who_asks(server: RegistryUnderTest) -> None:
    stated = server.registration()
    asked = {name: stated[name] for name in ("name", "onnx", "manifest")}
    for _ in range(2):
        status, said = server.call("POST", "/v1/models", asked)
        assert status in (200, 201) and said["model"] == stated["model"] and said["inputs"]


def test_a_hash_that_the_bytes_do_not_give_is_refused(server: RegistryUnderTest, statement: Any) -> None:
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    other = {**statement, "model": "sha256:" + "0" * 64, "onnx": "model.onnx", "manifest": files}
    status, said = server.call("POST", "/v1/models", other)
    assert (status, said["code"]) == (422, "damaged")
    assert said["context"]["differences"][0]["found"] == statement["model"]
    other = {**statement, "onnx": "other.onnx", "manifest": files}
    assert server.call("POST", "/v1/models", other)[1]["code"] == "usage"


def read_inputs(data: bytes) -> Any:
    return walk_model(Path("m.onnx"), data).inputs


def test_a_statement_without_bytes_creates_and_changes_nothing(start: Start, statement: Any, parts: Parts) -> None:
    server = start()
    for bare in (statement, {**statement, "sha256": "0" * 64}, {**statement, "onnx": None, "manifest": None}):
        assert server.call("POST", "/v1/models", bare)[0] == 422
    # A publication may say something about its model. It stays part of the artifact, and is shown as a claim.
    key = parts.gpu_key(model=statement["model"])
    claim = {"name": "claimed.onnx", "inputs": [{"name": "evil", "type": "float32", "dims": [1]}]}
    status, published = server.publish(parts.gfx908, key, model=claim, **parts.explicit)
    assert (status, published["model"]) == (201, "claimed")
    assert server.call("GET", "/v1/models")[1]["items"] == []
    said = server.call("GET", f"/v1/models/{statement['model']}")[1]
    assert (said["claimed"], said["complete"], said["inputs"]) == (True, False, claim["inputs"])
    # Claims that contradict each other are not chosen from.
    other = {**claim, "inputs": []}
    assert server.publish(parts.ref, parts.ref_key(precision="fp16", model=statement["model"]), model=other)[0] == 201
    status, error = server.call("GET", f"/v1/models/{statement['model']}")
    assert (status, error["code"]) == (404, "no_such_model") and "different" in error["detail"]
    # The bytes decide, and no claim hinders them.
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    whole = server.ok("POST", "/v1/models", {**statement, "onnx": "model.onnx", "manifest": files})
    assert server.call("GET", f"/v1/models/{statement['model']}") == (200, whole)
    assert whole["inputs"] == [{"name": "x", "type": "float32", "dims": ["batch", 256]}]


@on_sqlite
def test_the_sha256_of_a_whole_file_is_checked(server: RegistryUnderTest) -> None:
    """A wrong one would make every worker refuse the model."""
    size = 64 << 20
    # A doc_string of 64 MiB.
    data = (MODELS / "convnet.onnx").read_bytes() + b"\x32\x80\x80\x80\x20" + b"0" * size
    files = server.manifest(data, "model.onnx", cut=size)
    model = model_of(data)
    files["files"][0]["sha256"] = "0" * 64
    stated = {"model": model, "name": "m.onnx", "inputs": [], "onnx": "model.onnx", "manifest": files}
    status, said = server.call("POST", "/v1/models", stated)
    assert (status, said["code"]) == (422, "damaged")
    assert server.call("GET", f"/v1/models/{model}")[0] == 404
    assert server.register_model(data, cut=size) == model
    whole = server.manifest(data, "model.onnx", cut=size // 2)
    status, said = server.call("POST", "/v1/models", {**stated, "manifest": whole})
    assert status == 422 and "64 MiB" in said["detail"]


@on_sqlite
def test_models_with_one_xxh3_hash_are_two_models(start: Start, parts: Parts) -> None:
    """The evil model has the XXH3-128 and the size of the honest one. Nobody gets its program for the honest model."""
    server, honest = start(), (MODELS / "convnet.onnx").read_bytes()
    evil = second_preimage(honest, 200 * 1024, bytes.fromhex("0000803f") * 224)
    assert xxhash.xxh3_128_digest(honest) == xxhash.xxh3_128_digest(evil) and len(honest) == len(evil)
    assert read_inputs(evil) == read_inputs(honest), "it is a valid ONNX file"
    mine, theirs = model_of(honest), server.register_model(evil)
    assert server.publish(parts.ref, parts.ref_key(precision="fp16", model=theirs))[0] == 201
    assert server.call("POST", "/v1/resolve", {"key": parts.ref_key(precision="fp16", model=theirs)})[0] == 200
    assert server.call("GET", f"/v1/models/{mine}")[0] == 404
    assert server.call("POST", "/v1/resolve", {"key": parts.ref_key(precision="fp16", model=mine)})[0] == 404
    assert server.register_model(honest) == mine != theirs
    assert server.call("POST", "/v1/resolve", {"key": parts.ref_key(precision="fp16", model=mine)})[0] == 404
    # The evil bytes under the honest identity, and the other way round.
    for said, data in ((mine, evil), (theirs, honest)):
        status, error = server.call("POST", "/v1/models", {**server.registration(data), "model": said})
        assert (status, error["code"]) == (422, "damaged")
    manifests = [server.ok("GET", f"/v1/models/{model}")["manifest"] for model in (mine, theirs)]
    assert [each["files"][0]["sha256"] for each in manifests] == [sha256(data).hexdigest() for data in (honest, evil)]


@on_sqlite
def test_prefixes_find_stored_and_claimed_models(start: Start, parts: Parts) -> None:
    server = start()
    stored = server.register_model()
    claimed = stored[:19] + "0" * 52
    assert server.publish(parts.gfx908, parts.gpu_key(model=claimed), **parts.explicit)[0] == 201
    names = lambda prefix: {row["model"] for row in server.ok("GET", f"/v1/models?prefix={prefix}")["items"]}  # noqa: E731
    assert names(stored[:19]) == {stored, claimed}
    assert names(stored) == {stored} and names("sha256:" + "0" * 12) == set()
    for bad in ("sha256:123", "%25", "xxh3:" + "0" * 32, stored + "0", stored[:20].upper()):
        assert server.call("GET", f"/v1/models?prefix={bad}")[0] == 422


def test_absent_bytes_and_unknown_models(server: RegistryUnderTest, statement: Any) -> None:
    blob = {"sha256": "9" * 64, "size": 5}
    files = {"v": 1, "files": [{"name": "m.onnx", "size": 5, "sha256": "9" * 64, "blobs": [blob]}]}
    absent = {**statement, "model": ModelFiles(PiecedFile(5, ("9" * 64,))).model, "onnx": "m.onnx", "manifest": files}
    status, said = server.call("POST", "/v1/models", absent)
    assert (status, said["code"]) == (404, "no_such_blob")
    assert server.call("GET", "/v1/models/sha256:" + "8" * 64)[1]["code"] == "no_such_model"
    assert server.call("GET", "/v1/models/nothing")[1]["code"] == "usage"


@on_sqlite
@pytest.mark.parametrize(
    "change",
    [
        {"inputs": "x"},
        {"name": "../x"},
        {"onnx": "x"},
        {"size": 1},
        {"model": "sha256:00"},
        {"inputs": [{"name": 1}]},
        {},
    ],
)
def test_statements_that_are_not_right_are_refused(server: RegistryUnderTest, statement: Any, change: Any) -> None:
    assert server.call("POST", "/v1/models", {**statement, **change})[0] == 422


@on_sqlite
def test_a_program_of_another_model_or_precision_is_refused(start: Start, parts: Parts) -> None:
    """Where the registry has the ONNX file; what is only stated proves nothing."""
    server, onnx = start(), (MODELS / "convnet.onnx").read_bytes()
    program, other = ((PROGRAMS / f"{name}_fp16_ref.mxr").read_bytes() for name in ("convnet_b4", "block_b8"))
    stated = {"model": model_of(onnx), "name": "m.onnx", "inputs": []}
    right, wrong = (parts.ref_key(precision=word, model=stated["model"]) for word in ("fp16", "fp32"))
    wrong_model = parts.ref_key(precision="fp16", model=stated["model"], inputs={"x": [8, 32, 128]})

    assert server.publish(program, wrong)[0] == 201
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": onnx})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 201
    status, said = server.publish(program, wrong)
    assert (status, said["code"]) == (409, "mismatch")
    assert said["context"]["differences"] == [{"field": "precision", "asked": "fp32", "found": "fp16"}]
    status, said = server.publish(other, wrong_model)
    assert status == 409 and said["context"]["differences"][0]["field"] == "inputs"
    status, said = server.publish(program, right)
    assert status == 201 and said["description"]["warnings"] == []

    # The same input, precision and number of outputs: the weights show that it is another model.
    onnx = (MODELS / "convrelu.onnx").read_bytes()
    stated = {"model": model_of(onnx), "name": "m.onnx", "inputs": []}
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": onnx})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 201
    status, said = server.publish(program, parts.ref_key(precision="fp16", model=stated["model"]))
    assert status == 409 and said["context"]["differences"][0]["field"] == "outputs.y"


@on_sqlite
def test_declared_dims_of_outputs_that_differ_are_a_warning(start: Start, parts: Parts) -> None:
    server, made = start(), onnx.load(MODELS / "convnet.onnx")
    made.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 99
    data = made.SerializeToString()
    stated = {"model": model_of(data), "name": "m.onnx", "inputs": []}
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": data})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 201
    program = (PROGRAMS / "convnet_b4_fp16_ref.mxr").read_bytes()
    status, said = server.publish(program, parts.ref_key(precision="fp16", model=stated["model"]))
    assert status == 201
    (warning,) = said["description"]["warnings"]
    assert "y float32[N, 99]" in warning and "[4,10]" in warning
    assert server.call("GET", f"/v1/artifacts/{said['id']}")[1]["description"]["warnings"] == [warning]
