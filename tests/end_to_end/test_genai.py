"""`mxr fetch --genai-config`: every model of a configuration, each with the options that it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from .stack import Host

ON = ("embedded",)

ARCH = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")


def write(folder: Path, **parts: dict[str, str]) -> Path:
    found = {
        name: {"filename": "convrelu.onnx", "session_options": {"provider_options": [{"MIGraphX": options}]}}
        for name, options in parts.items()
    }
    path = folder / "genai_config.json"
    path.write_text(json.dumps({"model": found}))
    return path


def test_each_model_is_fetched(
    host: Callable[..., Host], model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    path, other = write(tmp_path, embedding={}, vision={"exhaustive_tune": "0"}), host("other")
    found = other("fetch", "--genai-config", path, *ARCH, "--json").json["entries"]
    assert [(each["part"], each["id"]) for each in found] == [
        ("embedding", published["id"]),
        ("vision", published["id"]),
    ]
    said = other("fetch", "--genai-config", path, *ARCH, "-o", tmp_path / "out")
    assert said.out.split() == [f"{tmp_path}/out/{part}/convrelu.mxr" for part in ("embedding", "vision")]


def test_what_one_model_lacks_is_said_and_the_others_are_fetched(
    host: Callable[..., Host], model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    path, other = write(tmp_path, decoder={"fp16_enable": "1"}, vision={}), host("other")
    error = other("fetch", "--genai-config", path, *ARCH, "-o", tmp_path / "out", "--json", expect=3).error
    assert error["detail"].startswith("decoder: ") and error["context"]["part"] == "decoder"
    assert any(row["field"] == "precision" for each in error["context"]["nearest"] for row in each["differences"])
    assert (tmp_path / "out" / "vision" / "convrelu.mxr").exists()


def open_model(source: Path, final: Path) -> Path:
    """The model with the symbols of GenAI's builder as dims, for which the program of a prompt of 32 tokens fits."""
    document = onnx.load(source)
    for value in (*document.graph.input, *document.graph.output):
        for dim, symbol in zip(
            value.type.tensor_type.shape.dim,
            ("batch_size", None, "sequence_length", "total_sequence_length"),
            strict=True,
        ):
            if symbol is not None:
                dim.dim_param = symbol
    onnx.save(document, final)
    return final


def document(folder: Path, row: dict[str, Any], **search: Any) -> Path:
    decoder = {"filename": "open.onnx", "session_options": {"provider_options": [row]}}
    path = folder / "genai_config.json"
    path.write_text(json.dumps({"model": {"decoder": decoder}, "search": search}))
    return path


MIGRAPHX = {"name": "MIGraphX", "options": {"device_id": "0", "int8_enable": "0", "exhaustive_tune": "0"}}
TARGET = tuple(word for word in ARCH if word not in ("--batch", "4"))


def test_prompt_and_token_are_one_set(
    host: Callable[..., Host], mxr: Host, model: Path, programs: Any, tmp_path: Path
) -> None:
    """The documented form of an entry; the sizes are those of the configuration, and nothing is placed in part."""
    file = open_model(model, tmp_path / "open.onnx")
    mxr("push", programs.gfx908, "--model", file, "--rocm", "7.2", "--for", "python")
    path, other = document(tmp_path, MIGRAPHX, max_length=32, batch_size=4), host("other")

    said = other("fetch", "--genai-config", path, *TARGET, "-o", tmp_path / "out", "--json", expect=3)
    assert said.error["detail"].startswith("decoder-decode: ")
    assert [row["asked"] for each in said.error["context"]["nearest"] for row in each["differences"]] == [[4, 3, 1, 32]]
    assert "it needs migraphx_int8_enable" in said.err and "prompt of exactly 32 tokens" in said.err
    assert not (tmp_path / "out").exists()

    found = other("fetch", "--genai-config", path, *TARGET, "--input", "x=4,3,32,32", "-o", tmp_path / "out", "--json")
    assert [(each["part"], each["path"]) for each in found.json["entries"]] == [
        (label, f"{tmp_path}/out/{label}/open.mxr") for label in ("decoder-prefill", "decoder-decode")
    ]


def test_a_model_with_fixed_lengths_has_one_program(
    host: Callable[..., Host], model: Path, published: dict[str, Any], tmp_path: Path
) -> None:
    model.rename(tmp_path / "open.onnx")
    path = document(tmp_path, {"AMDGPU": {}}, max_length=32, past_present_share_buffer=True)
    found = host("other")("fetch", "--genai-config", path, *ARCH, "--json").json["entries"]
    assert [(each["part"], each["id"]) for each in found] == [("decoder", published["id"])]
