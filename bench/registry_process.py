"""A registry as a process, for the benches: on a free port, with the embedded default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def registry(data: Path) -> Iterator[str]:
    """Starts `mxr-registry serve` and gives its URL; stopped at the end."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MXR_", "PYTHONDONT"))}
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
