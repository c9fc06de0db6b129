"""A registry as a process, for the benches: on a free port, with the embedded default or on what is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def registry(data: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Starts `mxr-registry serve` and gives its URL; stopped at the end. `more`: added to its environment."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MXR_", "PYTHONDONT"))}
    environ |= dict(more or {})
    command = [str(Path(sys.executable).parent / "mxr-registry"), "serve", "--port", "0", "--data", str(data)]
    server = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        found = re.search(r"http://\S+", server.stdout.readline())
        if not found:
            raise SystemExit("the registry did not start")
        yield found[0]
    finally:
        server.terminate()
        server.wait()
