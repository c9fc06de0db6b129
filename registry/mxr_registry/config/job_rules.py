"""The rules of compiling: how long leases and failures last, how often a job is tried, and the declared pools.

Read once in main, from the TOML file that MXR_REGISTRY_CONFIG names:

    [work]
    lease = 60                      # seconds; every field of `Rules` but `pools`

    [[pools]]
    name = "mi300x"
    targets = [{arch = "gfx942", num_cu = 304}]
    toolchain = {rocm = "7.2.1", migraphx = "2.15.0"}
    ort = {generation = "B", version = "1.27.1"}    # where its workers have onnxruntime-migraphx
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxr.consumers.ort.form import OrtRuntime
from mxr.errors import Usage
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol.jobs import DeclaredPool, WorkerCapabilities
from mxr.util.codec import decode, refuse

from .lanes import check_can


@dataclass(frozen=True, slots=True)
class JobRules:
    """Seconds, but for the counts `attempts` and `poison_after`.

    `lease`: without a heartbeat for so long a worker loses its job. `lost_after`: a worker that did not speak for so
    long counts as lost. A transient failure is tried again after `backoff`, doubled each time up to `backoff_most`, for
    at most `attempts` in all; `poison_after` leases lost in a row are a poison. A permanent failure is remembered for
    `remember`, a poison for `quarantine`.
    """

    lease: float = 60.0
    lost_after: float = 150.0
    backoff: float = 5.0
    backoff_most: float = 300.0
    attempts: int = 3
    poison_after: int = 3
    remember: float = 7 * 86400.0
    quarantine: float = 86400.0
    pools: tuple[DeclaredPool, ...] = ()

    def __post_init__(self) -> None:
        for name in ("lease", "lost_after", "backoff", "backoff_most", "remember", "quarantine"):
            if not 0.05 <= getattr(self, name) <= 10 * 365 * 86400:
                raise refuse(f"work.{name}", "seconds, from 0.05 on", getattr(self, name))
        for name in ("attempts", "poison_after"):
            if not 1 <= getattr(self, name) <= 1000:
                raise refuse(f"work.{name}", "a count from 1 to 1000", getattr(self, name))
        names = [pool.name for pool in self.pools]
        for pool in self.pools:
            check_can(pool.can, f"pools.{pool.name}")
            if names.count(pool.name) > 1 or not pool.name.strip() or not pool.name.isprintable():
                raise refuse("pools.name", "names that differ", pool.name)

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> JobRules:
        """The rules in `file` (the flag, which wins), else in the one that MXR_REGISTRY_CONFIG names; else the usual.

        MXR_LEASE_SECONDS wins over the file. Raises `Usage`.
        """
        written = document(environ, file)
        work = dict(written.work)
        if environ.get("MXR_LEASE_SECONDS"):
            work["lease"] = _seconds(environ["MXR_LEASE_SECONDS"])
        found = decode(_Work, work, "work")
        pools = tuple(
            DeclaredPool(each.name, WorkerCapabilities(each.targets, each.toolchain, each.cross, each.ort))
            for each in written.pools
        )
        return cls(**{name: getattr(found, name) for name in _Work.__slots__}, pools=pools)


@dataclass(frozen=True, slots=True)
class _Work:
    lease: float = 60.0
    lost_after: float = 150.0
    backoff: float = 5.0
    backoff_most: float = 300.0
    attempts: int = 3
    poison_after: int = 3
    remember: float = 7 * 86400.0
    quarantine: float = 86400.0


@dataclass(frozen=True, slots=True)
class _Pool:
    name: str
    targets: tuple[HostTarget, ...]
    toolchain: HostToolchain
    cross: bool = False
    ort: OrtRuntime | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The configuration as it is written; each part is read by the room that it is for."""

    work: Mapping[str, Any] = field(default_factory=dict)
    database: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[_Pool, ...] = ()
    retention: Mapping[str, Any] = field(default_factory=dict)


def document(environ: Mapping[str, str], file: Path | None = None) -> Document:
    """What is written in `file`, else in the file that MXR_REGISTRY_CONFIG names, else nothing. Raises `Usage`."""
    path = file or (Path(environ["MXR_REGISTRY_CONFIG"]) if environ.get("MXR_REGISTRY_CONFIG") else None)
    return _read(path) if path else Document()


def _read(path: Path) -> Document:
    try:
        return decode(Document, tomllib.loads(path.read_text("utf-8")))
    except OSError as problem:
        reason: object = problem.strerror or problem
    except Usage as problem:
        reason = problem.message
    except ValueError as problem:
        reason = f"it is not TOML: {problem}"
    raise Usage(
        f"The configuration {path} cannot be used: {reason}", hint="Correct it, or unset MXR_REGISTRY_CONFIG."
    ) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refuse("MXR_LEASE_SECONDS", "seconds", text) from None
