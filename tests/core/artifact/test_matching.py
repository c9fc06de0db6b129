"""May an artifact serve, what was let pass or assumed, and which comes first: against the rules written out again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import strategies
from harness.rows import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from mxr.artifact.attributes import Attributes, Constraints, RelatedKey
from mxr.artifact.matching import SERVE_RULES, Candidate, Match, apply_rules, choose_candidate
from mxr.errors import UsageError

Says = tuple[set[str], set[str], dict[str, Any]]
"""Fields refused, let pass, and taken on trust."""


MANY = settings(max_examples=2 * settings.default.max_examples)


def oracle(asked: Constraints, candidate: Candidate) -> Says:
    """The table of rules, once more and literally."""
    has = candidate.attributes
    refused: set[str] = set()
    relaxed: set[str] = set()
    assumed: dict[str, Any] = {}

    if candidate.related is not None:
        found, wanted = candidate.related.key, candidate.related.asked
        if found.arch != wanted.arch:
            (refused if asked.exact else relaxed).add("arch")
        if found.rocm != wanted.rocm:
            (relaxed if "rocm" in asked.allow and not asked.rocm_patch else refused).add("rocm")

    for name, want, is_ in (("sramecc", asked.sramecc, has.sramecc), ("xnack", asked.xnack, has.xnack)):
        match (want, is_):
            case (None, "any"):
                pass
            case (None, sign):
                assumed[name] = sign
            case ("+", "+") | ("-", "-"):
                pass
            case ("+", "-") | ("-", "+"):
                refused.add(name)
            case (_, "any") if asked.exact:
                refused.add(name)

    for name, want, is_ in (("num_cu", asked.num_cu, has.num_cu), ("chiplets", asked.chiplets, has.chiplets)):
        if want is None and is_ is None:
            continue
        if want is None:
            assumed[name] = is_
        elif is_ is None:
            if asked.exact:
                refused.add(name)
            else:
                assumed[name] = want
        elif want != is_:
            if "cu" in asked.allow and is_ <= want:
                relaxed.add(name)
            else:
                refused.add(name)

    for name, want, is_ in (
        ("rocm_patch", asked.rocm_patch, has.rocm_patch),
        ("migraphx_patch", asked.migraphx_patch, has.migraphx_patch),
        ("build", asked.build, has.build),
    ):
        if want is None and name == "rocm_patch" and has.libraries and is_ is not None:
            assumed[name] = is_
        if want is None or want == is_:
            continue
        if asked.exact:
            refused.add(name)
        elif is_ is None:
            assumed[name] = want
        elif name == "rocm_patch" and has.libraries and "patch" not in asked.allow:
            refused.add(name)
        else:
            relaxed.add(name)

    if asked.real_arch != has.real_arch:
        (relaxed if "spoof" in asked.allow else refused).add("real_arch")

    wrong_tuning = asked.tuning is not None and asked.tuning != has.tuning
    if wrong_tuning or (has.tuning in ("cross", "eager") and has.tuning not in asked.allow):
        refused.add("tuning")
    elif has.tuning in ("cross", "eager") and asked.tuning is None:
        relaxed.add("tuning")
    return refused, relaxed, assumed


def comes_before(asked: Constraints, one: Candidate, other: Candidate) -> bool:
    """The order of choice, once more and literally."""

    def worth(each: Candidate) -> tuple[Any, ...]:
        has, built = each.attributes, each.origin == "built"

        def known(name: str) -> bool:
            return built or name in each.found

        def same(name: str) -> float:
            want, is_ = getattr(asked, name), getattr(has, name)
            if known(name):
                return 1 if want == is_ else 0
            against = is_ is not None and is_ != want and (want is not None or name == "real_arch")
            return -1 if against else 0

        ladder = {"cross": 0, "eager": 1, "default": 2, "exhaustive": 3}[has.tuning]
        return (
            each.promoted,
            built,
            not is_generic(each),
            -abs(int(each.related.key.rocm[3:]) - 1) if each.related else 0,
            *(same(name) for name in ("real_arch", "num_cu", "chiplets")),
            (has.sramecc != "any" and known("sramecc")) + (has.xnack != "any" and known("xnack")),
            sum(same(name) for name in ("rocm_patch", "migraphx_patch", "build") if getattr(asked, name) is not None),
            ladder if known("tuning") else min(ladder, 2),
            -each.order,
        )

    return worth(one) > worth(other)


def is_generic(each: Candidate) -> bool:
    """Whether a program is for the generic family of the arch."""
    return each.related is not None and each.related.key.arch != each.related.asked.arch


@given(strategies.constraints(), strategies.attributes, strategies.related)
@MANY
def test_the_judgement_is_that_of_the_rules(asked: Constraints, has: Attributes, related: RelatedKey | None) -> None:
    candidate = Candidate("a", has, related=related)
    verdict = apply_rules(asked, candidate)
    refused, relaxed, assumed = oracle(asked, candidate)
    assert {each.field for each in verdict.refused} == refused
    if not refused:
        assert (set(verdict.relaxed), verdict.assumed) == (relaxed, assumed)
        assert len(verdict.relaxed) == len(relaxed)
    for each in verdict.refused:
        if each.field not in ("arch", "rocm", "tuning", "real_arch"):
            assert (each.asked, each.found) == (getattr(asked, each.field), getattr(has, each.field))


@given(strategies.constraints(), strategies.candidates())
@MANY
def test_a_match_is_never_made_against_a_rule(asked: Constraints, found: list[Candidate]) -> None:
    found = strategies.agreeing(asked, found)
    serving = [each for each in found if not oracle(asked, each)[0]]
    chosen = choose_candidate(asked, found, serve="any")
    if chosen is None:
        assert serving == []
        return
    first, fit = chosen
    assert first in serving
    _, relaxed, assumed = oracle(asked, first)
    assert (set(fit.relaxed), fit.assumed) == (relaxed, assumed)
    assert fit.exact == (not relaxed and not assumed)
    assert not any(comes_before(asked, other, first) for other in serving)


@given(strategies.constraints(), strategies.candidates(), st.randoms())
def test_the_order_of_the_list_does_not_matter(asked: Constraints, found: list[Candidate], shuffler: Any) -> None:
    found = strategies.agreeing(asked, found)
    mixed = list(found)
    shuffler.shuffle(mixed)
    assert choose_candidate(asked, mixed, serve="any") == choose_candidate(asked, found, serve="any")


@pytest.mark.parametrize("name", ["sramecc", "xnack"])
@pytest.mark.parametrize("more", [{}, {"num_cu": 104}, {"exact": True}, {"allow": ("cu", "patch", "cross")}], ids=repr)
def test_plus_and_minus_and_nothing_asked(name: str, more: dict[str, Any]) -> None:
    signs = [Attributes(**{"num_cu": 104, name: sign}) for sign in ("+", "any", "-")]
    found = [Candidate(sign.sramecc + sign.xnack, sign, order=n, origin="built") for n, sign in enumerate(signs)]
    with pytest.raises(UsageError, match=f"{name}\\+ and for {name}-") as caught:
        choose_candidate(Constraints(**more), found, serve="any")
    assert caught.value.context == {"field": name, "found": ["+", "-"], "ids": [each.id for each in found]}
    for at, sign in ((0, "+"), (2, "-")):
        chosen = choose_candidate(Constraints(**more, **{name: sign}), found, serve="any")
        assert chosen is not None and chosen[0] == found[at]
    # What would not serve anyway has no say.
    wrong = replace(found[2], attributes=replace(signs[2], tuning="cross"))
    chosen = choose_candidate(Constraints(), [found[0], wrong], serve="any")
    assert chosen is not None and chosen[1].assumed == {name: "+", "num_cu": 104}


OPEN = st.sampled_from([Constraints(), Constraints(sramecc="+"), Constraints(xnack="-"), Constraints(allow=("cross",))])


@given(OPEN | strategies.constraints(), strategies.candidates())
def test_signs_that_disagree_are_a_usage_error_and_nothing_else_is(asked: Constraints, found: list[Candidate]) -> None:
    serving = [each for each in found if not oracle(asked, each)[0]]
    serving = [each for each in serving if each.origin == "built" or each.promoted] or serving
    torn = [
        name
        for name in ("sramecc", "xnack")
        if getattr(asked, name) is None and {"+", "-"} <= {getattr(each.attributes, name) for each in serving}
    ]
    if not torn:
        choose_candidate(asked, found, serve="any")
        return
    with pytest.raises(UsageError) as caught:
        choose_candidate(asked, found, serve="any")
    assert f"{torn[0]}+" in caught.value.message and f"{torn[0]}-" in caught.value.message
    assert f":{torn[0]}+" in caught.value.hint
    assert set(caught.value.context["ids"]) == {each.id for each in serving}


@given(strategies.constraints(), strategies.candidates())
def test_a_new_publication_never_replaces_an_equal_one(asked: Constraints, found: list[Candidate]) -> None:
    found = strategies.agreeing(asked, found)
    before = choose_candidate(asked, found, serve="any")
    if before is None:
        return
    later = replace(before[0], id="later", promoted=0, order=max(each.order for each in found) + 1)
    assert choose_candidate(asked, [*found, later], serve="any") == before


def serves(asked: Constraints, *found: Attributes, **more: Any) -> tuple[int, Match] | None:
    """Which of the attributes, published in this order, and how well it fits."""
    chosen = choose_candidate(
        asked, [Candidate(str(n), has, order=n, **more) for n, has in enumerate(found)], serve="any"
    )
    return (int(chosen[0].id), chosen[1]) if chosen else None


def test_the_same_is_exact() -> None:
    has = Attributes("+", "-", 104, 1, "7.2.1", "2.15.0", "1a2b", libraries=("miopen",))
    asked = Constraints("+", "-", 104, 1, "7.2.1", "2.15.0", "1a2b", "default", exact=True)
    assert serves(asked, has) == (0, Match())
    assert serves(Constraints("+", "-", 104, 1, "7.2.1"), has) == (0, Match())


def test_an_open_patch_is_said_where_library_calls_tie_the_program_to_it() -> None:
    tied = Attributes(rocm_patch="7.2.1", libraries=("miopen",))
    assert serves(Constraints(), tied) == (0, Match(assumed={"rocm_patch": "7.2.1"}))
    assert serves(Constraints(), Attributes(rocm_patch="7.2.1")) == (0, Match())


@for_each(
    [
        (Constraints(num_cu=120, allow=("cu",)), Attributes(num_cu=104), ("num_cu",)),
        (Constraints(num_cu=104, allow=("cu",)), Attributes(num_cu=120), None),
        (Constraints(num_cu=120), Attributes(num_cu=104), None),
        (Constraints(num_cu=120, chiplets=1, allow=("cu",)), Attributes(num_cu=104, chiplets=2), None),
        (Constraints(rocm_patch="7.2.1"), Attributes(rocm_patch="7.2.0"), ("rocm_patch",)),
        (Constraints(rocm_patch="7.2.1"), Attributes(rocm_patch="7.2.0", libraries=("rocblas",)), None),
        (
            Constraints(rocm_patch="7.2.1", allow=("patch",)),
            Attributes(rocm_patch="7.2.0", libraries=("miopen",)),
            ("rocm_patch",),
        ),
        (Constraints(rocm_patch="7.2.1", exact=True), Attributes(rocm_patch="7.2.0"), None),
        (
            Constraints(migraphx_patch="2.15.1"),
            Attributes(migraphx_patch="2.15.0", libraries=("miopen",)),
            ("migraphx_patch",),
        ),
        (Constraints(build="b"), Attributes(build="a"), ("build",)),
        (Constraints(build="b", exact=True), Attributes(), None),
        (Constraints(), Attributes(tuning="cross"), None),
        (Constraints(allow=("cross",)), Attributes(tuning="cross"), ("tuning",)),
        (Constraints(tuning="cross", allow=("cross",)), Attributes(tuning="cross"), ()),
        (Constraints(tuning="default", allow=("cross",)), Attributes(tuning="cross"), None),
        (Constraints(), Attributes(tuning="eager"), None),
        (Constraints(allow=("cross",)), Attributes(tuning="eager"), None),
        (Constraints(allow=("eager",)), Attributes(tuning="eager"), ("tuning",)),
        (Constraints(allow=("eager",)), Attributes(tuning="cross"), None),
        (Constraints(tuning="eager", allow=("eager",)), Attributes(tuning="eager"), ()),
        (Constraints(tuning="eager", allow=("eager",)), Attributes(), None),
        (Constraints(tuning="exhaustive"), Attributes(tuning="default"), None),
        (Constraints(), Attributes(tuning="exhaustive"), ()),
        (Constraints(sramecc="+"), Attributes(sramecc="-"), None),
        (Constraints(sramecc="+", allow=("cu", "patch", "cross")), Attributes(sramecc="-"), None),
        (Constraints(sramecc="+"), Attributes(), ()),
        (Constraints(sramecc="+", exact=True), Attributes(), None),
        (Constraints(real_arch="gfx1103"), Attributes(), None),
        (Constraints(real_arch="gfx1103"), Attributes(real_arch="gfx1102"), None),
        (Constraints(real_arch="gfx1103"), Attributes(real_arch="gfx1103"), ()),
        (Constraints(real_arch="gfx1103", allow=("cu", "patch", "cross")), Attributes(), None),
        (Constraints(real_arch="gfx1103", allow=("spoof",)), Attributes(), ("real_arch",)),
        (Constraints(), Attributes(real_arch="gfx1103"), None),
        (Constraints(allow=("spoof",)), Attributes(real_arch="gfx1103"), ("real_arch",)),
    ]
)
def test_one_rule_each(asked: Constraints, has: Attributes, relaxed: tuple[str, ...] | None) -> None:
    assert serves(asked, has) == (None if relaxed is None else (0, Match(relaxed)))


FAMILY = strategies.related_to(arch="gfx9-4-generic")


def test_a_family_serves_last_and_says_so() -> None:
    own, family = Candidate("own", Attributes(), order=9), Candidate("family", Attributes(), 0, 0, FAMILY)
    assert choose_candidate(Constraints(), [family, own], serve="any") == (own, Match())
    assert choose_candidate(Constraints(), [family], serve="any") == (family, Match(("arch",)))
    assert choose_candidate(Constraints(exact=True), [family], serve="any") is None
    assert choose_candidate(Constraints(), [], serve="any") is None


def test_promotion_comes_first_and_the_latest_of_them() -> None:
    def row(number: int, promoted: float, has: Attributes) -> Candidate:
        return Candidate(str(number), has, promoted, number, origin="built")

    asked = Constraints(num_cu=104)
    plain, old, new = row(0, 0, Attributes(num_cu=104)), row(1, 1, Attributes()), row(2, 2, Attributes())
    assert choose_candidate(asked, [plain, old, new], serve="any") == (new, Match(assumed={"num_cu": 104}))
    wrong = row(3, 9, Attributes(num_cu=110))
    found = choose_candidate(asked, [plain, wrong], serve="any")
    assert found is not None and found[0] == plain, "promotion must not let a wrong program pass"


def test_among_programs_that_are_not_equal_the_first_published_stays() -> None:
    asked = Constraints(num_cu=120, allow=("cu",))
    assert serves(asked, Attributes(num_cu=104), Attributes(num_cu=110)) == (0, Match(("num_cu",)))
    assert serves(asked, Attributes(num_cu=104), Attributes(num_cu=120)) == (1, Match())


def test_another_release_of_rocm_must_be_allowed_and_the_nearest_is_chosen() -> None:
    own, near, far = (
        Candidate(
            rocm, Attributes(libraries=("rocblas",), rocm_patch=f"{rocm}.0"), related=strategies.related_to(rocm=rocm)
        )
        for rocm in ("10.1", "10.2", "10.4")
    )
    allowing = Constraints(allow=("rocm",))
    for rows, best in (([far, near, own], own), ([far, near], near), ([far], far)):
        chosen = choose_candidate(allowing, rows, serve="any")
        assert chosen is not None and chosen[0] == best
        assert chosen[1].relaxed == (() if best == own else ("rocm",)), "it is said"
    for asked in (Constraints(), Constraints(exact=True), replace(allowing, rocm_patch="10.1.0")):
        assert choose_candidate(asked, [far, near], serve="any") is None
    (refused, *_) = apply_rules(Constraints(), near).refused
    assert (refused.field, refused.asked, refused.found) == ("rocm", "10.1", "10.2")


def test_a_match_tells_all_of_it() -> None:
    fit = Match(("num_cu", "arch"), {"xnack": "-"})
    assert fit.to_json() == {"exact": False, "relaxed": ["num_cu", "arch"], "assumed": {"xnack": "-"}}
    assert Match().to_json() == {"exact": True, "relaxed": [], "assumed": {}}


def test_promoted_then_built_then_this_arch() -> None:
    pushed = Candidate("pushed", Attributes(), order=0)
    built = replace(pushed, id="built", order=1, origin="built", related=FAMILY)
    promoted = replace(pushed, id="promoted", order=2, promoted=1, related=FAMILY)
    for rows in ([pushed, built, promoted], [pushed, built], [pushed]):
        chosen = choose_candidate(Constraints(), rows, serve="any")
        assert chosen is not None and chosen[0] == rows[-1]


@given(strategies.constraints(), strategies.candidates(), st.sampled_from(SERVE_RULES))
def test_what_the_rule_excludes_is_as_if_it_were_not_there(
    asked: Constraints, found: list[Candidate], rule: str
) -> None:
    found = strategies.agreeing(asked, found)
    left = [each for each in found if rule == "any" or each.promoted or (rule == "built" and each.origin == "built")]
    assert choose_candidate(asked, found, serve=rule) == choose_candidate(asked, left, serve="any")
    assert choose_candidate(asked, found, serve="everything") is None, "a rule of a newer registry"


@given(strategies.constraints(), strategies.candidates(), strategies.attributes)
def test_claims_never_help(asked: Constraints, found: list[Candidate], claims: Attributes) -> None:
    """A push that only claims never comes before what is there, except where that is for another key."""
    found = [replace(each, found=frozenset(strategies.FACTS)) for each in found]
    agreeing = strategies.agreeing(asked, [*found, Candidate("late", claims, 0, 99)])
    before = choose_candidate(asked, agreeing[:-1], serve="any")
    if before is not None:
        assert choose_candidate(asked, agreeing, serve="any") == before or (
            bool(before[0].related and before[0].related.relaxed)
            and before[0].origin == "pushed"
            and not before[0].promoted
        )


@pytest.mark.parametrize(
    "claims",
    [
        Attributes(num_cu=104),
        Attributes(chiplets=1),
        Attributes(rocm_patch="7.2.1", build="b"),
        Attributes(sramecc="+", xnack="-"),
        Attributes(tuning="exhaustive"),
    ],
    ids=repr,
)
def test_a_later_publication_does_not_outrank_on_its_own_word(claims: Attributes) -> None:
    asked = Constraints("+", "-", 104, 1, "7.2.1", build="b")
    first, late = Candidate("first", Attributes(), order=0), Candidate("late", claims, order=1)
    assert choose_candidate(asked, [first, late], serve="any") == (first, judged(asked, first))
    # The same facts count where the reader or a worker found them.
    found = replace(late, found=frozenset(strategies.FACTS))
    assert choose_candidate(asked, [first, found], serve="any") == (found, judged(asked, found))
    # A claim counts against its own artifact.
    worse = Candidate("first", Attributes(num_cu=60), order=0)
    relaxed = replace(asked, allow=("cu",))
    assert choose_candidate(relaxed, [worse, late], serve="any") == (late, judged(relaxed, late))


def judged(asked: Constraints, candidate: Candidate) -> Match:
    verdict = apply_rules(asked, candidate)
    return Match(tuple(verdict.relaxed), verdict.assumed)


def test_a_push_does_not_stop_what_was_built() -> None:
    built = Candidate("built", Attributes(xnack="+"), order=0, origin="built")
    pushed = Candidate("pushed", Attributes(xnack="-"), order=1)
    assert choose_candidate(Constraints(), [built, pushed], serve="any") == (built, Match(assumed={"xnack": "+"}))
    with pytest.raises(UsageError):
        choose_candidate(Constraints(), [replace(built, origin="pushed"), pushed], serve="any")
