"""Whoever attaches to a job gets a program that serves: for any demands, workers and programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.scale import crowd
from hypothesis import given, settings
from hypothesis import strategies as some

from mxr.artifact.matching import Candidate, judge
from mxr.artifact.qualities import Demands, Qualities
from mxr.protocol import jobs as job_protocol
from mxr_registry.jobs.submission import _certainly_satisfies

EXAMPLES = crowd(500, 100)

SIGNS, COUNTS = some.sampled_from([None, "+", "-"]), some.sampled_from([None, 104, 120, 304])
PATCHES, BUILDS = some.sampled_from([None, "7.2.0", "7.2.1"]), some.sampled_from([None, "a", "b"])
TUNINGS = some.sampled_from([None, "default", "exhaustive"])


@some.composite
def demands(draw: Any) -> Demands:
    exact = draw(some.booleans())
    allow = () if exact else tuple(draw(some.sets(some.sampled_from(["cu", "patch", "cross"]))))
    return Demands(
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
def programs(draw: Any) -> Qualities:
    return Qualities(
        sramecc=draw(SIGNS) or "any",
        xnack=draw(SIGNS) or "any",
        num_cu=draw(COUNTS),
        rocm_patch=draw(PATCHES),
        build=draw(BUILDS),
        tuning=draw(some.sampled_from(["default", "exhaustive", "cross"])),
        libraries=tuple(draw(some.sets(some.sampled_from(["miopen", "rocblas"])))),
    )


def serves(asked: Demands, program: Qualities) -> bool:
    return not judge(asked, Candidate("", program)).refused


@settings(max_examples=EXAMPLES, deadline=None)
@given(demands(), demands(), programs())
def test_what_satisfies_a_covering_job_satisfies_the_asker(job: Demands, asked: Demands, made: Qualities) -> None:
    if job_protocol.covers(job, asked) and serves(job, made):
        assert serves(asked, made)


@settings(max_examples=EXAMPLES, deadline=None)
@given(demands(), programs(), some.booleans(), some.booleans(), programs())
def test_what_a_claim_pinned_satisfies_who_attached_since(
    asked: Demands, pinned: Qualities, no_sramecc: bool, no_xnack: bool, other: Qualities
) -> None:
    pinned = replace(pinned, libraries=())
    made = replace(pinned, libraries=other.libraries)
    made = replace(made, sramecc="any") if no_sramecc else made
    made = replace(made, xnack="any") if no_xnack else made
    if _certainly_satisfies(asked, pinned):
        assert serves(asked, made)
