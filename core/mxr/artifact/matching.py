"""Decides whether an artifact can serve a request and which of several is the best; each attribute has one rule.

A rule that does not simply match records a value that it assumed (`assumed`), a difference that it accepted
(`relaxed`), or one that it did not accept (`refused`). All assumptions and relaxations are reported to the user.

The rule `serve` of a namespace says which artifacts answer its requests; one that a person or a lock names by its id is
served whatever the rule is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any

from mxr.errors import UsageError
from mxr.facts import stated
from mxr.util.doc import Doc
from mxr.util.frozen import dataclass
from mxr.version import __version__

from .attributes import COUNTS, HARDWARE, LIBRARIES, PATCHES, Attributes, Constraints, RelatedKey
from .key import Difference
from .target import ALLOWED_TUNINGS, FEATURES, TUNINGS

BUILT, PUSHED = ORIGINS = ("built", "pushed")
"""BUILT: a worker finished its lease with it. PUSHED: somebody published it; the registry did not see the compile."""

ANY, BUILT_ONLY, PROMOTED_ONLY = SERVE_RULES = ("any", "built", "promoted")
"""ANY: every artifact. BUILT_ONLY: those that are built or promoted. PROMOTED_ONLY: those that are promoted."""

DESCRIPTIONS = {
    ANY: "every artifact",
    BUILT_ONLY: "only artifacts that a worker built or somebody promoted",
    PROMOTED_ONLY: "only promoted artifacts",
}


def describe_rule(rule: str) -> str:
    """Return what a namespace with a rule serves, for messages. A newer registry may have other rules."""
    return DESCRIPTIONS.get(rule, f"what its rule {rule!r} says, which mxr {__version__} does not know")


READER, WORKER, PUBLISHER = SOURCES = ("reader", "worker", "publisher")
"""Who states a fact of an artifact. READER: the registry read it from the file. WORKER: the worker that compiled the
program. PUBLISHER: whoever published it; nobody verified the fact."""


def allows(rule: str, origin: str, *, promoted: bool) -> bool:
    """Return whether an artifact answers the requests of a namespace with this rule. An unknown rule allows none."""
    return (promoted and rule in SERVE_RULES) or rule == ANY or (rule == BUILT_ONLY and origin == BUILT)


def rule_for_compiles(rule: str) -> str:
    """Return the rule for what makes a compile unnecessary: what a worker built is not built again for a promotion."""
    return BUILT_ONLY if rule == PROMOTED_ONLY else rule


TUNING_LADDER = TUNINGS[::-1]
"""Best first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact with the key of the request, or with one that differs as its `related` says.

    `promoted` orders promotions (0: never promoted, latest highest), `order` publications (first lowest). `found`: the
    names of the attributes that the reader or a worker found; the publisher claims the others.
    """

    id: str
    attributes: Attributes
    promoted: float = 0
    order: int = 0
    related: RelatedKey | None = None
    origin: str = PUSHED
    found: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Match:
    """How well an artifact matches a request."""

    relaxed: Annotated[tuple[str, ...], Doc("The constraints that the request allowed to differ.")] = ()
    assumed: Annotated[
        Mapping[str, Any], Doc("Facts that are not known of the artifact, with the value that the request assumes.")
    ] = field(default_factory=dict)
    exact: Annotated[bool, Doc("The artifact satisfies each constraint, and nothing is assumed.")] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", not self.relaxed and not self.assumed)

    def to_json(self) -> dict[str, Any]:
        """Return `{"exact","relaxed","assumed"}`."""
        return {"exact": self.exact, "relaxed": list(self.relaxed), "assumed": dict(self.assumed)}


class Verdict:
    """The result of the rules for one candidate. It can serve the request if `refused` is empty."""

    __slots__ = ("assumed", "refused", "relaxed")

    def __init__(self) -> None:
        self.relaxed: list[str] = []
        self.assumed: dict[str, Any] = {}
        self.refused: list[Difference] = []


def apply_rules(constraints: Constraints, candidate: Candidate) -> Verdict:
    """Apply all rules to one candidate."""
    verdict = Verdict()
    if candidate.related is not None:
        _related(constraints, candidate.related, verdict)
    for rule in RULES:
        rule(constraints, candidate.attributes, verdict)
    return verdict


def satisfies(constraints: Constraints, attributes: Attributes) -> bool:
    """Return whether an artifact with these attributes and the requested key can serve."""
    return not apply_rules(constraints, Candidate("", attributes)).refused


def surely_satisfies(constraints: Constraints, promised: Attributes) -> bool:
    """Return whether a running compile will satisfy constraints, whatever its open attributes and libraries will be."""
    if constraints.exact and (constraints.sramecc or constraints.xnack):
        return False
    stated = (name for name in (*HARDWARE, *PATCHES) if getattr(constraints, name) is not None)
    if any(getattr(promised, name) in (None, "any") for name in stated):
        return False
    return satisfies(constraints, replace(promised, libraries=LIBRARIES if constraints.rocm_patch else ()))


def covers(permitted: Constraints, asked: Constraints) -> bool:
    """Return whether every artifact that satisfies the constraints `permitted` also satisfies `asked`.

    This is the case only if each constraint in `asked` is one of `permitted`, which allows no relaxation that `asked`
    does not allow.
    """
    for name in (*HARDWARE, *PATCHES, "tuning"):
        if getattr(asked, name) not in (None, getattr(permitted, name)):
            return False
    if asked.real_arch != permitted.real_arch:
        return False
    return set(permitted.allow) <= set(asked.allow) and (permitted.exact or not asked.exact)


def _related(constraints: Constraints, related: RelatedKey, verdict: Verdict) -> None:
    """The generic family of the arch is relaxed; another minor release of ROCm must be allowed, and no patch stated."""
    for name in related.relaxed:
        if constraints.exact or (name == "rocm" and not constraints.other_rocm):
            verdict.refused.append(Difference(name, getattr(related.asked, name), getattr(related.key, name)))
        else:
            verdict.relaxed.append(name)


def _features(constraints: Constraints, has: Attributes, verdict: Verdict) -> None:
    """`+` and `-` do not match; `any` matches both. Without a constraint, the value is assumed."""
    for name in FEATURES:
        asked, found = getattr(constraints, name), getattr(has, name)
        if asked is None:
            if found != "any":
                verdict.assumed[name] = found
        elif found != asked and (constraints.exact or found != "any"):
            verdict.refused.append(Difference(name, asked, found))


def _counts(constraints: Constraints, has: Attributes, verdict: Verdict) -> None:
    """The counts must be equal or unknown. With `allow cu`, a program for fewer than the host has is relaxed."""
    for name in COUNTS:
        asked, found = getattr(constraints, name), getattr(has, name)
        if asked == found:
            continue
        if asked is None:
            verdict.assumed[name] = found
        elif found is None and not constraints.exact:
            verdict.assumed[name] = asked
        elif found is not None and "cu" in constraints.allow and found < asked:
            verdict.relaxed.append(name)
        else:
            verdict.refused.append(Difference(name, asked, found))


def _patches(constraints: Constraints, has: Attributes, verdict: Verdict) -> None:
    """Relax another patch version or build. If the program calls libraries, another ROCm patch needs `allow patch`.

    Without a constraint, only the ROCm patch of a program that calls libraries is reported: it is tied to it.
    """
    for name in PATCHES:
        asked, found = getattr(constraints, name), getattr(has, name)
        tied = name == "rocm_patch" and bool(has.libraries)
        if asked is None and tied and found is not None:
            verdict.assumed[name] = found
        if asked is None or asked == found:
            continue
        if constraints.exact or (found is not None and tied and "patch" not in constraints.allow):
            verdict.refused.append(Difference(name, asked, found))
        elif found is None:
            verdict.assumed[name] = asked
        else:
            verdict.relaxed.append(name)


def _tuning(constraints: Constraints, has: Attributes, verdict: Verdict) -> None:
    """`cross` and `eager` must be allowed. The tuning must be the requested one; without one, any other matches."""
    barred = has.tuning in ALLOWED_TUNINGS and has.tuning not in constraints.allow
    if barred or constraints.tuning not in (None, has.tuning):
        verdict.refused.append(Difference("tuning", constraints.tuning or f"not {has.tuning}", has.tuning))
    elif has.tuning in ALLOWED_TUNINGS and constraints.tuning != has.tuning:
        verdict.relaxed.append("tuning")


def _silicon(constraints: Constraints, has: Attributes, verdict: Verdict) -> None:
    """Must be equal: a GPU under an arch override can lack registers or units that a program for the true arch uses."""
    if constraints.real_arch == has.real_arch:
        return
    if "spoof" in constraints.allow:
        verdict.relaxed.append("real_arch")
    else:
        asked, found = (arch or "no override" for arch in (constraints.real_arch, has.real_arch))
        verdict.refused.append(Difference("real_arch", asked, found))


RULES: tuple[Callable[[Constraints, Attributes, Verdict], None], ...] = (
    _features,
    _counts,
    _patches,
    _tuning,
    _silicon,
)


def choose_candidate(
    constraints: Constraints, candidates: Sequence[Candidate], *, serve: str
) -> tuple[Candidate, Match] | None:
    """Return the best candidate that the rule `serve` allows, and how well it matches; None if none can serve.

    Order: the latest promoted; built before pushed; this arch before its generic family; the nearest release of ROCm;
    the same true arch; equal CU counts; explicit features; equal patch versions; better tuning; then the first
    published. A claim of a publisher counts against the artifact, never for it. Raises `UsageError` if the request does
    not give a feature and the candidates have different settings of it.
    """
    allowed = [
        candidate for candidate in candidates if allows(serve, candidate.origin, promoted=bool(candidate.promoted))
    ]
    serving = [(each, verdict) for each in allowed if not (verdict := apply_rules(constraints, each)).refused]
    if not serving:
        return None
    _agree(constraints, [each for each, _ in serving])
    chosen, verdict = min(serving, key=lambda pair: _rank(constraints, pair[0]))
    return chosen, Match(tuple(verdict.relaxed), verdict.assumed)


def _agree(constraints: Constraints, serving: Sequence[Candidate]) -> None:
    # A push must not stop the service of what was built or promoted.
    trusted = [each for each in serving if each.promoted or each.origin == BUILT] or serving
    for name in FEATURES:
        signs = sorted({getattr(each.attributes, name) for each in trusted} - {"any"})
        if getattr(constraints, name) is None and len(signs) > 1:
            raise UsageError(
                f"The registry has programs for {name}+ and for {name}-, and the request does not specify {name}.",
                hint=f"Add {stated('arch', f'ARCH:{name}+')} or {stated('arch', f'ARCH:{name}-')}. "
                "`mxr host` shows the setting of this host.",
                context={"field": name, "found": signs, "ids": [each.id for each in trusted]},
            )


def _rank(constraints: Constraints, candidate: Candidate) -> tuple[Any, ...]:
    has, related = candidate.attributes, candidate.related
    return (
        -candidate.promoted,
        candidate.origin != BUILT,
        related is not None and "arch" in related.relaxed,
        related.apart if related else 0,
        *(_distance(constraints, candidate, name) for name in ("real_arch", *COUNTS)),
        sum(getattr(has, name) == "any" or not _is_found(candidate, name) for name in FEATURES),
        sum(_distance(constraints, candidate, name) for name in PATCHES if getattr(constraints, name) is not None),
        _tuning_rank(candidate),
        candidate.order,
    )


def _is_found(candidate: Candidate, name: str) -> bool:
    return candidate.origin == BUILT or name in candidate.found


def _distance(constraints: Constraints, candidate: Candidate, name: str) -> int:
    """Return 0 for an equal value that was found, 2 for another value that the publisher claims, and 1 otherwise.

    So a claim never ranks above no claim, and never above what was found.
    """
    asked, has = getattr(constraints, name), getattr(candidate.attributes, name)
    if _is_found(candidate, name):
        return int(asked != has)
    # Without a constraint, any CU count will do. The GPU without an override is a constraint, too.
    admitted = has not in (None, asked) and (asked is not None or name == "real_arch")
    return 2 if admitted else 1


def _tuning_rank(candidate: Candidate) -> int:
    rank = TUNING_LADDER.index(candidate.attributes.tuning)
    return rank if _is_found(candidate, "tuning") else max(rank, TUNING_LADDER.index("default"))
