"""A proxy that ends what is silent for a few seconds, as many do: long polls of workers and waiting clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from end_to_end.stack import Host, Registry
from harness import tokens
from servers.nginx import free_port, run_nginx

from .conftest import REF, Worker, eventually

ON = ("embedded",)
HTTP = """
  log_format what '$request_method $uri $status';
  server {{
    listen 127.0.0.1:{port};
    access_log {log} what;
    location / {{ proxy_pass {url}; proxy_read_timeout 2s; }}
  }}
"""


class ImpatientProxy:
    """An nginx that gives a reply 2 s."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log

    def cut(self, part: str) -> int:
        """How many requests with this in their method and path it has cut."""
        lines = self._log.read_text().splitlines()
        return sum(1 for line in lines if part in line and line.endswith(" 504"))


@pytest.fixture
def proxy(registry: Registry, tmp_path: Path) -> Iterator[ImpatientProxy]:
    """It stands before the registry."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path / "access.log"
    with run_nginx(tmp_path / "nginx", HTTP.format(log=log, port=port, url=registry.url), port):
        tokens.stands_before(url, registry.url)
        yield ImpatientProxy(url, log)


def test_a_wait_goes_on_however_often_it_is_cut(
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    proxy: ImpatientProxy,
) -> None:
    one = worker("one", url=proxy.url).ready()
    eventually(lambda: proxy.cut("POST /v1/jobs/claim") >= 2)
    mxr = host("asker", proxy.url)
    fetch = mxr.start("fetch", marked(compile=f"wait:{gate}"), *REF, "--on-miss", "wait", "--json")
    eventually(lambda: proxy.cut("GET /v1/jobs/") + proxy.cut("POST /v1/jobs/watch") >= 3)
    assert fetch.poll() is None, fetch.communicate()
    gate.touch()
    out, error = fetch.communicate(timeout=120)
    assert fetch.returncode == 0, error
    assert one.process.poll() is None and '"source": "compiled"' in out
    assert one.log.read_text().count(": attempt ") == 1, "the job was compiled once"
    assert "504" not in error, "who waits has no part in it"
