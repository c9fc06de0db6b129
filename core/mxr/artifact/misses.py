"""Explains a miss: the nearest artifacts, the fields in which they differ from the request, and what to do about it.

A registry and a reader of its static form use the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from mxr.display.text import counted
from mxr.errors import NoSuchArtifactError
from mxr.facts import BY_NAME
from mxr.util.frozen import dataclass

from . import matching, target
from .attributes import ALLOWANCES, HARDWARE, PATCHES, Constraints, RelatedKey, Request
from .key import Difference, Key, other_releases, value_text
from .matching import BUILT_ONLY, PROMOTED_ONLY, Candidate, allows, describe_rule
from .partial import PartialRequest
from .records import INTACT, LOST, UNKNOWN_MODEL

MAX_REPORTED = 5
"""Maximum number of nearest artifacts in a report."""

OF_FIELD = {
    **dict.fromkeys(("rocm", "migraphx", *PATCHES), "toolchain"),
    **dict.fromkeys(("arch", "vendor", "kind", "real_arch"), "arch"),
    **dict.fromkeys(HARDWARE, "hardware"),
    **dict.fromkeys(("precision", "calibration"), "precision"),
    **dict.fromkeys(("form", "offload_copy", "fast_math", "env", "options", "tuning", "exact"), "options"),
    **{"inputs": "shapes", "origin": "promotion", "state": "lost", "recall": "recalled"},
}
"""The reason that a difference in a field is."""


@dataclass(frozen=True, slots=True)
class MissedArtifact:
    """An artifact of the model of a request. `lost`: the bytes are gone. `recall`: the word that was said of it."""

    key: Key
    candidate: Candidate
    lost: bool = False
    recall: str | None = None


@dataclass(frozen=True, slots=True)
class MissContext:
    """Where a request was missed. `known`: whether the model is known there, though there is no program of it.

    `rule`: the rule `serve` of the namespace; `change`: how somebody changes it.
    """

    namespace: str
    rule: str
    known: bool
    change: str


@dataclass(frozen=True, slots=True)
class NearestArtifact:
    """An artifact that does not satisfy a request, and the reasons. `excluded`: the rule `serve` is the only one."""

    candidate: Candidate
    same_key: bool
    differences: tuple[Difference, ...]
    excluded: bool = False

    def to_json(self) -> dict[str, Any]:
        """`{"id","differences":[{"field","asked","found"}]}`."""
        rows = [difference.to_json() for difference in self.differences]
        return {"id": self.candidate.id, "differences": rows}


def miss_error(request: Request, artifacts: Iterable[MissedArtifact], where: MissContext) -> NoSuchArtifactError:
    """Return the error for a request that none of these artifacts of its model satisfies, with the nearest ones.

    If the rule `serve` is the reason of the miss, the error says so.
    """
    key = request.key
    near = _nearest_of(_compare(request, each, where.rule) for each in artifacts)[:MAX_REPORTED]
    context = {"digest": key.digest, **_told(near, where)}
    message = f"No program of {key.model} for {target_text(key)}: "
    if near and near[0].excluded:
        return _excluded(where, message, near, context)
    message += _nearest_differences(context["reason"], near)
    hint = "Request a compile (`POST /v1/jobs`), or publish the program (`POST /v1/artifacts`)."
    if accept := acceptance(request, near):
        context["accept"] = accept
        hint += f" The constraints in context.accept take artifact {accept['id'][:12]}."
    return NoSuchArtifactError(message, hint=hint, context=context)


def partial_miss_error(
    partial: PartialRequest,
    artifacts: Iterable[MissedArtifact],
    where: MissContext,
    toolchains: Sequence[Mapping[str, Any]] = (),
) -> NoSuchArtifactError:
    """Return the error for a partial request that none of these artifacts of its model can complete.

    It names at once what is open, the nearest artifacts, and the `toolchains` of the workers that could compile it.
    """
    near = _nearest_of(_compare_partial(partial, each, where.rule) for each in artifacts)[:MAX_REPORTED]
    opened = list(partial.open_facts)
    context = {"open": opened, **_told(near, where), "toolchains": list(toolchains)}
    target = "the ref target" if partial.kind == "ref" else partial.arch
    message = f"No program of {partial.model} for {target} (open: {', '.join(opened)}): "
    if near and near[0].excluded:
        return _excluded(where, message, near, context)
    message += _nearest_differences(context["reason"], near)
    return NoSuchArtifactError(
        message, hint="Request a compile (`POST /v1/jobs`), with all that is open.", context=context
    )


def _told(near: Sequence[NearestArtifact], where: MissContext) -> dict[str, Any]:
    """The nearest artifacts, and why there is no program: a word of `records.REASONS`."""
    if near:
        field = near[0].differences[0].field.partition(".")[0]
        reason = OF_FIELD.get(field, "other" if field not in BY_NAME else "options")
    else:
        reason = "no_program" if where.known else UNKNOWN_MODEL
    return {"reason": reason, "nearest": [each.to_json() for each in near]}


def _nearest_differences(reason: str, near: Sequence[NearestArtifact]) -> str:
    if near and reason == "recalled":
        return f"artifact {near[0].candidate.id[:12]} matches, but it was {near[0].differences[0].found}."
    if near:
        first = near[0].differences[0]
        more = len(near[0].differences) - 1
        rest = f" ({counted(more, 'more difference')})" if more else ""
        return (
            f"the nearest artifact, {near[0].candidate.id[:12]}, has {first.field} {value_text(first.found)}, "
            f"but the request asks for {value_text(first.asked)}{rest}."
        )
    if reason == UNKNOWN_MODEL:
        return "the registry does not know this model."
    return "the registry knows this model but has no program of it."


def _excluded(
    where: MissContext, message: str, near: Sequence[NearestArtifact], context: Mapping[str, Any]
) -> NoSuchArtifactError:
    ids, rule = [each.candidate.id for each in near if each.excluded], where.rule
    return NoSuchArtifactError(
        f"{message}artifact {ids[0][:12]} matches, but it is {near[0].candidate.origin} and not promoted, and the "
        f"namespace {where.namespace} serves {describe_rule(rule)}.",
        hint=f"{'Request a compile (`POST /v1/jobs`), or promote' if rule == BUILT_ONLY else 'Promote'} the artifact "
        f"(`POST /v1/artifacts/{{id}}/promote`), or {where.change}.",
        context={**context, "serve": {"rule": rule, "namespace": where.namespace, "excluded": ids}},
    )


def target_text(key: Key) -> str:
    """Describe briefly where a program with this key runs."""
    if key.kind == "ref":
        return f"the ref target (MIGraphX {key.migraphx})"
    return f"{key.arch} ({target.userland(key.vendor)} {key.rocm}, MIGraphX {key.migraphx})"


def _nearest_of(compared: Iterable[NearestArtifact]) -> list[NearestArtifact]:
    different = (each for each in compared if each.differences)
    return sorted(different, key=lambda each: (not each.excluded, len(each.differences)))


def _compare(request: Request, artifact: MissedArtifact, rule: str) -> NearestArtifact:
    key, asked = artifact.key, request.key
    family = asked.generic()
    # What a rule can accept is a matter of the rules, and no difference of the keys.
    like = family if family is not None and key.arch == family.arch else asked
    if key.rocm in other_releases(asked.vendor, asked.rocm):
        like = replace(like, rocm=key.rocm)
    return _judged(like.differences(key), request.constraints, artifact, RelatedKey(asked, like), rule)


def _compare_partial(partial: PartialRequest, artifact: MissedArtifact, rule: str) -> NearestArtifact:
    key = artifact.key
    related = RelatedKey(partial.completed(key).key, key) if partial.admits(key) else None
    return _judged(partial.differences(key), partial.constraints, artifact, related, rule)


def _judged(
    differences: tuple[Difference, ...],
    constraints: Constraints,
    artifact: MissedArtifact,
    related: RelatedKey | None,
    rule: str,
) -> NearestArtifact:
    candidate = replace(artifact.candidate, related=related)
    other_hardware = any(difference.field in ("arch", "vendor", "kind") for difference in differences)
    refused = () if other_hardware else tuple(matching.apply_rules(constraints, candidate).refused)
    if artifact.lost:
        refused += (Difference("state", INTACT, LOST),)
    if artifact.recall is not None:
        refused += (Difference("recall", None, artifact.recall),)
    if allows(rule, candidate.origin, promoted=bool(candidate.promoted)):
        return NearestArtifact(candidate, not differences, differences + refused)
    unserved = Difference("origin", "promoted" if rule == PROMOTED_ONLY else "built or promoted", candidate.origin)
    return NearestArtifact(
        candidate, not differences, (*differences, *refused, unserved), excluded=not differences and not refused
    )


def acceptance(request: Request, near: Sequence[NearestArtifact]) -> dict[str, Any] | None:
    """Return the smallest change of the constraints with which a near artifact satisfies the request, or None.

    `{"id","allow":[...]}`, with `"rocm_patch":null` if that may not be stated, or `{"id","exact":false}`.
    """
    for each in near:
        served = not any(difference.field in ("origin", "state", "recall") for difference in each.differences)
        change = _accepting_change(request.constraints, each) if each.same_key and served else None
        if change:
            return {"id": each.candidate.id, **change}
    return None


def _accepting_change(constraints: Constraints, near: NearestArtifact) -> dict[str, Any] | None:
    if constraints.exact:
        loose = replace(constraints, exact=False)
        return None if matching.apply_rules(loose, near.candidate).refused else {"exact": False}
    unused = [name for name in ALLOWANCES if name not in constraints.allow]
    for count in range(1, len(unused) + 1):
        for added in combinations(unused, count):
            allow = (*constraints.allow, *added)
            loose = replace(constraints, allow=allow, rocm_patch=None if "rocm" in added else constraints.rocm_patch)
            if not matching.apply_rules(loose, near.candidate).refused:
                stated = {"rocm_patch": None} if loose.rocm_patch != constraints.rocm_patch else {}
                return {"allow": list(allow), **stated}
    return None
