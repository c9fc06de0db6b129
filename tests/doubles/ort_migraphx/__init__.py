"""The judge of ONNX Runtime's file names: the real provider of a public wheel, on stand-ins for HIP and MIGraphX.

The wheel gets an interpreter of its own, since it and plain onnxruntime are one package; the stand-ins are compiled
here. They record the paths that the provider asks for, and no GPU is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "1.27.1"
PROVIDER = "2.15.0"
"""The MIGraphX that this wheel's provider was built with, as its own names tell."""
ARCH = "gfx942:sramecc+:xnack-"
SOURCES = {"libamdhip64.so.7": ("hip.cc", ("-Wl,--version-script=" + str(HERE / "hip.map"),)),
           "libmigraphx_c.so.3": ("migraphx.cc", ())}  # fmt: skip


BESIDE = ("numpy", "xxhash", "urllib3")
"""What ONNX Runtime itself needs, and mxr."""


class NoJudge(Exception):
    """The judge cannot sit here, and why."""


@dataclass(frozen=True)
class Outcome:
    """What became of one session: what was asked of MIGraphX under its cache folder, in order, and the reply."""

    cache: Path
    events: tuple[tuple[str, str], ...]
    reply: dict[str, Any]

    @property
    def asked(self) -> set[str]:
        """The names of files that the provider wanted to read or wrote."""
        return {Path(what).name for verb, what in self.events if verb in ("load", "damaged", "miss", "save")}

    @property
    def verbs(self) -> list[str]:
        """What was done, without saying to which file."""
        return [verb for verb, _ in self.events]


@dataclass(frozen=True)
class Judge:
    """An interpreter with the real provider, and the stand-in libraries that it runs on."""

    python: Path
    libraries: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def provider_library(self) -> Path:
        """The provider's library, as a file to probe."""
        return next(self.python.parent.parent.glob("lib/python*/site-packages/onnxruntime/capi/*providers_migraphx.so"))

    def environment(self, log: Path, arch: str = ARCH) -> dict[str, str]:
        """The environment in which the provider starts."""
        found = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "PYTHON"))}
        return found | {
            "LD_LIBRARY_PATH": str(self.libraries),
            "MXR_DOUBLE_LOG": str(log),
            "MXR_DOUBLE_ARCH": arch,
            **self.environ,
        }

    def sessions(self, tasks: list[dict[str, Any]], folder: Path, *, arch: str = ARCH) -> list[Outcome]:
        """Opens one session per task in one process, each with a cache folder of its own where none is given."""
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
        """The replies of one process: all, or those up to the task at which it died."""
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
    """The log's lines by session: each begins with its mark."""
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
    """The judge, made once under `root` for all who share it. Raises `NoJudge` without compiler or package index."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Judge(_interpreter(root), _libraries(root))


def _interpreter(root: Path) -> Path:
    folder = root / f"with-mxr-{VERSION}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], "no venv can be made")
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", "--timeout", "20"]
        _run(
            [*install, f"onnxruntime-migraphx=={VERSION}", *BESIDE],
            "the package index has no such wheel for this system",
        )
        (folder / "ready").touch()
    return python


def _libraries(root: Path) -> Path:
    texts = [(HERE / name).read_bytes() for name in ("hip.cc", "hip.map", "migraphx.cc")]
    folder = root / f"libraries-{sha256(b''.join(texts)).hexdigest()[:16]}"
    if not (folder / "ready").exists():
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if compiler is None:
            raise NoJudge("no C++ compiler is here")
        folder.mkdir(exist_ok=True)
        for name, (source, more) in SOURCES.items():
            flags = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", *more]
            _run([compiler, *flags, "-o", str(folder / name), str(HERE / source)], "the stand-ins do not compile")
        (folder / "ready").touch()
    return folder


def _run(command: list[str], otherwise: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoJudge(f"{otherwise}: {' '.join((done.stderr or done.stdout).split())[-300:]}")
