"""Explain: a miss that is kept, a command, a request as JSON, or a log; and all that is none of these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import GFX908, Parts, RegistryUnderTest, on_sqlite
from urllib3.exceptions import HTTPError

FACTS = {"num_cu": 120, "sramecc": "+", "xnack": "-"}
LOG = """I1126 12:31:02 python_be.cc:2054] TRITONBACKEND_ModelInstanceInitialize: resnet50_0
terminate called after throwing an instance of 'migraphx::exception'
  what():  Failed to call function: hipModuleLoadData: no kernel image is available for execution on the device
error: creating server: Internal - failed to load all models
"""


@pytest.fixture
def published(registry: RegistryUnderTest, parts: Parts) -> dict[str, Any]:
    """A program for an MI100, of a model with a name."""
    claim = {"name": "night.onnx", "inputs": [{"name": "x", "type": "float", "dims": [None, 3, 32, 32]}]}
    status, said = registry.publish(GFX908, parts.gpu_key(), attributes=FACTS, model=claim)
    assert status == 201, said
    found: dict[str, Any] = said
    return found


def explain(visitor: Visitor, text: str, status: int = 200) -> str:
    """The words of the answer."""
    reply = visitor.send("POST", "/explain", {"q": text})
    assert reply.status == status, reply.data[:300]
    visitor.last = reply.data.decode()
    return Visitor.words(visitor.last)


def test_a_miss_that_is_kept_is_explained_field_by_field(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], published: dict[str, Any], parts: Parts
) -> None:
    key = parts.gpu_key(rocm="10.2", migraphx="2.19")
    body = {"key": key, "constraints": {"num_cu": 120, "sramecc": "+", "xnack": "-"}}
    assert registry.call("POST", "/v1/resolve", body, {"mxr-host": "node-17"})[0] == 404
    visitor = signed_in()
    (miss,) = json.loads(visitor.send("GET", "/misses.json").data)["misses"]
    assert f'href="./explain?miss={miss["id"]}"' in visitor.page("/")
    said = visitor.text(f"/explain?miss={miss['id']}")
    assert "No program answers this request" in said and "on node-17" in said and "10.2" in said
    found = json.loads(visitor.send("GET", f"/explain.json?miss={miss['id']}").data)["request"]
    assert [(row["field"], row["asked"], row["found"]) for row in found["grid"]["rows"]] == [
        ("rocm", "10.2", ["7.2"]),
        ("migraphx", "2.19", ["2.15"]),
    ]
    assert found["grid"]["ids"] == [published["id"]]
    assert "node-17" not in signed_in("eve", "fetch").text(f"/explain?miss={miss['id']}")


WHOLE = "mxr fetch night.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 4"
COMMANDS = {
    "mxr fetch night.onnx --arch gfx908:sramecc+:xnack- --rocm 7.2.1 --migraphx 2.15 --batch 4": "answers",
    "$ mxr fetch /models/night.onnx --arch=gfx908 --rocm=7.2 --migraphx 2.15 --input x=4,3,32,32 -o a.mxr": "answers",
    "mxr fetch night.onnx --arch gfx908": "answers",
    "mxr fetch night.onnx --arch gfx908 --num-cu 60 --rocm 7.2 --migraphx 2.15 --batch 4": "Asked for 60 CUs",
    "mxr fetch night.onnx --arch gfx908 --rocm 7.2 --migraphx 2.15 --batch 8": "Asked for x 8×3×32×32",
    f"{WHOLE} --for driver": "offload_copy false",
    f"{WHOLE} --no-fast-math": "fast_math false",
    "mxr fetch night.onnx --arch gfx908 --precision fp16 --on-miss wait --json": "Asked for fp16",
    f"{WHOLE} --env MIGRAPHX_MLIR_TUNE_LIMIT=5": "TUNE_LIMIT 5",
    "mxr fetch night.onnx --arch gfx1201 --allow rocm,cu --tuning exhaustive": "Asked for gfx1201",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_read_by_the_table_of_facts(
    signed_in: Callable[..., Visitor], published: dict[str, Any], command: str
) -> None:
    said = explain(signed_in(), command)
    wanted = COMMANDS[command]
    assert ("answers this request" in said and "No program" not in said) if wanted == "answers" else wanted in said, (
        said
    )
    assert published["id"][:12] in said


def test_nothing_is_counted_or_queued(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], published: dict[str, Any]
) -> None:
    assert published
    explain(signed_in(), "mxr fetch night.onnx --arch gfx1201")
    assert registry.ok("GET", "/v1/misses")["items"] == registry.ok("GET", "/v1/jobs")["items"] == []


def test_a_request_as_json(signed_in: Callable[..., Visitor], published: dict[str, Any], parts: Parts) -> None:
    visitor = signed_in()
    whole = {"key": parts.gpu_key(), "constraints": {}}
    for document in (whole, {"request": whole, "digest": "x"}):
        assert "A program answers this request" in explain(visitor, json.dumps(document))
    partial = {"model": published["key"]["model"], "kind": "gpu", "arch": "gfx90a", "inputs": {"x": None}}
    assert "Asked for gfx90a" in explain(visitor, json.dumps(partial, indent=1))


def test_a_log(signed_in: Callable[..., Visitor]) -> None:
    said = explain(signed_in(), LOG)
    assert "no kernels for this GPU" in said and "Line 3" in said and "mxr check FILE" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Nothing was pasted"),
        ("hello", "has no failure that mxr knows"),
        ("mxr fetch", "names no model"),
        ("mxr fetch " + "a " * 100_000, "more than 32768 letters"),
        ("mxr fetch --arch gfx908", "names no model"),
        ("mxr fetch 'night.onnx", "quote of this command does not end"),
        ("mxr fetch never.onnx --arch gfx908", "knows no model"),
        ("mxr fetch sha256:5b1e07c2a9d4 --arch gfx908", "knows no model"),
        ("mxr fetch night.onnx", "has no arch"),
        ("mxr fetch night.onnx --arch MI100", "gfx908"),
        ("mxr fetch night.onnx --arch gfx908 --rocm seven", "seven"),
        ("mxr fetch night.onnx --arch gfx908 --batch 1,8", "needs one number"),
        ("mxr fetch night.onnx --arch gfx908 --input x=a", "is not a dim"),
        ("mxr fetch night.onnx --arch gfx908 --precision fp12", "fp12"),
        ("mxr fetch night.onnx --arch gfx908 --for nobody", "no consumer"),
        ("mxr fetch night.onnx --arch gfx908 --calibration a.npz", "file of the host"),
        ("{", "JSON"),
        ("{}", "no request"),
        ('{"key": {"model": "<script>"}}', "model"),
        ("[" * 100_000, "has no failure that mxr knows"),
        ("<script>alert(1)</script>\x1b[31m", "has no failure that mxr knows"),
    ],
)
def test_what_cannot_be_read(
    signed_in: Callable[..., Visitor], published: dict[str, Any], text: str, words: str
) -> None:
    assert published
    visitor = signed_in()
    assert words in explain(visitor, text)
    assert "<script>alert" not in visitor.last and "\x1b" not in visitor.last


@on_sqlite
def test_a_log_of_200_megabytes_is_refused(signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in()

    def pieces() -> Any:
        yield b"q="
        for _ in range(4_000):
            yield b"a" * 50_000

    try:
        reply = visitor.send("POST", "/explain", pieces())
    except HTTPError as problem:
        # The registry answers and closes before all of it is sent.
        assert "onnection" in str(problem)
    else:
        assert reply.status == 413 and b"Send less text" in reply.data
    assert visitor.send("GET", "/explain").status == 200


@pytest.mark.parametrize("query", ["?miss=x", "?miss=" + "0" * 63, "?miss=%00"])
def test_what_is_no_miss(signed_in: Callable[..., Visitor], query: str) -> None:
    assert signed_in().send("GET", f"/explain{query}").status == 422


def test_a_miss_that_is_gone(signed_in: Callable[..., Visitor]) -> None:
    reply = signed_in().send("GET", "/explain?miss=" + "0" * 64)
    assert reply.status == 404 and b"not among the misses that are kept" in reply.data
