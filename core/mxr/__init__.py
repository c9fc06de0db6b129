"""mxr: a cache and registry of compiled MIGraphX programs that returns the right program for every GPU.

import mxr
path = mxr.fetch("model.onnx", batch=8).path           # on a GPU host: arch and toolchain are those of the host
print(mxr.describe_file(path).to_json()["archs"])
program = mxr.load("model.onnx", batch=8)              # fetched, checked and loaded by migraphx
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import (
    CompileFailedError,
    DamagedError,
    MismatchError,
    MxrError,
    NoSuchArtifactError,
    NotAllowedError,
    NotCompiledError,
    NoWorkerError,
    TemporaryError,
    UnreachableError,
    UsageError,
)
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .api import fetch, fetch_set
    from .artifact.attributes import Attributes, Constraints, Request
    from .artifact.key import Key
    from .artifact.target import DynamicDim
    from .cache.store import Cache
    from .client.registry import Client
    from .host_facts import detect
    from .program import describe_file
    from .request.builder import OptionArguments, RequestOptions
    from .runtime.migraphx_program import load
    from .runtime.ort_session import ort_session
    from .settings import Settings
    from .workflows.fetch import Fetched

__all__ = [
    "Attributes",
    "Cache",
    "Client",
    "CompileFailedError",
    "Constraints",
    "DamagedError",
    "DynamicDim",
    "Fetched",
    "Key",
    "MismatchError",
    "MxrError",
    "NoSuchArtifactError",
    "NoWorkerError",
    "NotAllowedError",
    "NotCompiledError",
    "OptionArguments",
    "Request",
    "RequestOptions",
    "Settings",
    "TemporaryError",
    "UnreachableError",
    "UsageError",
    "describe_file",
    "detect",
    "fetch",
    "fetch_set",
    "load",
    "ort_session",
]

if not TYPE_CHECKING:
    _MODULES = {
        "Cache": "cache.store",
        "Client": "client.registry",
        "Constraints": "artifact.attributes",
        "DynamicDim": "artifact.target",
        "Fetched": "workflows.fetch",
        "Key": "artifact.key",
        "RequestOptions": "request.builder",
        "Attributes": "artifact.attributes",
        "Request": "artifact.attributes",
        "OptionArguments": "request.builder",
        "Settings": "settings",
        "describe_file": "program",
        "detect": "host_facts",
        "fetch": "api",
        "fetch_set": "api",
        "load": "runtime.migraphx_program",
        "ort_session": "runtime.ort_session",
    }
    """The module of each name that is imported with its first use: `import mxr` must not slow a program's start."""

    _PACKAGES = ("consumers", "onnxfile")
    """Packages that modules here import with `from mxr import`, which asks for an attribute first."""

    def __getattr__(name):
        if name not in _MODULES:
            message = f"module 'mxr' has no attribute {name!r}"
            if name not in _PACKAGES:
                from .display.text import did_you_mean

                message += f".{did_you_mean(name, __all__)}"
            raise AttributeError(message)
        import importlib

        value = getattr(importlib.import_module(f"mxr.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_MODULES})
