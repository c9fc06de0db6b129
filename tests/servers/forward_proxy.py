"""A real forward proxy, proxy.py, which knows one name of this host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.waiting import until
from proxy.http.proxy import HttpProxyBasePlugin

NAME = "registry.test"
"""A name that no resolver knows: only through the proxy does a request get there."""


class LoopbackName(HttpProxyBasePlugin):
    """Makes the proxy resolve that name."""

    def resolve_dns(self, host: str, port: int) -> tuple[str | None, None]:
        return ("127.0.0.1" if host == NAME else None), None


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A running proxy. `log`: a line for each connection that has ended."""

    address: str
    log: Path

    def url(self, account: str = "", scheme: str = "http") -> str:
        return f"{scheme}://{account}{'@' if account else ''}{self.address}"


@contextlib.contextmanager
def forward_proxy(folder: Path, *options: str) -> Iterator[ForwardProxy]:
    """Run the proxy with these options."""
    folder.mkdir()
    port, log = folder / "port", folder / "log"
    words = [sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", "0", "--port-file", str(port)]
    words += ["--num-acceptors", "1", "--num-workers", "1", "--log-file", str(log), "--data-dir", str(folder)]
    words += ["--plugins", f"{__name__}.{LoopbackName.__name__}", *options]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: port.exists() and port.read_text().strip())
        yield ForwardProxy(f"127.0.0.1:{port.read_text().strip()}", log)
    finally:
        process.terminate()
        process.wait(30)
