"""A real nginx."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from . import debian

FRAME = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
}}
"""

PLAIN = """
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 0;
    location / {{
      proxy_pass {target};
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
"""


@contextlib.contextmanager
def nginx(folder: Path, target: str) -> Iterator[str]:
    """The URL of an nginx that passes everything on to `target`."""
    port = free_port()
    with run_nginx(folder, PLAIN.format(port=port, target=target), port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def run_nginx(folder: Path, http: str, port: int) -> Iterator[None]:
    """An nginx with this content of `http {}`, which listens on this port of 127.0.0.1."""
    program = debian.program("nginx", "nginx")
    folder.mkdir()
    (folder / "nginx.conf").write_text(FRAME.format(folder=folder, http=http))
    words = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    process = subprocess.Popen(words)
    try:
        end = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < end, (folder / "error.log").read_text()
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port
