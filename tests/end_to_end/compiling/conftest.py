"""Parts for compiles with real processes: a registry with short leases, workers with a double of MIGraphX, models."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from end_to_end.conftest import unique
from end_to_end.stack import PATIENCE, Host, Registry, Stack, clean_environ, eventually
from harness import tokens
from harness.programs import Program
from paths import DOUBLES
from urllib3.exceptions import HTTPError

REF = ("--kind", "ref", "--migraphx", "2.15", "--batch", "4", "--for", "python")
"""A request that the double of MIGraphX can compile for."""

GPU = ("--arch", "gfx90a:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")
"""The same for the GPU that the double has."""

GPU_HOST = {
    "targets": [{"arch": "gfx90a", "sramecc": "+", "xnack": "-", "num_cu": 104, "chiplets": 1, "name": "a double"}],
    "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"},
}

RULES = """
[work]
lease = 2.0
lost_after = 6.0
backoff = 0.1
backoff_most = 0.5
"""


class Worker:
    """`mxr-worker run` on a host of its own, with the double of MIGraphX on its PYTHONPATH."""

    def __init__(
        self, home: Path, url: str, *words: str, kind: str = "ref", env: Mapping[str, str] | None = None, site: str = ""
    ) -> None:
        """`site` is Python that every interpreter of this host runs at its start, the worker's and its children's.

        What stands in its `site/migraphx_double.json` holds; the double is a quick one.
        """
        (home / "site").mkdir(parents=True, exist_ok=True)
        double = home / "site" / "migraphx_double.json"
        settings = json.loads(double.read_text()) if double.exists() else {}
        double.write_text(json.dumps({"quick": True, **settings}))
        (home / "site" / "sitecustomize.py").write_text(site)
        (home / "host.json").write_text(json.dumps(GPU_HOST))
        self.name, self.home = home.name, home
        self.log = home / "worker.log"
        self.environ = worker_environ(home) | {"MXR_REGISTRY": url, "MXR_WORKER_NAME": self.name}
        self.environ |= {"MXR_HOST": str(home / "host.json"), **tokens.variable(url, "work"), **(env or {})}
        with self.log.open("ab") as log:
            self.process = Program(
                ["mxr-worker", "run", "--kind", kind, *words],
                env=self.environ,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def said(self, text: str) -> bool:
        """Whether its log tells this."""
        return text in self.log.read_text()

    def ready(self) -> Worker:
        """Waits until it is registered."""
        eventually(lambda: self.said("registered") or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return self

    def send(self, number: int) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Stops it, and gives its exit number."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def worker_environ(home: Path) -> dict[str, str]:
    """The environment of a host whose interpreter has the double of MIGraphX, and what is in the folder `site`."""
    path = os.pathsep.join([str(DOUBLES), str(home / "site")])
    return clean_environ(home) | {"PYTHONPATH": path, "MXR_WORKER_MEMORY": str(2 << 30), "MXR_WORKER_GRACE": "1"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Registry]:
    """The registry of this module, with leases of two seconds."""
    home = tmp_path_factory.mktemp("registry")
    (home / "registry.toml").write_text(RULES)
    found = Registry(home, stack, environ={"MXR_REGISTRY_CONFIG": str(home / "registry.toml")})
    yield found
    found.kill9()


@pytest.fixture
def worker(tmp_path: Path, registry: Registry) -> Iterator[Callable[..., Worker]]:
    """Starts workers, `worker("one")`, each on a host of its own; all are gone when the test ends."""
    started: list[Worker] = []

    def start(name: str, *words: str, url: str | None = None, **more: Any) -> Worker:
        started.append(Worker(tmp_path / "workers" / name, url or registry.url, *words, **more))
        return started[-1]

    yield start
    for each in started:
        each.end(signal.SIGKILL)
        # Otherwise it counts as live for some seconds of the next test.
        for file in each.home.rglob("credentials/*"):
            with suppress(HTTPError):
                registry.ask("POST", "/v1/workers/sign-off", {"credential": file.read_text()})


@pytest.fixture
def marked(tmp_path: Path, convnet: Path) -> Callable[..., Path]:
    """A model of this test alone that makes the double do something: `marked(compile="crash:SIGSEGV")`."""
    import onnx
    from onnx import helper

    def make(**marks: str) -> Path:
        model = onnx.load(str(convnet))
        helper.set_model_props(model, {f"double.{when}": what for when, what in marks.items()})
        path = tmp_path / "marked.onnx"
        onnx.save(model, str(path))
        return unique(path, tmp_path / "marked-of-test.onnx", str(tmp_path))

    return make


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that does not exist yet; a model with `compile=f"wait:{gate}"` is compiled once it does."""
    return tmp_path / "gate"


def crowd(mxr: Host, model: Path, folder: Path, threads: int) -> subprocess.Popen[str]:
    """A process with so many threads that all wait for one program; it prints a line for each."""
    code = Path(__file__).with_name("crowd.py").read_text()
    words = ["python", "-c", code, str(model), str(folder), str(threads)]
    return Program(words, env=mxr.environ, stdout=subprocess.PIPE, text=True)


def job_in(text: str) -> str:
    """The job's id that a message tells of."""
    found = re.search(r"job ([0-9a-f]{12,32})", text)
    assert found, text
    return found[1]


def running(mxr: Host, job: str) -> bool:
    """Whether a job is being compiled now."""
    found = mxr.get(f"/v1/jobs/{job}")
    return bool(found["state"] == "running" and found["phase"] == "compile")


def running_job(mxr: Host) -> str:
    """The id of a running job, once there is one."""
    found = eventually(lambda: mxr.get("/v1/jobs?state=running")["items"])
    assert isinstance(found[0]["id"], str)
    return found[0]["id"]


def asked(mxr: Host, model: Path) -> str:
    """The id of a job that was asked for."""
    found = mxr("fetch", model, *REF, "--on-miss", "ask", "--json", expect=4).error["context"]["job"]
    assert isinstance(found, str)
    return found


def closed(mxr: Host, job: str) -> dict[str, Any]:
    """A job once it is closed."""
    eventually(lambda: mxr.get(f"/v1/jobs/{job}")["state"] not in ("queued", "running"))
    found: dict[str, Any] = mxr("jobs", job, "--json").json
    return found
