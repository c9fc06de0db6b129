"""Models over HTTP: on a publisher's word, or with their bytes checked."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import xxhash
from paths import DATA
from registry.registry_client import on_sqlite

from mxr.protocol.artifacts import model_identity

MODELS = DATA / "models"
PROGRAMS = MODELS.parent / "mxr_real"
ONNX = (MODELS / "mlp_ext.onnx").read_bytes()
WEIGHTS = (MODELS / "mlp_ext.onnx.data").read_bytes()
INPUTS = [{"name": "x", "type": "float32", "dims": ["N", 256]}, {"name": "y", "type": "int64", "dims": None}]


def hash_of(onnx: bytes, **external: bytes) -> str:
    """The hash by the words of the contract."""
    found = xxhash.xxh3_128(onnx)
    for name in sorted(external, key=str.encode):
        found.update(len(name.encode()).to_bytes(4, "little") + name.encode())
        found.update(len(external[name]).to_bytes(8, "little") + external[name])
    return f"xxh3:{found.hexdigest()}"


def identity(onnx: bytes, **external: bytes) -> str:
    return model_identity(sha256(onnx).hexdigest(), {name: sha256(data).hexdigest() for name, data in external.items()})


def manifest(server: Any, **files: bytes) -> dict[str, Any]:
    parts = [server.manifest(data, name, cut=100_000)["files"][0] for name, data in files.items()]
    return {"v": 1, "files": parts}


@pytest.fixture(scope="module")
def statement() -> dict[str, Any]:
    external = {"mlp_ext.onnx.data": WEIGHTS}
    return {
        "model": hash_of(ONNX, **external),
        "sha256": identity(ONNX, **external),
        "name": "mlp.onnx",
        "inputs": INPUTS,
    }


def test_a_model_with_its_bytes(start: Any, statement: Any) -> None:
    server = start()
    status, said = server.call("POST", "/v1/models", statement)
    assert (status, said["complete"], said["manifest"]) == (200, False, None)
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    status, said = server.call("POST", "/v1/models", {**statement, "onnx": "model.onnx", "manifest": files})
    assert (status, said["complete"], said["onnx"]) == (200, True, "model.onnx")
    assert said["inputs"] == INPUTS
    assert server.call("GET", f"/v1/models/{statement['model']}") == (200, said)
    assert server.call("GET", "/v1/models")[1]["models"] == [{**said, "manifest": None}]
    assert server.call("POST", "/v1/models", statement)[1] == said


@on_sqlite
def test_a_model_that_is_here_is_not_read_again(start: Any, statement: Any) -> None:
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
    assert server.call("POST", "/v1/models", whole) == first
    path.unlink()
    status, said = server.call("POST", "/v1/models", whole)
    assert (status, said["error"]["code"]) == (404, "no_such_blob")


@on_sqlite
def test_a_hash_that_the_bytes_do_not_give_is_refused(server: Any, statement: Any) -> None:
    files = manifest(server, **{"model.onnx": ONNX, "mlp_ext.onnx.data": WEIGHTS})
    other = {**statement, "model": "xxh3:" + "0" * 32, "onnx": "model.onnx", "manifest": files}
    status, said = server.call("POST", "/v1/models", other)
    assert (status, said["error"]["code"]) == (422, "damaged")
    assert said["error"]["detail"]["differences"][0]["found"] == statement["model"]
    other = {**statement, "sha256": "0" * 64, "onnx": "model.onnx", "manifest": files}
    assert server.call("POST", "/v1/models", other)[1]["error"]["detail"]["differences"][0]["field"] == "sha256"
    other = {**statement, "onnx": "other.onnx", "manifest": files}
    assert server.call("POST", "/v1/models", other)[1]["error"]["code"] == "usage"


def test_one_hash_for_two_models_is_a_conflict(server: Any, parts: Any) -> None:
    one = {"model": parts.model, "sha256": "1" * 64, "name": "a.onnx", "inputs": []}
    assert server.call("POST", "/v1/models", one)[0] == 200
    status, said = server.call("POST", "/v1/models", {**one, "sha256": "2" * 64})
    assert (status, said["error"]["code"]) == (409, "conflict")
    status, said = server.publish(parts.gfx908, parts.gpu_key(), model={**one, "sha256": "2" * 64}, **parts.explicit)
    assert (status, said["error"]["code"]) == (409, "conflict")
    assert server.call("GET", "/v1/artifacts")[1]["artifacts"] == []
    assert server.publish(parts.gfx908, parts.gpu_key(), model=one, **parts.explicit)[0] == 201


def test_what_was_checked_replaces_what_was_only_said(server: Any) -> None:
    onnx = (MODELS / "convnet.onnx").read_bytes()
    said = {"model": hash_of(onnx), "sha256": "3" * 64, "name": "wrong.onnx", "inputs": []}
    assert server.call("POST", "/v1/models", said)[0] == 200
    files = manifest(server, **{"convnet.onnx": onnx})
    checked = {**said, "sha256": identity(onnx), "name": "right.onnx", "onnx": "convnet.onnx", "manifest": files}
    status, found = server.call("POST", "/v1/models", checked)
    assert (status, found["name"], found["sha256"]) == (200, "right.onnx", identity(onnx))
    assert server.call("POST", "/v1/models", said)[0] == 409


def test_absent_bytes_and_unknown_models(server: Any, statement: Any) -> None:
    blob = {"sha256": "9" * 64, "size": 5}
    files = {"v": 1, "files": [{"name": "m.onnx", "size": 5, "sha256": "9" * 64, "blobs": [blob]}]}
    status, said = server.call("POST", "/v1/models", {**statement, "onnx": "m.onnx", "manifest": files})
    assert (status, said["error"]["code"]) == (404, "no_such_blob")
    assert server.call("GET", "/v1/models/xxh3:" + "8" * 32)[1]["error"]["code"] == "no_such_model"
    assert server.call("GET", "/v1/models/nothing")[1]["error"]["code"] == "usage"


@on_sqlite
@pytest.mark.parametrize(
    "change",
    [{"inputs": "x"}, {"name": "../x"}, {"onnx": "x"}, {"size": 1}, {"model": "sha256:00"}, {"inputs": [{"name": 1}]}],
)
def test_statements_that_are_not_right_are_refused(server: Any, statement: Any, change: Any) -> None:
    assert server.call("POST", "/v1/models", {**statement, **change})[0] == 422


@on_sqlite
def test_a_program_of_another_model_or_precision_is_refused(start: Any, parts: Any) -> None:
    """Where the registry has the ONNX file; what is only stated proves nothing."""
    server, onnx = start(), (MODELS / "convnet.onnx").read_bytes()
    program, other = ((PROGRAMS / f"{name}_fp16_ref.mxr").read_bytes() for name in ("convnet_b4", "block_b8"))
    stated = {"model": hash_of(onnx), "sha256": identity(onnx), "name": "m.onnx", "inputs": []}
    right, wrong = (parts.ref_key(precision=word, model=stated["model"]) for word in ("fp16", "fp32"))
    wrong_model = parts.ref_key(precision="fp16", model=stated["model"], inputs={"x": [8, 32, 128]})

    assert server.call("POST", "/v1/models", stated)[0] == 200
    assert server.publish(program, wrong)[0] == 201
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": onnx})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 200
    status, said = server.publish(program, wrong)
    assert (status, said["error"]["code"]) == (409, "mismatch")
    assert said["error"]["detail"]["differences"] == [{"field": "precision", "asked": "fp32", "found": "fp16"}]
    status, said = server.publish(other, wrong_model)
    assert status == 409 and said["error"]["detail"]["differences"][0]["field"] == "inputs"
    status, said = server.publish(program, right)
    assert status == 201 and said["description"]["warnings"] == []

    # The same input, precision and number of outputs: the weights show that it is another model.
    onnx = (MODELS / "convrelu.onnx").read_bytes()
    stated = {"model": hash_of(onnx), "sha256": identity(onnx), "name": "m.onnx", "inputs": []}
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": onnx})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 200
    status, said = server.publish(program, parts.ref_key(precision="fp16", model=stated["model"]))
    assert status == 409 and said["error"]["detail"]["differences"][0]["field"] == "outputs.y"


@on_sqlite
def test_declared_dims_of_outputs_that_differ_are_a_warning(start: Any, parts: Any) -> None:
    onnx = pytest.importorskip("onnx")
    server, made = start(), onnx.load(MODELS / "convnet.onnx")
    made.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 99
    data = made.SerializeToString()
    stated = {"model": hash_of(data), "sha256": identity(data), "name": "m.onnx", "inputs": []}
    whole = {"onnx": "m.onnx", "manifest": manifest(server, **{"m.onnx": data})}
    assert server.call("POST", "/v1/models", stated | whole)[0] == 200
    program = (PROGRAMS / "convnet_b4_fp16_ref.mxr").read_bytes()
    status, said = server.publish(program, parts.ref_key(precision="fp16", model=stated["model"]))
    assert status == 201
    (warning,) = said["description"]["warnings"]
    assert "y float32[N, 99]" in warning and "[4,10]" in warning
    assert server.call("GET", f"/v1/artifacts/{said['id']}")[1]["description"]["warnings"] == [warning]
