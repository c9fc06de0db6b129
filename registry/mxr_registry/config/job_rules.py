"""Rules for compile jobs: lease and retention times, number of attempts, and the declared pools.

Read once in `main`, from the TOML file that MXR_REGISTRY_CONFIG names:

    [work]
    lease = 60                      # seconds; every field of `JobRules` except `pools`

    [[pools]]
    name = "mi300x"
    targets = [{arch = "gfx942", num_cu = 304}]
    toolchain = {rocm = "7.2.1", migraphx = "2.15.0"}
    ort = {generation = "B", version = "1.27.1"}    # if its workers have onnxruntime-migraphx
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.errors import UsageError
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol.jobs import DeclaredPool, WorkerCapabilities
from mxr.util.codec import decode, refuse

from .lanes import check_capabilities

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class JobRules:
    """Rules for compile jobs. Times are in seconds; `attempts` and `poison_after` are counts.

    `lease`: a worker loses its job after this time without a heartbeat. `lost_after`: a worker counts as lost after
    this time without a request. A transient failure is retried after `backoff`, which doubles with each retry up to
    `backoff_most`, with at most `attempts` attempts in total. `poison_after` leases lost in a row make a poison
    failure. A permanent failure is remembered for `remember`, a poison failure for `quarantine`.
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
                raise refuse(f"work.{name}", "seconds from 0.05 to 315360000", getattr(self, name))
        for name in ("attempts", "poison_after"):
            if not 1 <= getattr(self, name) <= 1000:
                raise refuse(f"work.{name}", "an integer from 1 to 1000", getattr(self, name))
        names = [pool.name for pool in self.pools]
        for pool in self.pools:
            check_capabilities(pool.can, f"pools.{pool.name}")
            if names.count(pool.name) > 1 or not pool.name.strip() or not pool.name.isprintable():
                raise refuse("pools.name", "unique, printable names", pool.name)

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> JobRules:
        """Read the rules from `file`, or from the file that MXR_REGISTRY_CONFIG names, or use the defaults.

        `file` comes from --config and takes precedence. MXR_LEASE_SECONDS overrides the file. Raises `UsageError`.
        """
        config = read_config(environ, file)
        work = dict(config.work)
        if environ.get("MXR_LEASE_SECONDS"):
            work["lease"] = _seconds(environ["MXR_LEASE_SECONDS"])
        fields = decode(_Work, work, "work")
        pools = tuple(
            DeclaredPool(each.name, WorkerCapabilities(each.targets, each.toolchain, each.cross, each.ort, each.eager))
            for each in config.pools
        )
        return cls(**{name: getattr(fields, name) for name in _Work.__slots__}, pools=pools)


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
    eager: bool = False


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """The sections of the configuration file. The module that uses a section decodes it."""

    work: Mapping[str, Any] = field(default_factory=dict)
    database: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[_Pool, ...] = ()
    retention: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)


def read_config(environ: Mapping[str, str], file: Path | None = None) -> ConfigDocument:
    """Read `file`, or the file that MXR_REGISTRY_CONFIG names, or return an empty document. Raises `UsageError`."""
    path = file or (Path(environ["MXR_REGISTRY_CONFIG"]) if environ.get("MXR_REGISTRY_CONFIG") else None)
    return _read(path) if path else ConfigDocument()


def _read(path: Path) -> ConfigDocument:
    try:
        return decode(ConfigDocument, tomllib.loads(path.read_text("utf-8")))
    except OSError as problem:
        reason: object = problem.strerror or problem
    except UsageError as problem:
        reason = problem.message
    except ValueError as problem:
        reason = f"it is not valid TOML: {problem}"
    raise UsageError(
        f"Cannot use the configuration file {path}: {reason}",
        hint="Correct the file, or give another with --config or MXR_REGISTRY_CONFIG.",
    ) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refuse("MXR_LEASE_SECONDS", "a number of seconds", text) from None
