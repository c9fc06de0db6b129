"""`mxr fetch --genai-config`: every model of a configuration, each with the options that it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    assert error["message"].startswith("decoder: ") and error["detail"]["part"] == "decoder"
    assert any(row["field"] == "precision" for each in error["detail"]["nearest"] for row in each["differences"])
    assert (tmp_path / "out" / "vision" / "convrelu.mxr").exists()
