"""The facts beside the key, each with a rule of its own: what an artifact states, and what a request demands."""

from __future__ import annotations

import re
from dataclasses import asdict, field, replace
from typing import Any

from mxr.errors import Usage
from mxr.util.codec import refuse
from mxr.util.frozen import dataclass

from . import target
from .key import Key

ALLOWANCES = ("cu", "patch", "cross", "spoof")
PATCH = r"\.[0-9A-Za-z.+~-]{1,60}"
LIBRARIES = ("miopen", "rocblas", "hipblaslt")


@dataclass(frozen=True, slots=True)
class Qualities:
    """What an artifact states beside its key; None is unknown.

    `sramecc`, `xnack`: `+`, `-` or `any`. `num_cu`, `chiplets` as MIGraphX counts them. `rocm_patch`, `migraphx_patch`:
    the whole versions. `build`: git hash or package. `libraries`: those that the program calls. `latency_ms`: of one
    run where it was made; `max_error`: largest difference from a reference run. `real_arch`: of the silicon that it was
    made on, where HSA_OVERRIDE_GFX_VERSION made that pass for the key's arch.
    """

    sramecc: str = "any"
    xnack: str = "any"
    num_cu: int | None = None
    chiplets: int | None = None
    rocm_patch: str | None = None
    migraphx_patch: str | None = None
    build: str | None = None
    tuning: str = "default"
    libraries: tuple[str, ...] = ()
    latency_ms: float | None = None
    max_error: float | None = None
    real_arch: str | None = None

    def __post_init__(self) -> None:
        for name in target.FEATURES:
            if getattr(self, name) not in ("+", "-", "any"):
                raise refuse(f"qualities.{name}", "+, - or any", getattr(self, name))
        if self.tuning not in target.TUNINGS:
            raise refuse("qualities.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.libraries:
            if name not in LIBRARIES:
                raise refuse("qualities.libraries", "some of " + ", ".join(LIBRARIES), name)
        object.__setattr__(self, "libraries", tuple(sorted(set(self.libraries))))
        _check_counts(self.num_cu, self.chiplets, "qualities")
        _check_arch(self.real_arch, "qualities")

    def to_json(self) -> dict[str, Any]:
        """Every field written out, but `real_arch` only where there is one: registries before it knew no such field."""
        return _without_none(asdict(self) | {"libraries": list(self.libraries)})

    def check(self, key: Key) -> None:
        """Raises `Usage` where these qualities cannot belong to this key (a patch of another version, say)."""
        for name, version, short in (
            ("rocm_patch", self.rocm_patch, key.rocm),
            ("migraphx_patch", self.migraphx_patch, key.migraphx),
        ):
            _check_patch(f"qualities.{name}", version, short)
        for name in target.FEATURES:
            if getattr(self, name) != "any" and not target.capable(key.arch or "", name):
                raise refuse(
                    f"qualities.{name}", f"any: {key.arch or key.kind} has no such setting", getattr(self, name)
                )
        if self.real_arch is not None and self.real_arch == (key.arch or self.real_arch):
            raise refuse("qualities.real_arch", f"another arch than {key.arch or 'none'}, or nothing", self.real_arch)


@dataclass(frozen=True, slots=True)
class Demands:
    """What a request asks of the qualities; None is open. `allow`: some of cu, patch, cross."""

    sramecc: str | None = None
    xnack: str | None = None
    num_cu: int | None = None
    chiplets: int | None = None
    rocm_patch: str | None = None
    migraphx_patch: str | None = None
    build: str | None = None
    tuning: str | None = None
    exact: bool = False
    allow: tuple[str, ...] = ()
    real_arch: str | None = None

    def __post_init__(self) -> None:
        for name in target.FEATURES:
            if getattr(self, name) not in ("+", "-", None):
                raise refuse(f"demands.{name}", "+ or -, or nothing", getattr(self, name))
        if self.tuning not in (*target.TUNINGS, None):
            raise refuse("demands.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.allow:
            if name not in ALLOWANCES:
                raise refuse("demands.allow", "some of " + ", ".join(ALLOWANCES), name)
        object.__setattr__(self, "allow", tuple(sorted(set(self.allow))))
        if self.exact and self.allow:
            raise Usage("--exact and --allow contradict each other.", hint="Give one of them.")
        if self.tuning == "cross" and "cross" not in self.allow:
            raise Usage("--tuning cross needs --allow cross.", hint="Add --allow cross.")
        _check_counts(self.num_cu, self.chiplets, "demands")
        _check_arch(self.real_arch, "demands")


@dataclass(frozen=True, slots=True)
class Request:
    """A key, and demands on qualities. What a `ref` key does not have is not demanded either."""

    key: Key
    demands: Demands = field(default_factory=Demands)

    def __post_init__(self) -> None:
        demands = self.demands
        if self.key.kind == "ref":
            demands = replace(demands, sramecc=None, xnack=None, num_cu=None, chiplets=None, rocm_patch=None)
        if demands.real_arch is not None and demands.real_arch == (self.key.arch or demands.real_arch):
            demands = replace(demands, real_arch=None)
        object.__setattr__(self, "demands", demands)
        _check_patch("demands.rocm_patch", demands.rocm_patch, self.key.rocm)
        _check_patch("demands.migraphx_patch", demands.migraphx_patch, self.key.migraphx)
        for name in target.FEATURES:
            if getattr(demands, name) is not None and not target.capable(self.key.arch or "", name):
                raise Usage(f"{self.key.arch} has no {name} setting.", hint=f"Leave {name} out.")

    def to_json(self) -> dict[str, Any]:
        """`{"key": {...}, "demands": {...}}`, every field written out, `real_arch` where there is one."""
        demands = _without_none(asdict(self.demands) | {"allow": list(self.demands.allow)})
        return {"key": self.key.to_json(), "demands": demands}


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    if document["real_arch"] is None:
        del document["real_arch"]
    return document


def _check_arch(arch: str | None, where: str) -> None:
    if arch is not None and not target.BASE_ARCH.fullmatch(arch):
        raise refuse(f"{where}.real_arch", "an arch such as gfx1103", arch)


def _check_patch(where: str, version: str | None, short: str | None) -> None:
    if version is not None and not (short and re.fullmatch(re.escape(short) + PATCH, version)):
        raise refuse(where, f"a version of {short or 'nothing: this kind has none'}", version)


def _check_counts(num_cu: int | None, chiplets: int | None, where: str) -> None:
    for name, count in (("num_cu", num_cu), ("chiplets", chiplets)):
        if count is not None and not 1 <= count <= 65536:
            raise refuse(f"{where}.{name}", "a count from 1", count)
