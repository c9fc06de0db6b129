"""Rules for compile jobs: leases, attempts, remembered failures, and the declared pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mxr.configuration.schema import SECONDS, setting
from mxr.consumers.ort.recording_form import OrtRuntime
from mxr.errors import UsageError
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol.jobs import DeclaredPool, WorkerCapabilities
from mxr.util.codec import decode, refuse

from .lanes import check_capabilities


def _time(default: float, about: str) -> float:
    found: float = setting(default, about, unit=SECONDS, least=0.05, most=10 * 365 * 86_400)
    return found


def _count(default: int, about: str) -> int:
    found: int = setting(default, about, least=1, most=1000)
    return found


@dataclass(frozen=True, slots=True)
class JobRules:
    """Compile jobs: leases of workers, attempts, and for how long a failure is remembered.

    `pools`: workers that are declared, whether they run or not.
    """

    lease: float = _time(60.0, "A worker loses its job after this time without a heartbeat.")
    lost_after: float = _time(150.0, "A worker counts as lost after this time without any request.")
    backoff: float = _time(5.0, "Pause before a transient failure is tried again; it doubles with each attempt.")
    backoff_most: float = _time(300.0, "The longest such pause.")
    attempts: int = _count(3, "Attempts in all, for transient failures.")
    poison_after: int = _count(3, "Leases lost in a row after which a job is quarantined.")
    remember: float = _time(7 * 86_400.0, "A permanent failure is remembered for this time.")
    quarantine: float = _time(86_400.0, "A quarantined job stays so for this time.")
    upgrade_cross: bool = setting(
        True, "Compile again on the GPU itself, after all other jobs, what was cross-compiled for it."
    )
    pools: tuple[DeclaredPool, ...] = ()

    def __post_init__(self) -> None:
        if self.backoff > self.backoff_most:
            raise refuse("work.backoff_most", "no less than work.backoff", self.backoff_most)


POOLS_EXAMPLE = """
# Pools of workers that may have no running worker at the moment. What only they can compile is queued, not refused.
[[pools]]
name = "mi300x"
targets = [{arch = "gfx942", num_cu = 304}]
toolchain = {rocm = "7.2.1", migraphx = "2.15.0"}
cross = false                                   # true if its workers compile for GPUs that they do not have,
cross_for = []                                  # for these archs only, such as ["gfx942"]
eager = false                                   # true if their MIGraphX has compile modes
ort = {generation = "B", version = "1.27.1"}    # if its workers have onnxruntime-migraphx
"""


@dataclass(frozen=True, slots=True)
class _Pool:
    name: str
    targets: tuple[HostTarget, ...]
    toolchain: HostToolchain
    cross: bool = False
    cross_for: tuple[str, ...] = ()
    ort: OrtRuntime | None = None
    eager: bool = False


def declared_pools(rows: Iterable[Any], source: object) -> tuple[DeclaredPool, ...]:
    """Return the pools of a configuration file. Raises `UsageError` that names `source`."""
    try:
        found = [decode(_Pool, row, f"pools[{number}]") for number, row in enumerate(rows)]
        pools = tuple(
            DeclaredPool(
                each.name,
                WorkerCapabilities(
                    each.targets, each.toolchain, each.cross, each.ort, each.eager, cross_for=each.cross_for
                ),
            )
            for each in found
        )
        names = [pool.name for pool in pools]
        for pool in pools:
            check_capabilities(pool.can, f"pools.{pool.name}")
            if names.count(pool.name) > 1 or not pool.name.strip() or not pool.name.isprintable():
                raise refuse("pools.name", "unique, printable names", pool.name)
    except UsageError as problem:
        raise UsageError(f"{source}: {problem.message}", hint=problem.hint) from None
    return pools
