"""The facts that are not part of the key: the attributes of an artifact, and what a request requires of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from functools import cached_property
from typing import Annotated, Any

from mxr.errors import UsageError
from mxr.facts import ALLOWANCES as ALLOWANCES
from mxr.facts import BY_NAME, FACTS, stated
from mxr.util.codec import refuse
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from . import field_docs, limits, target
from .key import Key, other_releases

PATCH = r"\.[0-9A-Za-z.+~-]{1,60}"
COUNTS = ("num_cu", "chiplets")
HARDWARE = (*target.FEATURES, *COUNTS)
PATCHES = ("rocm_patch", "migraphx_patch", "build")
LIBRARIES = ("miopen", "rocblas", "hipblaslt")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The facts of an artifact in addition to its key. None means unknown."""

    sramecc: Annotated[str, field_docs.NEEDED_SRAMECC] = "any"
    xnack: Annotated[str, field_docs.NEEDED_XNACK] = "any"
    num_cu: Annotated[int | None, field_docs.NUM_CU] = None
    chiplets: Annotated[int | None, field_docs.CHIPLETS] = None
    rocm_patch: Annotated[str | None, field_docs.ROCM_PATCH] = None
    migraphx_patch: Annotated[str | None, field_docs.MIGRAPHX_PATCH] = None
    build: Annotated[str | None, field_docs.BUILD] = None
    tuning: Annotated[str, field_docs.TUNING] = "default"
    libraries: Annotated[tuple[str, ...], Doc("The libraries that the program calls.", items={"enum": LIBRARIES})] = ()
    latency_ms: Annotated[
        float | None, Doc("One run of the program on the host that compiled it. In milliseconds.")
    ] = None
    real_arch: Annotated[str | None, field_docs.REAL_ARCH] = None

    def __post_init__(self) -> None:
        for name in target.FEATURES:
            if getattr(self, name) not in ("+", "-", "any"):
                raise refuse(f"attributes.{name}", "+, - or any", getattr(self, name))
        if self.tuning not in target.TUNINGS:
            raise refuse("attributes.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.libraries:
            if name not in LIBRARIES:
                raise refuse("attributes.libraries", "one of " + ", ".join(LIBRARIES), name)
        object.__setattr__(self, "libraries", tuple(sorted(set(self.libraries))))
        limits.check_length(self.build, limits.MAX_WORD_LENGTH, "attributes.build")
        _check_counts(self, "attributes")
        _check_arch(self.real_arch, "attributes")

    def to_json(self) -> dict[str, Any]:
        """Return all fields that are known."""
        return _without_none(asdict(self) | {"libraries": list(self.libraries)})

    def check(self, key: Key) -> None:
        """Raise `UsageError` if these attributes contradict the key, such as by a patch version of another release."""
        for name, version, short in (
            ("rocm_patch", self.rocm_patch, key.rocm),
            ("migraphx_patch", self.migraphx_patch, key.migraphx),
        ):
            _check_patch(f"attributes.{name}", version, short)
        for name in target.FEATURES:
            if getattr(self, name) != "any" and not target.capable(key.arch or "", name):
                raise refuse(
                    f"attributes.{name}",
                    f"any, because {key.arch or key.kind} has no such setting",
                    getattr(self, name),
                )
        if self.real_arch is not None and self.real_arch == (key.arch or self.real_arch):
            raise refuse(
                "attributes.real_arch", f"an arch other than {key.arch or 'none'}, or no value", self.real_arch
            )


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a request requires of the attributes of an artifact. None means no constraint."""

    sramecc: Annotated[str | None, field_docs.SRAMECC] = None
    xnack: Annotated[str | None, field_docs.XNACK] = None
    num_cu: Annotated[int | None, field_docs.NUM_CU] = None
    chiplets: Annotated[int | None, field_docs.CHIPLETS] = None
    rocm_patch: Annotated[str | None, field_docs.ROCM_PATCH] = None
    migraphx_patch: Annotated[str | None, field_docs.MIGRAPHX_PATCH] = None
    build: Annotated[str | None, field_docs.BUILD] = None
    tuning: Annotated[str | None, field_docs.TUNING] = None
    exact: Annotated[bool, Doc(BY_NAME["exact"].about)] = False
    allow: Annotated[tuple[str, ...], field_docs.ALLOW] = ()
    real_arch: Annotated[str | None, field_docs.REAL_ARCH] = None

    def __post_init__(self) -> None:
        for name in target.FEATURES:
            if getattr(self, name) not in ("+", "-", None):
                raise refuse(f"constraints.{name}", "+ or -, or no value", getattr(self, name))
        if self.tuning not in (*target.TUNINGS, None):
            raise refuse("constraints.tuning", " or ".join(target.TUNINGS), self.tuning)
        for name in self.allow:
            if name not in ALLOWANCES:
                raise refuse("constraints.allow", "one of " + ", ".join(ALLOWANCES), name)
        object.__setattr__(self, "allow", tuple(sorted(set(self.allow))))
        limits.check_length(self.build, limits.MAX_WORD_LENGTH, "constraints.build")
        if self.exact and self.allow:
            raise UsageError(
                f"{stated('exact')} and {stated('allow')} cannot be used together.", hint="Omit one of them."
            )
        if self.tuning in target.ALLOWED_TUNINGS and self.tuning not in self.allow:
            raise UsageError(
                f"{stated('tuning', self.tuning)} requires {stated('allow', self.tuning)}.",
                hint=f"Add {stated('allow', self.tuning)}.",
            )
        _check_counts(self, "constraints")
        _check_arch(self.real_arch, "constraints")

    @property
    def other_rocm(self) -> bool:
        """Whether another minor release of ROCm can serve: allowed, and no patch is stated."""
        return "rocm" in self.allow and self.rocm_patch is None

    def to_json(self) -> dict[str, Any]:
        """Return all fields, `real_arch` only if it is set."""
        return _without_none(asdict(self) | {"allow": list(self.allow)})


@dataclass(frozen=True, slots=True)
class RelatedKey:
    """A key whose programs can serve a request for the key `asked`: that key itself, or one of `Request.related`."""

    asked: Key
    key: Key

    @property
    def relaxed(self) -> tuple[str, ...]:
        """The facts in which they differ: `arch`, the generic family of the arch, and `rocm`, another minor release."""
        return tuple(name for name in ("arch", "rocm") if getattr(self.asked, name) != getattr(self.key, name))

    @property
    def apart(self) -> int:
        """The number of minor releases between them."""
        asked, found = (int((each.rocm or "0.0").partition(".")[2]) for each in (self.asked, self.key))
        return abs(asked - found)


@dataclass(frozen=True, slots=True)
class Request:
    """A key and constraints on the attributes. Constraints that do not apply to a `ref` key are dropped."""

    key: Annotated[Key, field_docs.KEY]
    constraints: Annotated[Constraints, field_docs.CONSTRAINTS] = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        constraints = self.constraints
        if self.key.kind == "ref":
            nothing: dict[str, Any] = dict.fromkeys((*HARDWARE, "rocm_patch"))
            constraints = replace(constraints, **nothing)
        if constraints.real_arch is not None and constraints.real_arch == (self.key.arch or constraints.real_arch):
            constraints = replace(constraints, real_arch=None)
        object.__setattr__(self, "constraints", constraints)
        _check_patch("constraints.rocm_patch", constraints.rocm_patch, self.key.rocm)
        _check_patch("constraints.migraphx_patch", constraints.migraphx_patch, self.key.migraphx)
        for name in target.FEATURES:
            if getattr(constraints, name) is not None and not target.capable(self.key.arch or "", name):
                raise UsageError(f"{self.key.arch} has no {name} setting.", hint=f"Omit {name}.")

    @cached_property
    def related(self) -> Mapping[str, RelatedKey]:
        """The keys whose programs can serve, by digest: its own first."""
        keys = [each for each in (self.key, self.key.generic()) if each is not None]
        if self.constraints.other_rocm:
            releases = other_releases(self.key.vendor, self.key.rocm)
            keys += [replace(key, rocm=rocm) for key in keys for rocm in releases]
        return {key.digest: RelatedKey(self.key, key) for key in keys}

    def to_json(self) -> dict[str, Any]:
        """Return `{"key": {...}, "constraints": {...}}` with all fields, `real_arch` only if it is set."""
        return {"key": self.key.to_json(), "constraints": self.constraints.to_json()}


def option_values(key: Key, wanted: Any) -> dict[str, Any]:
    """Return the value of each fact as options state it, for a key and what is required beside it.

    `wanted`: `Constraints`, or what has the same names. None: no option is needed.
    """
    known = key.to_json() | {name: getattr(wanted, name, None) for name in (*COUNTS, "tuning", "real_arch")}
    known |= {name: None for name, usual in (("vendor", "amd"), ("kind", "gpu")) if known.get(name) == usual}
    known |= {
        "arch": str(target.GfxArch.of(key.arch, wanted)) if key.arch else None,
        "inputs": {name: target.show_dims(shape) for name, shape in key.inputs},
    }
    return {fact.name: known[fact.name] for fact in FACTS if known.get(fact.name) is not None}


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


def _check_counts(facts: Attributes | Constraints, where: str) -> None:
    for name in COUNTS:
        count = getattr(facts, name)
        if count is not None and not 1 <= count <= 65536:
            raise refuse(f"{where}.{name}", "a count from 1", count)
