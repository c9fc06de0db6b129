"""Request defaults: facts of a request for which options and host leave room, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

import mxr.facts as facts
from mxr.artifact import field_docs
from mxr.errors import UsageError
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from .target import Dim, parse_input, size_of, split_version

NAMES = facts.names(facts.DEFAULT)
"""The names of the request defaults, as in `mxr.toml` and among the arguments of `mxr.fetch`."""

BATCH_DIM = "N"
"""Stands for the batch size in the dims of an input."""

MAX_BATCHES = 1000

OpenDims = tuple["Dim | None", ...]
"""The dims of an input; None stands for the batch size."""


@dataclass(frozen=True, slots=True)
class CommonDefaults:
    """Defaults that hold for every model. None: there is none. Only a namespace has `allow`."""

    rocm: Annotated[str | None, Doc("The version of ROCm of a request that states none.")] = None
    migraphx: Annotated[str | None, Doc("The version of MIGraphX of a request that states none.")] = None
    consumer: Annotated[str | None, field_docs.CONSUMER] = None
    allow: Annotated[str | None, Doc("`rocm`: requests accept another minor release of ROCm, from 10 on.")] = None


@dataclass(frozen=True, slots=True)
class RequestDefaults(CommonDefaults):
    """Defaults of requests, from all sources. Empty: there is none.

    `batch`: batch sizes, one program for each. `inputs`: the dims of inputs by name. `sources`: where each value comes
    from, by its name in `NAMES`, or `inputs.NAME`.
    """

    batch: tuple[int, ...] = ()
    inputs: Mapping[str, OpenDims] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def over(self, others: RequestDefaults) -> RequestDefaults:
        """Return these defaults, and those of `others` for what these leave open."""
        values: dict[str, Any] = {name: getattr(self, name) or getattr(others, name) for name in NAMES}
        kept = {name: source for name, source in others.sources.items() if not getattr(self, name, None)}
        values |= {"inputs": {**others.inputs, **self.inputs}, "allow": self.allow or others.allow}
        return RequestDefaults(**values, sources={**kept, **self.sources})

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str) -> RequestDefaults:
        """Return checked values that all come from one source. Raises `UsageError` as `check_default` does."""
        found = {name: check_default(name, value) for name, value in values.items()}
        sources = {name: source for name in found if name != "inputs"}
        sources |= {f"inputs.{name}": source for name in found.get("inputs", ())}
        return cls(**found, sources=sources)


NO_DEFAULTS = RequestDefaults()


def check_default(name: str, value: object) -> Any:
    """Return the value of a default in its canonical form. Raises `UsageError`, whose message begins with the name."""
    if name in ("rocm", "migraphx"):
        return _version(name, value)
    if name == "consumer":
        if isinstance(value, str) and value:
            return value
        raise _wrong(name, 'the name of a consumer, such as "triton" (see `mxr consumers`)')
    if name == "batch":
        return _batches(value)
    if name == "allow":
        if value == "rocm":
            return value
        raise _wrong(name, '"rocm"')
    if isinstance(value, Mapping):
        return {key: _dims(key, dims) for key, dims in value.items()}
    raise _wrong(name, 'a table of inputs, such as x = ["N", 3, 224, 224]')


def _wrong(name: str, expected: str) -> UsageError:
    return UsageError(f"{name} must be {expected}", hint=f"Correct {name}.")


def _version(name: str, value: object) -> str:
    example = "7.2" if name == "rocm" else "2.15"
    # A number of TOML would lose the zero of 2.10.
    if not isinstance(value, str):
        raise _wrong(name, f'a version in quotes, such as "{example}"')
    try:
        split_version(value, name, zeros=True)
    except UsageError:
        raise _wrong(name, f"a version such as {example} or {example}.1") from None
    return value.strip()


def _batches(value: object) -> tuple[int, ...]:
    """Return batch sizes from a number, a list of numbers, or a text such as `1,2,4`."""
    if isinstance(value, str):
        value = [int(part) if part.strip().isdecimal() and len(part) < 12 else part for part in value.split(",")]
    sizes = list(value) if isinstance(value, (list, tuple)) else [value]
    if not sizes or len(sizes) > MAX_BATCHES:
        raise _wrong("batch", f"a batch size, or a list of 1 to {MAX_BATCHES}")
    try:
        return tuple(sorted({size_of(size, "batch") for size in sizes}))
    except UsageError:
        raise _wrong("batch", "a batch size such as 8, or a list such as [1, 8]") from None


def _dims(name: str, value: object) -> OpenDims:
    dims = value.split(",") if isinstance(value, str) else value
    if not isinstance(dims, (list, tuple)) or any(isinstance(dim, (bool, float)) for dim in dims):
        raise _wrong(f"inputs.{name}", 'a list of dims, such as ["N", 3, 224, 224]')
    words = [str(dim).strip() for dim in dims]
    try:
        return tuple(None if word == BATCH_DIM else _dim(word) for word in words)
    except (UsageError, ValueError):
        raise _wrong(
            f"inputs.{name}", 'a list of dims: sizes, "1..8@1/4/8" for a dynamic one, "N" for the batch size'
        ) from None


def _dim(word: str) -> Dim:
    (dim,) = parse_input(f"x={word}")[1]
    return dim
