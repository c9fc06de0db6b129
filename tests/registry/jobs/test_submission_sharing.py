"""Whoever attaches to a job gets a program that serves: for any constraints, workers and programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.scale import crowd
from hypothesis import given, settings
from hypothesis import strategies as some

from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.matching import Candidate, apply_rules, covers, surely_satisfies

EXAMPLES = crowd(500, 100)

SIGNS, COUNTS = some.sampled_from([None, "+", "-"]), some.sampled_from([None, 104, 120, 304])
PATCHES, BUILDS = some.sampled_from([None, "7.2.0", "7.2.1"]), some.sampled_from([None, "a", "b"])
TUNINGS = some.sampled_from([None, "default", "exhaustive"])


@some.composite
def constraints(draw: Any) -> Constraints:
    exact = draw(some.booleans())
    allow = () if exact else tuple(draw(some.sets(some.sampled_from(["cu", "patch", "cross"]))))
    return Constraints(
        sramecc=draw(SIGNS),
        xnack=draw(SIGNS),
        num_cu=draw(COUNTS),
        rocm_patch=draw(PATCHES),
        build=draw(BUILDS),
        tuning=draw(TUNINGS),
        exact=exact,
        allow=allow,
    )


@some.composite
def programs(draw: Any) -> Attributes:
    return Attributes(
        sramecc=draw(SIGNS) or "any",
        xnack=draw(SIGNS) or "any",
        num_cu=draw(COUNTS),
        rocm_patch=draw(PATCHES),
        build=draw(BUILDS),
        tuning=draw(some.sampled_from(["default", "exhaustive", "cross"])),
        libraries=tuple(draw(some.sets(some.sampled_from(["miopen", "rocblas"])))),
    )


def serves(asked: Constraints, program: Attributes) -> bool:
    return not apply_rules(asked, Candidate("", program)).refused


@settings(max_examples=EXAMPLES, deadline=None)
@given(constraints(), constraints(), programs())
def test_what_satisfies_a_covering_job_satisfies_the_asker(
    job: Constraints, asked: Constraints, made: Attributes
) -> None:
    if covers(job, asked) and serves(job, made):
        assert serves(asked, made)


@settings(max_examples=EXAMPLES, deadline=None)
@given(constraints(), programs(), some.booleans(), some.booleans(), programs())
def test_what_a_claim_pinned_satisfies_who_attached_since(
    asked: Constraints, pinned: Attributes, no_sramecc: bool, no_xnack: bool, other: Attributes
) -> None:
    pinned = replace(pinned, libraries=())
    made = replace(pinned, libraries=other.libraries)
    made = replace(made, sramecc="any") if no_sramecc else made
    made = replace(made, xnack="any") if no_xnack else made
    if surely_satisfies(asked, pinned):
        assert serves(asked, made)
