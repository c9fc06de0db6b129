"""A registry for the benches: the installed command on a free port, embedded or with the servers that are named."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.registry import RegistryProcess, registry_environ
from harness.tokens import authorization, token_for, variable

__all__ = [
    "RegistryProcess",
    "authorization",
    "publish_example",
    "registry",
    "registry_process",
    "token_for",
    "variable",
]

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "ref" / "convnet-b4-fp16.mxr"
UNKNOWN = "sha256:" + "00" * 32
"""The identity of a model whose bytes the registry does not have."""


@contextmanager
def registry_process(data: Path, more: Mapping[str, str] | None = None) -> Iterator[RegistryProcess]:
    """Start a registry; stop it at the end. `more` is added to its environment."""
    environ = registry_environ(more)
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # By way of `env`, so that the installed command is executed: a forked program would have its imports for free.
    server = RegistryProcess(data, environ, through=("env",))
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def registry(data: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a registry and give its URL, as `registry_process`."""
    with registry_process(data, more) as server:
        yield server.url


def publish_example(server: RegistryProcess) -> str:
    """Publish a program; the body of the request that resolves to it."""
    data = EXAMPLE.read_bytes()
    name = sha256(data).hexdigest()
    server.call("PUT", f"/v1/blobs/{name}", data)
    file = {"name": "a.mxr", "size": len(data), "sha256": name, "blobs": [{"sha256": name, "size": len(data)}]}
    key: dict[str, Any] = {
        "model": UNKNOWN,
        "kind": "ref",
        "migraphx": "2.16",
        "inputs": {"x": [4, 3, 32, 32]},
        "precision": "fp16",
    }
    key |= {"offload_copy": True, "fast_math": True}
    status, said = server.call("POST", "/v1/artifacts", {"key": key, "manifest": {"v": 1, "files": [file]}})
    assert status == 201, said
    return json.dumps({"key": key})
