"""The facts that are not part of the key: the qualities of an artifact, and what a request demands of them."""

from __future__ import annotations

import re
from dataclasses import asdict, field, replace
from typing import Any

from mxr.errors import UsageError
from mxr.util.codec import refuse
from mxr.util.frozen import dataclass

from . import limits, target
from .key import Key

ALLOWANCES = ("cu", "patch", "cross", "eager", "spoof", "shape")
PATCH = r"\.[0-9A-Za-z.+~-]{1,60}"
LIBRARIES = ("miopen", "rocblas", "hipblaslt")


@dataclass(frozen=True, slots=True)
class Qualities:
    """The facts of an artifact in addition to its key. None means unknown.

    `sramecc`, `xnack`: `+`, `-` or `any`. `num_cu`, `chiplets`: as MIGraphX counts them. `rocm_patch`,
    `migraphx_patch`: full versions. `build`: git hash or package. `libraries`: those that the program calls.
    `latency_ms`: milliseconds of one run on the host that compiled it. `real_arch`: the true arch of the GPU, if it was
    compiled under HSA_OVERRIDE_GFX_VERSION.
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
    real_arch: str | None = None

    def __post_init__(self) -> None:
        for name in target.FEATURES:
            if getattr(self, name) not in ("+", "-", "any"):
                raise refuse(f"qualities.{name}", "+, - or any", getattr(self, name))
        if self.tuning not in target.TUNINGS:
            raise refuse("qualities.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.libraries:
            if name not in LIBRARIES:
                raise refuse("qualities.libraries", "one of " + ", ".join(LIBRARIES), name)
        object.__setattr__(self, "libraries", tuple(sorted(set(self.libraries))))
        limits.check_length(self.build, limits.MAX_WORD_LENGTH, "qualities.build")
        _check_counts(self.num_cu, self.chiplets, "qualities")
        _check_arch(self.real_arch, "qualities")

    def to_json(self) -> dict[str, Any]:
        """Returns all fields that are known."""
        return _without_none(asdict(self) | {"libraries": list(self.libraries)})

    def check(self, key: Key) -> None:
        """Raises `UsageError` if these qualities contradict the key, such as by a patch version of another release."""
        for name, version, short in (
            ("rocm_patch", self.rocm_patch, key.rocm),
            ("migraphx_patch", self.migraphx_patch, key.migraphx),
        ):
            _check_patch(f"qualities.{name}", version, short)
        for name in target.FEATURES:
            if getattr(self, name) != "any" and not target.capable(key.arch or "", name):
                raise refuse(
                    f"qualities.{name}", f"any, because {key.arch or key.kind} has no such setting", getattr(self, name)
                )
        if self.real_arch is not None and self.real_arch == (key.arch or self.real_arch):
            raise refuse("qualities.real_arch", f"an arch other than {key.arch or 'none'}, or no value", self.real_arch)


@dataclass(frozen=True, slots=True)
class Demands:
    """What a request demands of the qualities of an artifact. None means no demand.

    `exact`: refuse every relaxation and assumption. `allow`: any of cu, patch, cross, eager, spoof and shape.
    """

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
                raise refuse(f"demands.{name}", "+ or -, or no value", getattr(self, name))
        if self.tuning not in (*target.TUNINGS, None):
            raise refuse("demands.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.allow:
            if name not in ALLOWANCES:
                raise refuse("demands.allow", "one of " + ", ".join(ALLOWANCES), name)
        object.__setattr__(self, "allow", tuple(sorted(set(self.allow))))
        limits.check_length(self.build, limits.MAX_WORD_LENGTH, "demands.build")
        if self.exact and self.allow:
            raise UsageError("--exact and --allow cannot be used together.", hint="Omit one of them.")
        if self.tuning in target.ALLOWED_TUNINGS and self.tuning not in self.allow:
            raise UsageError(
                f"--tuning {self.tuning} requires --allow {self.tuning}.", hint=f"Add --allow {self.tuning}."
            )
        _check_counts(self.num_cu, self.chiplets, "demands")
        _check_arch(self.real_arch, "demands")

    def to_json(self) -> dict[str, Any]:
        """Returns all fields, `real_arch` only if it is set."""
        return _without_none(asdict(self) | {"allow": list(self.allow)})


@dataclass(frozen=True, slots=True)
class Request:
    """A key and demands on the qualities. Demands that do not apply to a `ref` key are dropped."""

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
                raise UsageError(f"{self.key.arch} has no {name} setting.", hint=f"Omit {name}.")

    def to_json(self) -> dict[str, Any]:
        """Returns `{"key": {...}, "demands": {...}}` with all fields, `real_arch` only if it is set."""
        return {"key": self.key.to_json(), "demands": self.demands.to_json()}


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    if document["real_arch"] is None:
        del document["real_arch"]
    return document


def _check_arch(arch: str | None, where: str) -> None:
    if arch is not None and not target.BASE_ARCH.fullmatch(arch):
        raise refuse(f"{where}.real_arch", "an arch such as gfx1103", arch)


def _check_patch(where: str, version: str | None, short: str | None) -> None:
    if version is not None and not (short and re.fullmatch(re.escape(short) + PATCH, version)):
        expected = f"a patch version of {short}" if short else "no value: this kind has no such version"
        raise refuse(where, expected, version)


def _check_counts(num_cu: int | None, chiplets: int | None, where: str) -> None:
    for name, count in (("num_cu", num_cu), ("chiplets", chiplets)):
        if count is not None and not 1 <= count <= 65536:
            raise refuse(f"{where}.{name}", "a count from 1", count)
