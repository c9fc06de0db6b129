"""Files that are not what they should be: exit 65, clear words, and nothing of them anywhere."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import DATA, Programs
from .stack import Host, Registry

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 16437\n"
PAGE = b"<!DOCTYPE html><html><head><title>404</title></head><body>Not Found</body></html>"
FOREIGN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda program: b"", "empty"),
    "cut": (lambda program: program[: len(program) // 2], ""),
    "cut in the last byte": (lambda program: program[:-1], ""),
    "a page": (lambda program: PAGE, "HTML"),
    "gzip": (gzip.compress, "gzip"),
    "an ONNX model": (lambda program: (DATA / "models" / "convrelu.onnx").read_bytes(), "ONNX"),
    "a Git LFS pointer": (lambda program: POINTER, "Git LFS"),
    "an error in JSON": (lambda program: b'{"error":{"code":"no_such_blob"}}', "JSON"),
    "noise": (lambda program: bytes(range(255, 0, -1)) * 9, ""),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_as_a_program_ends_with_65_and_says_what_it_is(
    mxr: Host, model: Path, programs: Programs, registry: Registry, kind: str
) -> None:
    make, word = FOREIGN[kind]
    file = mxr.home / "foreign.mxr"
    file.write_bytes(make(programs.gfx908.read_bytes()))
    before = registry.requests("PUT ")
    for words in (
        ("inspect", file),
        ("push", file, "--model", model, "--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15", "--for", "python"),
    ):
        said = mxr(*words, "--json", expect=65)
        assert said.error["code"] == "damaged"
        assert word in said.error["detail"] + said.error["hint"]
        assert said.error["hint"]
    assert registry.requests("PUT ") == before


def test_the_registry_itself_takes_no_foreign_file_for_a_program(
    registry: Registry, published: dict[str, object], programs: Programs
) -> None:
    from hashlib import sha256

    for data in (PAGE, programs.gfx908.read_bytes()[:-1], POINTER):
        name = sha256(data).hexdigest()
        assert registry.ask("PUT", f"/v1/blobs/{name}", data).status == 201
        blob = {"sha256": name, "size": len(data)}
        manifest = {"v": 1, "files": [{"name": "model.mxr", **blob, "blobs": [blob]}]}
        reply = registry.ask("POST", "/v1/artifacts", {"key": published["key"], "manifest": manifest})
        assert (reply.status, reply.json()["code"]) == (422, "damaged")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    "make",
    [lambda data: b"", cut, lambda data: PAGE, gzip.compress, lambda data: POINTER, lambda data: b'{"a": 1}'],
    ids=["empty", "cut", "a page", "gzip", "a Git LFS pointer", "JSON"],
)
def test_a_foreign_file_as_a_model_ends_with_65(
    mxr: Host, model: Path, gpu: tuple[str, ...], make: Callable[[bytes], bytes]
) -> None:
    model.write_bytes(make(model.read_bytes()))
    error = mxr("fetch", model, *gpu, "--json", expect=65).error
    assert error["code"] == "damaged"
    assert str(model) in error["detail"]


def test_a_program_as_a_model_ends_with_65(mxr: Host, programs: Programs, gpu: tuple[str, ...]) -> None:
    assert mxr("key", programs.gfx908, *gpu, "--json", expect=65).error["code"] == "damaged"


REF = ("--kind", "ref", "--migraphx", "2.16", "--batch", "1", "--for", "python")


def test_weights_in_a_second_file_belong_to_the_model(mxr: Host, external: Path) -> None:
    first = mxr("key", external, *REF, "--json").json
    data = external.with_name("mlp_ext.onnx.data")
    data.write_bytes(data.read_bytes()[:-1] + b"\x01")
    assert mxr("key", external, *REF, "--json").json["model"] != first["model"]
    data.unlink()
    error = mxr("key", external, *REF, "--json", expect=65).error
    assert "mlp_ext.onnx.data" in error["detail"]


@pytest.mark.parametrize(("place", "why"), [("../../weights.dat", "outside"), ("/tmp/weights.data", "absolute path")])
def test_weights_outside_the_folder_of_the_model_are_refused(mxr: Host, external: Path, place: str, why: str) -> None:
    whole = external.read_bytes()
    assert b"mlp_ext.onnx.data" in whole and len(place) == len("mlp_ext.onnx.data")
    external.write_bytes(whole.replace(b"mlp_ext.onnx.data", place.encode()))
    error = mxr("key", external, *REF, "--json", expect=65).error
    assert place in error["detail"] and why in error["detail"]
    assert "next to it" in error["hint"]
