"""mxr: the right compiled MIGraphX program for every GPU, and never a wrong one.

import mxr
path = mxr.fetch("model.onnx", batch=8).path           # on a GPU host: everything else from the host
print(mxr.describe_file(path).to_json()["archs"])
program = mxr.load("model.onnx", batch=8)              # the same, checked and loaded by migraphx
"""

from __future__ import annotations

from typing import Any

from .errors import (
    CompileFailed,
    Damaged,
    Mismatch,
    MxrError,
    NoSuchArtifact,
    NotAllowed,
    NotCompiled,
    NoWorker,
    Temporary,
    Unreachable,
    Usage,
)

_ROOMS = {
    "fetch": "library",
    "fetch_set": "library",
    "load": "loading",
    "ort_session": "ort_opening",
    "Options": "asking",
    "Fetched": "fetching",
    "Settings": "settings",
    "Key": "keys",
    "Request": "qualities",
    "Demands": "qualities",
    "Qualities": "qualities",
    "DynamicDim": "target",
    "Client": "client",
    "Cache": "cache",
    "describe_file": "program",
    "detect": "host",
}

__all__ = [
    "CompileFailed",
    "Damaged",
    "Mismatch",
    "MxrError",
    "NoSuchArtifact",
    "NoWorker",
    "NotAllowed",
    "NotCompiled",
    "Temporary",
    "Unreachable",
    "Usage",
    *_ROOMS,
]


def __getattr__(name: str) -> Any:
    """Opens a room when one of its names is first used: importing mxr must cost a starting program nothing."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'mxr' has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"mxr.{_ROOMS[name]}"), name)
    globals()[name] = found
    return found
