"""A real nginx: that of the machine, or Debian's, unpacked into a folder without being installed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIG = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 0;
    location / {{
      proxy_pass {target};
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
}}
"""


def nginx_program(root: Path) -> str:
    """The path of nginx. `root`: a folder that keeps it. Without apt-get, a skip; where CI is set, a failure."""
    for name in ("nginx", "/usr/sbin/nginx"):
        if found := shutil.which(name):
            return found
    kept = root / "usr" / "sbin" / "nginx"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _unpack(root)
    return str(kept)


def _unpack(root: Path) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if apt is None or dpkg is None:
        _give_up("Install nginx: this machine has no apt-get to download it with.")
    for words in ([apt, "download", "nginx"], [apt, "update", "-qq"], [apt, "download", "nginx"]):
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120, check=False)  # type: ignore[list-item]
        if packages := list(root.glob("nginx_*.deb")):
            subprocess.run([dpkg, "-x", str(packages[0]), str(root)], check=True, timeout=60)  # type: ignore[list-item]
            return
    _give_up(f"nginx cannot be downloaded: {done.stderr[-300:]}")


def _give_up(reason: str) -> None:
    if os.environ.get("CI", "") not in ("", "0", "false"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def nginx(program: str, folder: Path, target: str) -> Iterator[str]:
    """The URL of an nginx that passes everything on to `target`."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port, target=target))
    words = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    process = subprocess.Popen(words)
    try:
        end = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < end, (folder / "error.log").read_text()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
