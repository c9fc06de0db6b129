"""Fixtures for the worker tests: an interpreter with the MIGraphX double, and one with the real MIGraphX if given."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from paths import DOUBLES

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr_workers.compilation import CompiledProgram, CompileEnvironment, CompileTask, compile_program
from mxr_workers.interpreter import Interpreter, describe_interpreter
from mxr_workers.sandbox import ChildLimits, ChildObserver

from .graphs import GRAPHS, Graph
from .in_process import InProcessInterpreter

LIMITS = ChildLimits(seconds=60, memory=2 << 30)
MODEL = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Target:
    """An interpreter, and the kind of target and MIGraphX version that it compiles for."""

    interpreter: Interpreter
    kind: str
    migraphx: str

    def key(self, graph: Graph, batch: int = 1, **more: Any) -> Key:
        """The key of a graph."""
        inputs = more.pop("inputs", None) or graph.dims(batch)
        pairs = tuple((name, tuple(dims)) for name, dims in inputs.items())
        base = {"model": MODEL, "kind": self.kind, "migraphx": self.migraphx, "inputs": pairs}
        gpu = {"arch": "gfx90a", "rocm": "7.2"} if self.kind == "gpu" else {}
        return Key(**{**base, **gpu, **more})

    def attributes(self, **more: object) -> Attributes:
        """The attributes that a worker states."""
        gpu = {"sramecc": "+", "xnack": "-"} if self.kind == "gpu" else {}
        return Attributes(**{**gpu, **more})


@dataclass(frozen=True)
class GraphCompiler:
    """Compiles graphs in the test's own folder."""

    target: Target
    folder: Path

    def compile(
        self,
        graph: str = "gemm",
        *,
        marks: dict[str, str] | None = None,
        limits: ChildLimits = LIMITS,
        observer: ChildObserver | None = None,
        environment: dict | None = None,
        task: dict | None = None,
        spoil: Callable[[Path], None] | None = None,
        **key: object,
    ) -> CompiledProgram:
        """Write the graph's file, apply `spoil` to it, and compile it.

        `marks` make the double fail; `environment` and `task` are extra fields of `CompileEnvironment` and
        `CompileTask`, `key` of `Target.key`.
        """
        found = GRAPHS[graph]
        models = self.folder / "models"
        models.mkdir(exist_ok=True)
        path = found.write(models, marks)
        if spoil is not None:
            spoil(path)
        fields = dict(task or {})
        attributes = self.target.attributes(**fields.pop("attributes", {}))
        wanted = CompileTask(self.target.key(found, **key), attributes, path.name, **fields)
        place = CompileEnvironment(
            self.target.interpreter,
            self.folder / "work",
            limits,
            limits,
            observer or ChildObserver(),
            **(environment or {}),
        )
        return compile_program(wanted, models, place)


def double_interpreter(folder: Path, kind: type[Interpreter] = InProcessInterpreter, **settings: object) -> Interpreter:
    """The tests' own interpreter with the double; `settings` are written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "migraphx_double.json").write_text(json.dumps(settings))
    path = f"{DOUBLES}{os.pathsep}{folder}"
    return kind(Path(sys.executable), {"PATH": os.environ["PATH"], "PYTHONPATH": path})


def real_interpreter() -> Interpreter:
    """The interpreter that MXR_TEST_MIGRAPHX_PYTHON names, with the module folder in MXR_TEST_MIGRAPHX_PATH."""
    named = os.environ.get("MXR_TEST_MIGRAPHX_PYTHON")
    if not named:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter with a real migraphx (PYTHONPATH its folder)")
    path = os.environ.get("MXR_TEST_MIGRAPHX_PATH") or os.environ.get("PYTHONPATH", "")
    return Interpreter(Path(named), os.environ | {"PYTHONPATH": path})


@pytest.fixture
def gpu(tmp_path: Path) -> Target:
    """The double as child processes, with a GPU: gfx90a:sramecc+:xnack-."""
    return Target(double_interpreter(tmp_path / "settings", Interpreter, quick=True), "gpu", "2.15")


@pytest.fixture
def gpu_compiler(gpu: Target, tmp_path: Path) -> GraphCompiler:
    """Compiles with the double, in child processes."""
    return GraphCompiler(gpu, tmp_path)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A real MIGraphX, with its CPU reference target."""
    interpreter = real_interpreter()
    info = describe_interpreter(interpreter, tmp_path_factory.mktemp("describe"))
    assert "ref" in info.targets, info.refusals
    assert info.migraphx is not None
    return Target(interpreter, "ref", ".".join(info.migraphx.split(".")[:2]))


@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.real_migraphx)])
def compiler(request: pytest.FixtureRequest, tmp_path: Path) -> GraphCompiler:
    """Compiles for `ref`: with the double in the test process, and with the real module in child processes."""
    if request.param == "real":
        return GraphCompiler(request.getfixturevalue("real"), tmp_path)
    return GraphCompiler(Target(double_interpreter(tmp_path / "settings"), "ref", "2.15"), tmp_path)


def exited(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process exits within so many seconds. It need not be a child of this process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def pids(log: bytes) -> list[int]:
    """The pids that a faulty double printed."""
    return [int(line.split()[1]) for line in log.splitlines() if line.startswith(b"pid ")]


def stop_after(count: int) -> tuple[ChildObserver, Callable[[], list[int]]]:
    """An observer that stops the child once this many processes have printed their pids; and a function for these."""
    received = bytearray()
    observer = ChildObserver(log=received.extend, stop=lambda: len(pids(bytes(received))) >= count)
    return observer, lambda: pids(bytes(received))
