"""The identity of models by the words of docs/keys.md, written a second time without the product's code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

PIECE = 64 * 1024 * 1024


def pieces_of(data: bytes) -> list[str]:
    """The sha256 of each piece of a file."""
    return [sha256(data[at : at + PIECE]).hexdigest() for at in range(0, len(data), PIECE)]


def files_of(onnx: bytes, external: Mapping[str, bytes] | None = None) -> dict[str, object]:
    """The files of a model as JSON."""
    ordered = sorted((external or {}).items(), key=lambda row: row[0].encode())
    return {
        "external": [[name, len(data), pieces_of(data)] for name, data in ordered],
        "onnx": [len(onnx), pieces_of(onnx)],
    }


def model_of(onnx: bytes, external: Mapping[str, bytes] | None = None) -> str:
    """The identity of a model."""
    text = json.dumps(files_of(onnx, external), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return "sha256:" + sha256(b"mxr-model-v2\n" + text.encode()).hexdigest()
