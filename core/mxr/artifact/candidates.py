"""The programs that a partial request can mean: one for each way to complete it.

Programs of one key are one candidate, the one that a resolve would choose, unless the request leaves a feature or a CU
count open in which they differ. What is unknown of a program distinguishes nothing. Registry and cache use the same
rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any

from mxr.errors import UsageError
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass

from . import field_docs
from .attributes import HARDWARE, Constraints, RelatedKey, Request
from .field_docs import SHA256
from .key import Key
from .matching import BUILT, Candidate, allows, apply_rules, choose_candidate
from .partial import PartialRequest
from .target import dim_to_json

DIVIDING = HARDWARE
"""Attributes that divide the programs of one key, where the request leaves them open."""

MAX_PARTS = 51
"""Ways to settle the attributes for one key: more than a list of candidates has rows."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to complete a partial request: the key, and the attributes that have to be stated beside it."""

    key: Annotated[Key, field_docs.KEY]
    sramecc: Annotated[str | None, field_docs.SRAMECC] = None
    xnack: Annotated[str | None, field_docs.XNACK] = None
    num_cu: Annotated[int | None, field_docs.NUM_CU] = None
    chiplets: Annotated[int | None, field_docs.CHIPLETS] = None
    id: Annotated[str, Doc("The artifact that a resolve would choose.", pattern=SHA256, examples=[field_docs.SHA])] = ""
    consumer: Annotated[str | None, field_docs.CONSUMER] = None

    def request(self, partial: PartialRequest) -> Request:
        """Return the complete request."""
        stated = {name: value for name in DIVIDING if (value := getattr(self, name)) is not None}
        return Request(self.key, replace(partial.constraints, **stated))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The reply of `POST /v1/candidates`: ways to complete a partial request, the newest toolchain first."""

    candidates: Annotated[tuple[Choice, ...], Doc("The ways, at most 50.")]
    total: Annotated[int, Doc("How many there are; the reply has the first 50.", minimum=0)]
    more: Annotated[bool, Doc("There are programs that were not even read.")] = False
    varies: Annotated[Mapping[str, int], Doc("The facts in which the ways differ, each with its number of values.")] = (
        field(default_factory=dict)
    )


def choices(partial: PartialRequest, programs: Iterable[tuple[Key, Candidate]], *, serve: str) -> list[Choice]:
    """Return the ways to complete a request with one of these programs, the newest toolchain first.

    `serve`: which programs may answer. `Candidate.related` is set here.
    """
    groups: dict[Key, list[Candidate]] = {}
    for key, candidate in programs:
        if partial.admits(key):
            own = key
            if partial.arch not in (None, key.arch) or partial.rocm not in (None, key.rocm):
                own = partial.completed(key).key
                candidate = replace(candidate, related=RelatedKey(own, key))
            groups.setdefault(own, []).append(candidate)
    if not groups:
        return []
    # The same for all: they differ in facts that constraints do not depend on.
    constraints = partial.completed(next(iter(groups))).constraints
    found = [each for key, group in groups.items() for each in _choices_of_key(constraints, key, group, serve)]
    return sorted(found, key=_order)


def varying(found: Sequence[Choice]) -> dict[str, int]:
    """Return the facts in which choices differ, each with its number of values: `{"migraphx": 3, "inputs.x": 2}`."""
    values: dict[str, set[object]] = {}
    for each in found:
        for name, value in facts_of(each).items():
            values.setdefault(name, set()).add(str(value))
    return {name: len(different) for name, different in values.items() if len(different) > 1}


def facts_of(choice: Choice) -> Mapping[str, Any]:
    """Return the facts of a choice that a request can leave open, as JSON values."""
    key = choice.key
    inputs = {f"inputs.{name}": [dim_to_json(dim) for dim in shape] for name, shape in key.inputs}
    toolchain = {"migraphx": key.migraphx, "rocm": key.rocm}
    flags = {"offload_copy": key.offload_copy, "fast_math": key.fast_math}
    return {**toolchain, **inputs, **flags, **{name: getattr(choice, name) for name in DIVIDING}}


def _choices_of_key(constraints: Constraints, key: Key, group: Sequence[Candidate], serve: str) -> Iterable[Choice]:
    allowed = [each for each in group if allows(serve, each.origin, promoted=bool(each.promoted))]
    serving = [each for each in allowed if not apply_rules(constraints, each).refused]
    if len(serving) < 2:
        return [Choice(key, id=each.id) for each in serving]
    # A push must not divide what was built or promoted: it would stop requests that were answered.
    trusted = [each for each in serving if each.promoted or each.origin == BUILT] or serving
    open_names = [name for name in DIVIDING if getattr(constraints, name) is None]
    divided = [name for name in open_names if len({_known(each, name) for each in trusted} - {None}) > 1]
    found: dict[str, Choice] = {}
    for part in _parts(trusted, divided):
        # With an allowance, other counts can serve, too. Else those of other parts need not be judged for each part.
        others = "cu" in constraints.allow
        own = [each for each in serving if others or all(_known(each, name) in (None, has) for name, has in part)]
        try:
            chosen = choose_candidate(replace(constraints, **dict(part)), own, serve=serve)
        except UsageError:
            continue
        if chosen is not None:
            found.setdefault(chosen[0].id, Choice(key, id=chosen[0].id, **dict(part)))
    if len(found) == 1:
        return [Choice(key, id=next(iter(found)))]
    return found.values()


def _parts(candidates: Sequence[Candidate], divided: Sequence[str]) -> list[tuple[tuple[str, Any], ...]]:
    """The combinations of known values, without those that say less than another one."""
    parts: dict[tuple[tuple[str, Any], ...], None] = {}
    for candidate in candidates:
        parts[tuple((name, value) for name in divided if (value := _known(candidate, name)) is not None)] = None
        if len(parts) > MAX_PARTS:
            break
    sets = [set(part) for part in parts]
    return [part for part in parts if not any(set(part) < other for other in sets)]


def _known(candidate: Candidate, name: str) -> Any:
    value = getattr(candidate.attributes, name)
    return None if value == "any" else value


def _order(choice: Choice) -> tuple[Any, ...]:
    key = choice.key
    toolchain = [tuple(-int(part) for part in (version or "0").split(".")) for version in (key.migraphx, key.rocm)]
    sizes = [[dim if isinstance(dim, int) else dim.least for dim in shape] for _, shape in key.inputs]
    flags = (not key.offload_copy, not key.fast_math)
    return (*toolchain, sizes, flags, tuple(str(getattr(choice, name)) for name in DIVIDING), choice.id)
