"""A registry for the benches: the installed command on a free port, embedded or with the servers that are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.registry import RegistryProcess, registry_environ


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
