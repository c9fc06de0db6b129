"""The real MIGraphX provider of ONNX Runtime, from a public wheel, with stand-in libraries for HIP and MIGraphX.

The wheel is installed into its own virtual environment, because it and plain onnxruntime are the same Python package.
The stand-ins are compiled here; they record the paths that the provider requests. No GPU is needed. Tests compare the
file names that mxr predicts with the names that this provider requests, and call it the judge.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "1.27.1"
PROVIDER = "2.15.0"
"""The MIGraphX version that this wheel's provider was built with, as its file names show."""
ARCH = "gfx942:sramecc+:xnack-"
SOURCES = {"libamdhip64.so.7": ("hip.cc", ("-Wl,--version-script=" + str(HERE / "hip.map"),)),
           "libmigraphx_c.so.3": ("migraphx.cc", ())}  # fmt: skip


DEPENDENCIES = ("numpy", "xxhash", "urllib3")
"""The packages that ONNX Runtime and mxr need: linked from the environment of the tests."""


class NoJudge(Exception):
    """The wheel or the stand-ins cannot be installed; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """The result of one session: the requests to MIGraphX in its cache folder, in order, and the reply."""

    cache: Path
    events: tuple[tuple[str, str], ...]
    reply: dict[str, Any]

    @property
    def asked(self) -> set[str]:
        """The names of the files that the provider tried to read, or wrote."""
        return {Path(what).name for verb, what in self.events if verb in ("load", "damaged", "miss", "save")}

    @property
    def verbs(self) -> list[str]:
        """The kinds of the requests, without their files."""
        return [verb for verb, _ in self.events]


@dataclass(frozen=True)
class Judge:
    """An interpreter with the real provider, and the folder of the stand-in libraries."""

    python: Path
    libraries: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def provider_library(self) -> Path:
        """The path of the provider's library."""
        return next(self.python.parent.parent.glob("lib/python*/site-packages/onnxruntime/capi/*providers_migraphx.so"))

    def environment(self, log: Path, arch: str = ARCH) -> dict[str, str]:
        """The environment for a process that uses the provider."""
        found = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "PYTHON"))}
        return found | {
            "LD_LIBRARY_PATH": str(self.libraries),
            "MXR_DOUBLE_LOG": str(log),
            "MXR_DOUBLE_ARCH": arch,
            **self.environ,
        }

    def sessions(self, tasks: list[dict[str, Any]], folder: Path, *, arch: str = ARCH) -> list[Outcome]:
        """Open one session for each task, in one process. A task without `cache` gets its own cache folder."""
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log"
        log.unlink(missing_ok=True)
        for at, task in enumerate(tasks):
            task.setdefault("cache", str(folder / f"cache-{at}"))
            Path(task["cache"]).mkdir(parents=True, exist_ok=True)
            task["mark"] = f"task-{at}"
        replies: list[dict[str, Any]] = []
        while len(replies) < len(tasks):
            replies += self._some(tasks[len(replies) :], self.environment(log, arch))
        return list(map(_outcome, tasks, replies, _cut(log, len(tasks))))

    def _some(self, tasks: list[dict[str, Any]], environment: dict[str, str]) -> list[dict[str, Any]]:
        """The replies of one process: all, or those up to the task at which it crashed."""
        done = subprocess.run(
            [self.python, HERE / "sessions.py"],
            input="".join(json.dumps(task) + "\n" for task in tasks),
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        replies = [json.loads(line[len("reply ") :]) for line in done.stdout.splitlines() if line.startswith("reply ")]
        assert replies or done.returncode < 0, done.stderr[-3000:]
        return replies if len(replies) == len(tasks) else [*replies, {"error": f"died with {done.returncode}"}]


def _outcome(task: dict[str, Any], reply: dict[str, Any], events: list[tuple[str, str]]) -> Outcome:
    return Outcome(Path(task["cache"]), tuple(events), reply)


def _cut(log: Path, count: int) -> list[list[tuple[str, str]]]:
    """The lines of the log for each session; each session begins with its mark."""
    found: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    at = 0
    for line in log.read_text().splitlines() if log.exists() else ():
        verb, _, what = line.partition("\t")
        if verb == "mark":
            at = int(what.removeprefix("task-"))
        else:
            found[at].append((verb, what))
    return found


def seat(root: Path) -> Judge:
    """Install the wheel and compile the stand-ins under `root`, once for all processes and runs that share it.

    Raises `NoJudge` without a C++ compiler, or where the package index does not have the wheel.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        steps = [*_library_steps(_libraries(root)), *_interpreter_steps(_environment(root))]
        processes = [_start(command) for command, _ in steps]
        outputs = [process.communicate()[0] for process in processes]
        for (_, failure), process, output in zip(steps, processes, outputs, strict=True):
            if process.returncode:
                raise NoJudge(f"{failure}: {' '.join(output.split())[-300:]}")
        for folder in (_libraries(root), _environment(root)):
            (folder / "ready").touch()
    return Judge(_environment(root) / "bin" / "python", _libraries(root))


Step = tuple[list[str], str]
"""A command, and the message for its failure. Steps run at the same time."""


def _environment(root: Path) -> Path:
    tests = sha256(f"{sys.prefix} {sys.version}".encode()).hexdigest()[:8]
    return root / f"onnxruntime-{VERSION}-{tests}"


def _libraries(root: Path) -> Path:
    texts = [(HERE / name).read_bytes() for name in ("hip.cc", "hip.map", "migraphx.cc")]
    return root / f"libraries-{sha256(b''.join(texts)).hexdigest()[:16]}"


def _interpreter_steps(folder: Path) -> list[Step]:
    if (folder / "ready").exists():
        return []
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in DEPENDENCIES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise NoJudge(f"{name} is not installed")
        (packages / name).symlink_to(Path(spec.origin).parent)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--retries", "1"]
    wheel = ["--timeout", "20", "--target", str(packages), f"onnxruntime-migraphx=={VERSION}"]
    return [([*install, *wheel], "the package index has no such wheel for this system")]


def _library_steps(folder: Path) -> list[Step]:
    if (folder / "ready").exists():
        return []
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise NoJudge("there is no C++ compiler")
    folder.mkdir(exist_ok=True)
    steps = []
    for name, (source, more) in SOURCES.items():
        flags = ["-std=c++17", "-O0", "-shared", "-fPIC", f"-Wl,-soname,{name}", *more]
        command = [compiler, *flags, "-o", str(folder / name), str(HERE / source)]
        steps.append((command, "the stand-ins do not compile"))
    return steps


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
