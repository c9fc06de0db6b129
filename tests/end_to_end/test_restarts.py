"""A rolling restart, as docs/operate.md has it: two registries on PostgreSQL and S3 behind deploy/nginx/mxr.conf.

Clients of all kinds run meanwhile, and no command fails. `make soak` restarts five times under 20 clients.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import tokens
from harness.scale import SOAK

from .compiling.conftest import Worker
from .conftest import unique
from .large_program import MIB, write_program
from .stack import PATIENCE, Host, Registry, finish
from .test_nginx import deployed

ON = ("engines",)
SIGNED = False
ROUNDS, EACH = (5, 5) if SOAK else (1, 2)
DRAIN = "5" if SOAK else "1"
REF = ("--kind", "ref", "--migraphx", "2.15", "--for", "python")


class Clients:
    """Threads that run one command after the other, each with its own host, until told to stop."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self._threads: list[threading.Thread] = []
        self._end = threading.Event()

    def run(self, kind: str, host: Host, commands: Iterator[tuple[object, ...]], *, cold: bool = False) -> None:
        """Begin a client. `cold`: it forgets its cache before each command."""

        def go() -> None:
            for words in commands:
                if self._end.is_set():
                    return
                if cold:
                    host("cache", "rm", "--all")
                found = finish(host.start(*words), PATIENCE)
                self.done[kind] += 1
                if found.code:
                    self.failed.append(f"{kind}: {found}")

        self._threads.append(threading.Thread(target=go))
        self._threads[-1].start()

    def end(self) -> None:
        """Let each finish its command."""
        self._end.set()
        for each in self._threads:
            each.join(PATIENCE)


@pytest.fixture
def clients() -> Iterator[Clients]:
    """All of them have ended when the test ends."""
    made = Clients()
    yield made
    made.end()


def test_a_rolling_restart_fails_no_command(
    own_registry: Callable[..., Registry], clients: Clients, tmp_path: Path, convnet: Path, model: Path
) -> None:
    settings = {"MXR_SERVE_TRUSTED_PROXIES": "127.0.0.1", "MXR_SERVE_DRAIN": DRAIN, "MXR_SERVE_GRACEFUL": "120"}
    first = own_registry(environ=settings)
    both = [first, own_registry(environ=settings, like=first)]
    with deployed("mxr.conf", tmp_path / "nginx", both) as (url, pem):
        made = [first.call("POST", "/v1/tokens", {"name": "all", "scopes": [each]})[1] for each in ("admin", "work")]
        tokens.remember(url, {"admin": made[0]["secret"], "work": made[1]["secret"]})
        secure = {"MXR_CA_FILE": str(pem), "MXR_RETRY": "15"}
        numbers = itertools.count()

        def host() -> Host:
            found = Host(tmp_path / f"host-{next(numbers)}", url)
            found.environ |= secure
            return found

        workers = [Worker(tmp_path / "workers" / name, url, env=secure).ready() for name in ("one", "two")]
        program = write_program(tmp_path / "large.mxr", weights=2, size=8 * MIB, seed=1)
        publisher = host()
        said = publisher("push", program, "--model", model, "--for", "python", "--json").json
        publisher("promote", said["id"])
        exact = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--json")
        batches = itertools.count(2)
        for number in range(EACH):
            other = unique(model, tmp_path / f"other-{number}.onnx", f"other {number}")
            clients.run("fetch", host(), itertools.repeat(("fetch", model, *exact)), cold=True)
            clients.run("push", host(), pushes(tmp_path, number, other))
            clients.run("ls", host(), itertools.cycle([("ls",), ("jobs",), ("workers",)]))
            clients.run("wait", host(), waits(convnet, batches))
        try:
            for each in [*both * ROUNDS]:
                before = sum(clients.done.values())
                each.restart()
                # On the next one only when this one has served clients.
                end = time.monotonic() + 60
                while sum(clients.done.values()) < before + 4 * EACH and time.monotonic() < end:
                    time.sleep(0.1)
        finally:
            clients.end()
        assert clients.failed == [], (clients.done, clients.failed)
        assert set(clients.done) == {"fetch", "push", "ls", "wait"}, clients.done
        for worker in workers:
            worker.end(signal.SIGTERM)
    log = first.log.read_text()
    assert "Traceback" not in log and "bug" not in log and "Errno 9" not in log


def pushes(folder: Path, number: int, model: Path) -> Iterator[tuple[object, ...]]:
    """Another program with each push, of 16 MiB."""
    for turn in itertools.count():
        program = write_program(folder / f"push-{number}.mxr", weights=2, size=8 * MIB, seed=1000 * number + turn)
        yield ("push", program, "--model", model, "--for", "python", "--json")


def waits(model: Path, batches: Iterator[int]) -> Iterator[tuple[object, ...]]:
    """A compile with each fetch."""
    for batch in batches:
        yield ("fetch", model, *REF, "--batch", batch, "--on-miss", "wait", "--json")
