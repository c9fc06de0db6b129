"""The settings of a worker: one frozen value, made once from options, environment and file."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mxr.artifact.limits import MAX_TARGETS, MAX_TRUSTED
from mxr.artifact.target import BASE_ARCH
from mxr.configuration.config_file import home_dir
from mxr.configuration.reading import DEFAULT, ServiceValues, read_service
from mxr.configuration.schema import BYTES, SECONDS, ServiceSchema, setting
from mxr.protocol.access import NAME
from mxr.settings import DEFAULT_REGISTRY, load_settings
from mxr.settings import Settings as ClientSettings
from mxr_workers.sandbox import ChildLimits

KINDS = ("gpu", "ref")
MOST_SECONDS = 10 * 365 * 86_400

VERIFY_SECONDS = 1800.0
"""The time limit of a verification run. It loads the program and runs it twice; the first HIP program after the driver
has started can take a minute."""


def check_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kinds of targets. Raises `ValueError` with what is expected."""
    if not set(kinds) <= set(KINDS):
        raise ValueError("gpu, ref or both")
    return kinds


def check_archs(archs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the archs of AMD GPUs. Raises `ValueError` with what is expected."""
    if len(archs) > MAX_TARGETS or not all(map(BASE_ARCH.fullmatch, archs)):
        raise ValueError("archs such as gfx942, without sramecc and xnack")
    return archs


EVERYBODY = "*"

KEY = "signing.key"
"""The file of the worker's key in its spool."""


def check_trust(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of principals. Raises `ValueError` with what is expected."""
    if len(names) > MAX_TRUSTED or not all(name == EVERYBODY or NAME.fullmatch(name) for name in names):
        raise ValueError(f"up to {MAX_TRUSTED} names of principals, or {EVERYBODY}")
    return names


SANDBOXES = ("auto", "require", "off")


@dataclass(frozen=True, slots=True)
class RegistryOfWorker:
    """The registry whose jobs are compiled. What is not set here comes from the configuration of `mxr` on this host."""

    registry: str | None = setting(
        None,
        "The URL of the registry.",
        option="--registry",
        example=f'"{DEFAULT_REGISTRY}"',
        absent=f"that of `mxr`, or {DEFAULT_REGISTRY}",
    )
    token_file: Path | None = setting(
        None,
        "A file with the token. It can be replaced while the worker runs.",
        example='"/etc/mxr/worker.token"',
        absent="that of `mxr`; the registry of this user on this host needs none",
    )
    ca_file: Path | None = setting(
        None,
        "Certificates (PEM) of authorities that may sign the registry's, besides those of the system.",
        example='"/etc/mxr/ca.pem"',
        absent="that of `mxr`, or none",
    )
    plaintext: bool | None = setting(
        None,
        "Send the token also over plain http to another machine.",
        option="--plaintext",
        example="false",
        absent="that of `mxr`, or false",
    )
    timeout: float | None = setting(
        None,
        "Time without a byte of the registry after which a request fails.",
        unit=SECONDS,
        least=0.05,
        most=86_399,
        example="60",
        absent="that of `mxr`, or 60",
    )


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """What this host compiles, and its limits."""

    name: str | None = setting(
        None,
        "The name of the host in `mxr workers`; slots are called `NAME/ref` and `NAME/<id of the GPU>`.",
        example='"mi300x-7"',
        absent="the host name",
    )
    spool: Path | None = setting(
        None,
        "The folder for models, tuning records and compiles.",
        example='"/var/lib/mxr-worker"',
        absent="`mxr-worker` in `$XDG_CACHE_HOME` or in `~/.cache`",
    )
    key_file: Path | None = setting(
        None,
        "The private key with which the worker signs what it built (`mxr-worker key`). Without one it signs nothing.",
        example='"/etc/mxr/worker.key"',
        absent=f"`{KEY}` in the spool",
    )
    python: Path | None = setting(
        None,
        "The Python interpreter that has migraphx, and optionally onnxruntime-migraphx.",
        option="--python",
        example='"/usr/bin/python3"',
        absent="the interpreter of the worker",
    )
    kinds: tuple[str, ...] = setting(
        (), "Compile only for targets of these kinds; [] is every kind that works.", check=check_kinds, option="--kind"
    )
    cross: tuple[str, ...] = setting(
        (),
        "Compile for GPUs of these archs also without having one, where MIGraphX can (docs/compiling.md).",
        check=check_archs,
        option="--cross",
        example='["gfx942", "gfx1100"]',
    )
    seconds: float = setting(6 * 3600.0, "Time limit of a compile.", unit=SECONDS, least=0, most=MOST_SECONDS)
    tuning_seconds: float = setting(
        48 * 3600.0, "Time limit of a compile with exhaustive tuning.", unit=SECONDS, least=0, most=MOST_SECONDS
    )
    memory: int | None = setting(
        None,
        "Memory of one compile and everything that it starts.",
        unit=BYTES,
        least=0,
        example='"64GiB"',
        absent="nine tenths of the host, or of its container",
    )
    disk: int | None = setting(
        None,
        "Space on the disk of one compile: its program, and all files that it makes meanwhile.",
        unit=BYTES,
        least=0,
        example='"100GiB"',
        absent="nine tenths of what is free at its start",
    )
    sandbox: str = setting(
        "auto",
        "Walls around compiles: `auto`, those that this host has; `require`, all, or the worker does not run; `off`.",
        choices=SANDBOXES,
    )
    trust: tuple[str, ...] = setting(
        (),
        "While a wall is open: take only jobs that these principals asked for, and the worker's own; `*` is everybody.",
        check=check_trust,
        option="--trust",
    )
    grace: float = setting(
        20.0,
        "Time that a running compile may continue after the worker is told to stop.",
        unit=SECONDS,
        least=0,
        most=MOST_SECONDS,
    )


SCHEMA = ServiceSchema(
    program="mxr-worker",
    file_variable="MXR_WORKER_CONFIG",
    tables={"": RegistryOfWorker, "worker": CompileSettings},
    others=(
        *("MXR_REGISTRY_CONFIG", "MXR_SERVE_", "MXR_DATABASE_", "MXR_STORE_", "MXR_S3_", "MXR_WORK_"),
        *("MXR_RETENTION_", "MXR_LIMITS_"),
    ),
)

CLIENT_OPTIONS = ("registry", "token_file", "ca_file", "plaintext", "timeout")
"""The settings of the client of the registry."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker process.

    `registry`: how to reach the registry. `name`: of this host. `spool`: its folder. `python`: the interpreter that has
    migraphx. `key_file`: the key with which it signs, if a setting names it. `seconds`: the time limit of a compile;
    `tuning_seconds`: of a compile with exhaustive tuning. `memory`: the limit in bytes for a compile and all its
    processes; `disk`: that of its folder, 0 for nine tenths of what is free at its start. `grace`: seconds that a
    running compile may continue after the worker is told to stop. `sandbox`: auto, require or off. `trust`: whose jobs
    it takes while a wall is open. `kinds`: gpu, ref; empty for every kind that works on this host. `cross`: the archs
    for which it cross-compiles. `job`: the only job to run. `once`: run one job in each slot. `drain`: stop when the
    queue has no job for this worker. `environ`: the worker's environment, of which children see the allowed variables.
    """

    registry: ClientSettings
    name: str
    spool: Path
    python: Path
    key_file: Path | None = None
    seconds: float = 6 * 3600.0
    tuning_seconds: float = 48 * 3600.0
    memory: int = 16 << 30
    disk: int = 0
    grace: float = 20.0
    kinds: tuple[str, ...] = ()
    cross: tuple[str, ...] = ()
    sandbox: str = "auto"
    trust: tuple[str, ...] = ()
    job: str | None = None
    once: bool = False
    drain: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def signing_key(self) -> Path:
        """The file of the key with which the worker signs, if there is one."""
        return self.key_file or self.spool / KEY

    def limits(self, tuning: str) -> ChildLimits:
        """The limits of a compile with this kind of tuning."""
        return ChildLimits(self.tuning_seconds if tuning == "exhaustive" else self.seconds, self.memory, self.disk)

    def verify_limits(self) -> ChildLimits:
        """The limits of a verification run."""
        return ChildLimits(min(self.seconds, VERIFY_SECONDS), self.memory, self.disk)


def read_settings(
    environ: Mapping[str, str], options: Mapping[str, Any], file: Path | None = None, **run: Any
) -> WorkerSettings:
    """Read the settings. `options` of the command line, by path, override the environment, and this the file.

    `run`: the job, `once` and `drain`. Raises `UsageError`.
    """
    return settings_of(read_service(SCHEMA, environ, options, file), environ, **run)


def settings_of(values: ServiceValues, environ: Mapping[str, str], **run: Any) -> WorkerSettings:
    """Return the settings of these values. Raises `UsageError`."""
    compiles: CompileSettings = values.table("worker")
    paths = effective(values, environ)
    return WorkerSettings(
        registry=client_settings(values, environ),
        name=paths["worker.name"],
        spool=paths["worker.spool"],
        python=paths["worker.python"],
        key_file=compiles.key_file and compiles.key_file.absolute(),
        seconds=compiles.seconds,
        tuning_seconds=compiles.tuning_seconds,
        memory=paths["worker.memory"],
        disk=values.value("worker.disk") or 0,
        grace=compiles.grace,
        kinds=compiles.kinds,
        cross=compiles.cross,
        sandbox=compiles.sandbox,
        trust=compiles.trust,
        environ=dict(environ),
        **run,
    )


def client_settings(values: ServiceValues, environ: Mapping[str, str]) -> ClientSettings:
    """Return how to reach the registry: what is set here, else what `mxr` uses on this host. Raises `UsageError`."""
    given = {name: values.value(name) for name in CLIENT_OPTIONS if values.found[name].source != DEFAULT}
    found = load_settings(environ, given)
    return replace(found, sources={**found.sources, **{name: values.found[name].source for name in given}})


def effective(values: ServiceValues, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what applies to the settings of the host, with or without a value, by path."""
    home = home_dir(environ)
    cache = environ.get("XDG_CACHE_HOME") or (home and home / ".cache")
    spool = (
        Path(cache) / "mxr-worker" if cache else Path(environ.get("TMPDIR") or "/tmp") / f"mxr-worker-{os.geteuid()}"
    )
    return {
        "worker.name": values.value("worker.name") or platform.node() or "worker",
        "worker.spool": Path(values.value("worker.spool") or spool).absolute(),
        # Not resolved: the interpreter of a virtual environment is a symbolic link, and its packages are beside it.
        "worker.python": Path(values.value("worker.python") or sys.executable).absolute(),
        "worker.memory": default_memory() if values.value("worker.memory") is None else values.value("worker.memory"),
    }


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
