"""May this artifact serve this request, and which of several first: the rules for qualities, one function each.

A rule answers with nothing (it fits), or says what it took on trust (`assumed`), what it let pass (`relaxed`), or why
it refuses (`refused`). Nothing is relaxed or assumed in silence: all of it reaches the person who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from mxr.errors import Usage
from mxr.util.frozen import dataclass

from .key import Difference
from .qualities import Demands, Qualities
from .target import FEATURES

PATCHES = ("rocm_patch", "migraphx_patch", "build")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact whose key's digest agrees, or, when `generic`, whose family's digest does.

    `promoted` orders promotions (0 is never, the latest is highest), `order` publications (the first is lowest).
    """

    id: str
    qualities: Qualities
    promoted: float = 0
    order: int = 0
    generic: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """How well a chosen artifact fits: what was let pass, and what was taken on trust (field: value)."""

    relaxed: tuple[str, ...] = ()
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether nothing was relaxed or assumed."""
        return not self.relaxed and not self.assumed

    def to_json(self) -> dict[str, Any]:
        """`{"exact","relaxed","assumed"}`."""
        return {"exact": self.exact, "relaxed": list(self.relaxed), "assumed": dict(self.assumed)}


class Verdict:
    """What the rules say of one candidate: lets pass, takes on trust, refuses."""

    __slots__ = ("assumed", "refused", "relaxed")

    def __init__(self) -> None:
        self.relaxed: list[str] = []
        self.assumed: dict[str, Any] = {}
        self.refused: list[Difference] = []


def judge(demands: Demands, candidate: Candidate) -> Verdict:
    """Apply every rule to one candidate."""
    verdict = Verdict()
    if candidate.generic:
        if demands.exact:
            verdict.refused.append(Difference("arch", "this arch itself", candidate.generic))
        else:
            verdict.relaxed.append("arch")
    for rule in RULES:
        rule(demands, candidate.qualities, verdict)
    return verdict


def _features(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """`+` and `-` never meet; `any` meets both. Open in the request: taken, and said."""
    for name in FEATURES:
        asked, found = getattr(demands, name), getattr(has, name)
        if asked is None:
            if found != "any":
                verdict.assumed[name] = found
        elif found != asked and (demands.exact or found != "any"):
            verdict.refused.append(Difference(name, asked, found))


def _counts(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """Equal, or unknown. Another count only when allowed, and only a program built for no more than the host has."""
    for name in ("num_cu", "chiplets"):
        asked, found = getattr(demands, name), getattr(has, name)
        if asked == found:
            continue
        if asked is None:
            verdict.assumed[name] = found
        elif found is None and not demands.exact:
            verdict.assumed[name] = asked
        elif found is not None and "cu" in demands.allow and found < asked:
            verdict.relaxed.append(name)
        else:
            verdict.refused.append(Difference(name, asked, found))


def _patches(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """Another patch or build is let pass and said; one of ROCm under library calls only when allowed.

    Open in the request nothing is said, but where library calls tie the program to its ROCm.
    """
    for name in PATCHES:
        asked, found = getattr(demands, name), getattr(has, name)
        tied = name == "rocm_patch" and bool(has.libraries)
        if asked is None and tied and found is not None:
            verdict.assumed[name] = found
        if asked is None or asked == found:
            continue
        if demands.exact or (found is not None and tied and "patch" not in demands.allow):
            verdict.refused.append(Difference(name, asked, found))
        elif found is None:
            verdict.assumed[name] = asked
        else:
            verdict.relaxed.append(name)


def _tuning(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """`cross` only when allowed; otherwise as asked, or any."""
    if (has.tuning == "cross" and "cross" not in demands.allow) or demands.tuning not in (None, has.tuning):
        verdict.refused.append(Difference("tuning", demands.tuning or "not cross", has.tuning))
    elif has.tuning == "cross" and demands.tuning != "cross":
        verdict.relaxed.append("tuning")


def _silicon(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """Equal: a GPU that only passes for another may lack registers or units that a program for the true one uses."""
    if demands.real_arch == has.real_arch:
        return
    if "spoof" in demands.allow:
        verdict.relaxed.append("real_arch")
    else:
        asked, found = (arch or "a true one" for arch in (demands.real_arch, has.real_arch))
        verdict.refused.append(Difference("real_arch", asked, found))


RULES: tuple[Callable[[Demands, Qualities, Verdict], None], ...] = (_features, _counts, _patches, _tuning, _silicon)


def choose(demands: Demands, candidates: Sequence[Candidate]) -> tuple[Candidate, Match] | None:
    """The candidate that serves first, and how well it fits; None when none may serve.

    Order: this arch before its generic family; the promoted one; the same silicon; equal CUs; features explicit; equal
    patches; then the first published. Raises `Usage` when a feature is open in the request and those that could serve
    disagree on it.
    """
    serving = [(each, verdict) for each in candidates if not (verdict := judge(demands, each)).refused]
    if not serving:
        return None
    _agree(demands, [each for each, _ in serving])
    chosen, verdict = min(serving, key=lambda pair: _rank(demands, pair[0]))
    return chosen, Match(tuple(verdict.relaxed), verdict.assumed)


def _agree(demands: Demands, serving: Sequence[Candidate]) -> None:
    for name in FEATURES:
        signs = sorted({getattr(each.qualities, name) for each in serving} - {"any"})
        if getattr(demands, name) is None and len(signs) > 1:
            raise Usage(
                f"There are programs for {name}+ and for {name}-, and the request does not say which.",
                hint=f"Say it: --arch ARCH:{name}+ or --arch ARCH:{name}- (`mxr host` shows what this host has).",
                detail={"field": name, "found": signs, "ids": [each.id for each in serving]},
            )


def _rank(demands: Demands, candidate: Candidate) -> tuple[Any, ...]:
    has = candidate.qualities
    return (
        candidate.generic is not None,
        -candidate.promoted,
        *(getattr(demands, name) != getattr(has, name) for name in ("real_arch", "num_cu", "chiplets")),
        sum(getattr(has, name) == "any" for name in FEATURES),
        sum(getattr(demands, name) not in (None, getattr(has, name)) for name in PATCHES),
        candidate.order,
    )
