"""The settings of a worker: one frozen value, made once from options and environment variables."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxr.errors import UsageError
from mxr.settings import Settings as ClientSettings
from mxr.settings import load_settings
from mxr_workers.sandbox import ChildLimits

VARIABLES = {
    "name": "MXR_WORKER_NAME",
    "spool": "MXR_WORKER_SPOOL",
    "python": "MXR_WORKER_PYTHON",
    "seconds": "MXR_WORKER_SECONDS",
    "tuning_seconds": "MXR_WORKER_TUNING_SECONDS",
    "memory": "MXR_WORKER_MEMORY",
    "grace": "MXR_WORKER_GRACE",
}
"""The environment variable of each setting."""

CLIENT_OPTIONS = ("registry", "token", "plaintext")
"""The options that are settings of the client of the registry."""

VERIFY_SECONDS = 1800.0
"""The time limit of a verification run. It loads the program and runs it twice; the first HIP program after the driver
has started can take a minute."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker process.

    `registry`: how to reach the registry. `name`: of this host. `spool`: its folder. `python`: the interpreter that has
    migraphx. `seconds`: the time limit of a compile; `tuning_seconds`: of a compile with exhaustive tuning. `memory`:
    the limit in bytes for a compile and all its processes. `grace`: seconds that a running compile may continue after
    the worker is told to stop. `kinds`: gpu, ref; empty for every kind that works on this host. `job`: the only job to
    run. `once`: run one job in each slot. `drain`: stop when the queue has no job for this worker. `environ`: the
    worker's environment, of which children see the allowed variables.
    """

    registry: ClientSettings
    name: str
    spool: Path
    python: Path
    seconds: float = 6 * 3600.0
    tuning_seconds: float = 48 * 3600.0
    memory: int = 16 << 30
    grace: float = 20.0
    kinds: tuple[str, ...] = ()
    job: str | None = None
    once: bool = False
    drain: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def limits(self, tuning: str) -> ChildLimits:
        """The limits of a compile with this kind of tuning."""
        return ChildLimits(self.tuning_seconds if tuning == "exhaustive" else self.seconds, self.memory)

    def verify_limits(self) -> ChildLimits:
        """The limits of a verification run."""
        return ChildLimits(min(self.seconds, VERIFY_SECONDS), self.memory)


def read_settings(environ: Mapping[str, str], options: Mapping[str, Any]) -> WorkerSettings:
    """Read the settings; `options` override the environment. Raises `UsageError`."""
    found: dict[str, Any] = {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    found |= {name: value for name, value in options.items() if value is not None and name not in CLIENT_OPTIONS}
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/") / ".cache")
    found.setdefault("name", platform.node() or "worker")
    found["spool"] = Path(found.get("spool") or home / "mxr-worker").absolute()
    # Not resolved: the interpreter of a virtual environment is a symbolic link, and its packages are beside the link.
    found["python"] = Path(found.get("python") or sys.executable).absolute()
    for name in ("seconds", "tuning_seconds", "grace"):
        if name in found:
            found[name] = _number(VARIABLES[name], found[name])
    found["memory"] = int(_number(VARIABLES["memory"], found["memory"])) if "memory" in found else default_memory()
    registry = load_settings(environ, {name: options.get(name) for name in CLIENT_OPTIONS})
    return WorkerSettings(registry=registry, environ=dict(environ), **found)


def default_memory() -> int:
    """Nine tenths of the memory of this host or its container, in bytes. Source: Linux, cgroup-v2, memory.max."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        text = "max"
    if text.isdigit():
        found = min(found, int(text))
    return found // 10 * 9


def _number(variable: str, value: object) -> float:
    try:
        found = float(str(value))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e16:
        unit = "bytes" if variable == VARIABLES["memory"] else "seconds"
        raise UsageError(f"{variable}={value} is not a valid number.", hint=f"Set a number of {unit}.")
    return found
