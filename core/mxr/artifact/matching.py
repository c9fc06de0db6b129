"""Decides whether an artifact can serve a request and which of several is the best; each quality has one rule.

A rule that does not simply match records a value that it assumed (`assumed`), a difference that it accepted
(`relaxed`), or one that it did not accept (`refused`). All assumptions and relaxations are reported to the user.
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
    """An artifact with the digest of the request or, with `generic` (an arch), with that of its generic family.

    `promoted` orders promotions (0: never promoted, latest highest), `order` publications (first lowest).
    """

    id: str
    qualities: Qualities
    promoted: float = 0
    order: int = 0
    generic: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """How well the chosen artifact matches: the relaxed fields, and the assumed values by field."""

    relaxed: tuple[str, ...] = ()
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """True if nothing was relaxed or assumed."""
        return not self.relaxed and not self.assumed

    def to_json(self) -> dict[str, Any]:
        """Returns `{"exact","relaxed","assumed"}`."""
        return {"exact": self.exact, "relaxed": list(self.relaxed), "assumed": dict(self.assumed)}


class Verdict:
    """The result of the rules for one candidate. It can serve the request if `refused` is empty."""

    __slots__ = ("assumed", "refused", "relaxed")

    def __init__(self) -> None:
        self.relaxed: list[str] = []
        self.assumed: dict[str, Any] = {}
        self.refused: list[Difference] = []


def judge(demands: Demands, candidate: Candidate) -> Verdict:
    """Applies all rules to one candidate."""
    verdict = Verdict()
    if candidate.generic:
        if demands.exact:
            verdict.refused.append(Difference("arch", "exactly this arch", candidate.generic))
        else:
            verdict.relaxed.append("arch")
    for rule in RULES:
        rule(demands, candidate.qualities, verdict)
    return verdict


def _features(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """`+` and `-` do not match; `any` matches both. Without a demand, the value is assumed."""
    for name in FEATURES:
        asked, found = getattr(demands, name), getattr(has, name)
        if asked is None:
            if found != "any":
                verdict.assumed[name] = found
        elif found != asked and (demands.exact or found != "any"):
            verdict.refused.append(Difference(name, asked, found))


def _counts(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """The counts must be equal or unknown. With `allow cu`, a program for fewer than the host has is relaxed."""
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
    """Relaxes another patch version or build. If the program calls libraries, another ROCm patch needs `allow patch`.

    Without a demand, only the ROCm patch of a program that calls libraries is reported: it is tied to it.
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
    """`cross` must be allowed. Otherwise the tuning must be the demanded one; without a demand, any matches."""
    if (has.tuning == "cross" and "cross" not in demands.allow) or demands.tuning not in (None, has.tuning):
        verdict.refused.append(Difference("tuning", demands.tuning or "not cross", has.tuning))
    elif has.tuning == "cross" and demands.tuning != "cross":
        verdict.relaxed.append("tuning")


def _silicon(demands: Demands, has: Qualities, verdict: Verdict) -> None:
    """Must be equal: a GPU under an arch override can lack registers or units that a program for the true arch uses."""
    if demands.real_arch == has.real_arch:
        return
    if "spoof" in demands.allow:
        verdict.relaxed.append("real_arch")
    else:
        asked, found = (arch or "no override" for arch in (demands.real_arch, has.real_arch))
        verdict.refused.append(Difference("real_arch", asked, found))


RULES: tuple[Callable[[Demands, Qualities, Verdict], None], ...] = (_features, _counts, _patches, _tuning, _silicon)


def choose(demands: Demands, candidates: Sequence[Candidate]) -> tuple[Candidate, Match] | None:
    """Returns the best candidate and how well it matches; None if no candidate can serve the request.

    Order: this arch before its generic family; the latest promoted; the same true arch; equal CU counts; explicit
    features; equal patch versions; then the first published. Raises `Usage` if the request does not give a feature and
    the candidates have different settings of it.
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
                f"The registry has programs for {name}+ and for {name}-, and the request does not specify {name}.",
                hint=f"Add --arch ARCH:{name}+ or --arch ARCH:{name}-. `mxr host` shows the setting of this host.",
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
