"""Interpreters for the workers' tests: one with a double of migraphx, and the real one where it is."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from paths import DOUBLES

from mxr.artifact.key import Key
from mxr.artifact.qualities import Qualities
from mxr_workers.compilation import Compiled, CompileEnvironment, CompileTask, compile_program
from mxr_workers.interpreter import Interpreter, ask
from mxr_workers.sandbox import ChildLimits, ChildObserver

from .graphs import GRAPHS, Graph

SECONDS = ChildLimits(seconds=60, memory=2 << 30)
MODEL = "xxh3:" + "0" * 32


@dataclass(frozen=True)
class Bench:
    """An interpreter, and what to compile for with it."""

    interpreter: Interpreter
    kind: str
    migraphx: str

    def key(self, graph: Graph, batch: int = 1, **more: object) -> Key:
        """The key of a graph."""
        inputs = more.pop("inputs", None) or graph.dims(batch)
        pairs = tuple((name, tuple(dims)) for name, dims in inputs.items())
        base = {"model": MODEL, "kind": self.kind, "migraphx": self.migraphx, "inputs": pairs}
        gpu = {"arch": "gfx90a", "rocm": "7.2"} if self.kind == "gpu" else {}
        return Key(**{**base, **gpu, **more})

    def qualities(self, **more: object) -> Qualities:
        """What a worker states."""
        gpu = {"sramecc": "+", "xnack": "-"} if self.kind == "gpu" else {}
        return Qualities(**{**gpu, **more})


@dataclass(frozen=True)
class Trade:
    """Compiles graphs in a folder of the test's own."""

    bench: Bench
    folder: Path

    def compile(
        self,
        graph: str = "gemm",
        *,
        marks: dict[str, str] | None = None,
        limits: ChildLimits = SECONDS,
        watch: ChildObserver | None = None,
        shop: dict | None = None,
        order: dict | None = None,
        spoil: Callable[[Path], None] | None = None,
        **key: object,
    ) -> Compiled:
        """Write the graph, `spoil` it, and compile it."""
        made = GRAPHS[graph]
        models = self.folder / "models"
        models.mkdir(exist_ok=True)
        path = made.write(models, marks)
        if spoil is not None:
            spoil(path)
        qualities = self.bench.qualities(**(order or {}).pop("qualities", {}))
        wanted = CompileTask(self.bench.key(made, **key), qualities, path.name, **(order or {}))
        work = CompileEnvironment(
            self.bench.interpreter, self.folder / "work", limits, limits, watch or ChildObserver(), **(shop or {})
        )
        return compile_program(wanted, models, work)


def double_interpreter(folder: Path, **settings: object) -> Interpreter:
    """The tests' own interpreter with the double, whose settings stand in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "migraphx_double.json").write_text(json.dumps(settings))
    path = f"{DOUBLES}{os.pathsep}{folder}"
    return Interpreter(Path(sys.executable), {"PATH": os.environ["PATH"], "PYTHONPATH": path})


def real_interpreter() -> Interpreter:
    """The interpreter that MXR_TEST_MIGRAPHX_PYTHON names, or this one where PYTHONPATH has the real module."""
    named = os.environ.get("MXR_TEST_MIGRAPHX_PYTHON")
    if not named:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter with a real migraphx (PYTHONPATH its folder)")
    path = os.environ.get("MXR_TEST_MIGRAPHX_PATH") or os.environ.get("PYTHONPATH", "")
    return Interpreter(Path(named), os.environ | {"PYTHONPATH": path})


@pytest.fixture
def double(tmp_path: Path) -> Bench:
    """A double that has a GPU, gfx90a:sramecc+:xnack-."""
    return Bench(double_interpreter(tmp_path / "settings"), "gpu", "2.15")


@pytest.fixture
def trade(double: Bench, tmp_path: Path) -> Trade:
    """Compiles with the double."""
    return Trade(double, tmp_path)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A real MIGraphX, on its CPU reference target."""
    interpreter = real_interpreter()
    about = ask(interpreter, tmp_path_factory.mktemp("about"))
    assert "ref" in about.targets, about.refusals
    assert about.migraphx is not None
    return Bench(interpreter, "ref", ".".join(about.migraphx.split(".")[:2]))


@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.real_migraphx)])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Trade:
    """Compiles for `ref`, with the double and with the real module."""
    if request.param == "real":
        return Trade(request.getfixturevalue("real"), tmp_path)
    return Trade(Bench(double_interpreter(tmp_path / "settings"), "ref", "2.15"), tmp_path)


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within so many seconds. It need not be a child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def pids(log: bytes) -> list[int]:
    """The numbers of processes that a misbehaving double printed."""
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith(b"pid ")]


def until(count: int) -> tuple[ChildObserver, Callable[[], list[int]]]:
    """A watch that stops the child when so many processes have told their numbers; and these."""
    heard = bytearray()
    watch = ChildObserver(log=lambda data: heard.extend(data), stop=lambda: len(pids(bytes(heard))) >= count)
    return watch, lambda: pids(bytes(heard))
