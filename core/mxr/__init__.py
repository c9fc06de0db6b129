"""mxr: a cache and registry of compiled MIGraphX programs that returns the right program for every GPU.

import mxr
path = mxr.fetch("model.onnx", batch=8).path           # on a GPU host: arch and toolchain are those of the host
print(mxr.inspect(path).archs)
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
    from .api.calls import read_settings
    from .api.fetching import fetch, fetch_set
    from .api.programs import Compatibility, check, explain, host, identity, inspect
    from .api.publishing import lock, precompile, push
    from .artifact.attributes import Attributes, Constraints, Request
    from .artifact.key import Key
    from .artifact.records import Artifact
    from .artifact.target import DynamicDim
    from .cache.store import Cache
    from .client.registry import Client
    from .host_facts import Host
    from .plans.lockfile import LockFile
    from .plans.matrix_run import MatrixStatus
    from .program import Description
    from .request.builder import OptionArguments, RequestOptions
    from .runtime.migraphx_program import load
    from .runtime.ort_session import ort_session
    from .settings import Settings
    from .workflows.fetch import Fetched

__all__ = [
    "Artifact",
    "Attributes",
    "Cache",
    "Client",
    "Compatibility",
    "CompileFailedError",
    "Constraints",
    "DamagedError",
    "Description",
    "DynamicDim",
    "Fetched",
    "Host",
    "Key",
    "LockFile",
    "MatrixStatus",
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
    "check",
    "explain",
    "fetch",
    "fetch_set",
    "host",
    "identity",
    "inspect",
    "load",
    "lock",
    "ort_session",
    "precompile",
    "push",
    "read_settings",
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
        "Artifact": "artifact.records",
        "Description": "program",
        "Host": "host_facts",
        "LockFile": "plans.lockfile",
        "MatrixStatus": "plans.matrix_run",
        "read_settings": "api.calls",
        **dict.fromkeys(("fetch", "fetch_set"), "api.fetching"),
        **dict.fromkeys(("Compatibility", "check", "explain", "host", "identity", "inspect"), "api.programs"),
        **dict.fromkeys(("lock", "precompile", "push"), "api.publishing"),
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
