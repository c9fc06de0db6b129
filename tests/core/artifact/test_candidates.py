"""Ways to complete a partial request: one for each that differs, none twice; a claim of a publisher stops nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import GPU

from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.candidates import Choice, choices, varying
from mxr.artifact.key import Key
from mxr.artifact.matching import ANY, BUILT, BUILT_ONLY, PUSHED, Candidate, choose_candidate
from mxr.artifact.partial import PartialRequest

OPEN = PartialRequest(GPU.model, (("x", (None, 3, 224, 224)),), kind="gpu", vendor="amd", arch="gfx90a")
FOUND = frozenset({"sramecc", "xnack", "num_cu", "chiplets"})


def key(migraphx: str = "2.15", rocm: str = "7.2", batch: int = 8, **more: Any) -> Key:
    return replace(GPU, migraphx=migraphx, rocm=rocm, inputs=(("x", (batch, 3, 224, 224)),), **more)


def program(name: str, origin: str = BUILT, **attributes: Any) -> Candidate:
    return Candidate(name, Attributes(**attributes), order=int(name, 36), origin=origin, found=FOUND)


def found(*rows: tuple[Key, Candidate], asked: PartialRequest = OPEN, serve: str = ANY) -> list[Choice]:
    return choices(asked, rows, serve=serve)


def test_one_program_is_one_choice_without_attributes_to_state() -> None:
    (only,) = found((key(), program("a", num_cu=104, sramecc="+", xnack="-")))
    assert (only.id, only.key, only.num_cu, only.sramecc) == ("a", key(), None, None)
    assert only.request(OPEN).constraints == OPEN.constraints
    assert found((replace(key(), precision=("int8",)), program("a"))) == []


def test_the_newest_toolchain_comes_first() -> None:
    rows = [
        (key(migraphx, rocm, batch), program(f"{index}"))
        for index, (migraphx, rocm, batch) in enumerate(
            [("2.9", "6.2", 1), ("2.15", "7.2", 16), ("2.15", "7.10", 4), ("2.15", "7.2", 4), ("2.10", "6.4", 1)]
        )
    ]
    assert [each.id for each in found(*rows)] == ["2", "3", "1", "4", "0"]
    assert varying(found(*rows)) == {"migraphx": 3, "rocm": 4, "inputs.x": 3}
    assert [each.id for each in found(*rows, asked=replace(OPEN, rocm="7.2"))] == ["3", "1"]


def test_programs_of_one_key_are_one_choice_unless_open_attributes_differ() -> None:
    rows = [(key(), program("a", num_cu=104)), (key(), program("b", num_cu=104)), (key(), program("c"))]
    assert [each.id for each in found(*rows)] == ["c"], "as a resolve without a count chooses"
    rows.append((key(), program("d", num_cu=110)))
    assert {(each.id, each.num_cu) for each in found(*rows)} == {("a", 104), ("d", 110)}
    stated = replace(OPEN, constraints=Constraints(num_cu=110))
    (only,) = found(*rows, asked=stated)
    assert (only.id, only.num_cu) == ("d", None)
    # Features divide, too; their combinations exist only where a program has them.
    mixed = [(key(), program(name, xnack=sign, num_cu=cu)) for name, sign, cu in (("e", "+", 104), ("f", "-", 110))]
    assert {(each.xnack, each.num_cu) for each in found(*mixed)} == {("+", 104), ("-", 110)}


def test_a_push_divides_nothing_that_was_built_or_promoted() -> None:
    rows = [(key(), program("a", num_cu=104)), (key(), program("b", PUSHED, num_cu=110, xnack="+"))]
    (only,) = found(*rows)
    assert (only.id, only.num_cu) == ("a", None)
    assert found(rows[1], serve=BUILT_ONLY) == []
    (promoted,) = found((key(), replace(rows[1][1], promoted=1)), serve=BUILT_ONLY)
    assert promoted.id == "b"


def test_the_generic_family_is_a_choice_for_the_arch() -> None:
    asked = replace(OPEN, arch="gfx1100")
    rows = [(replace(key(), arch="gfx11-generic"), program("a"))]
    (only,) = found(*rows, asked=asked)
    assert (only.id, only.key.arch) == ("a", "gfx1100")
    own = (replace(key(), arch="gfx1100"), program("b"))
    assert [each.id for each in found(*rows, own, asked=asked)] == ["b"], "this arch before its family"


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Key, Candidate]]:
    rows = []
    for number in range(draw(st.integers(0, 8))):
        own = key(
            draw(st.sampled_from(["2.14", "2.15"])),
            draw(st.sampled_from(["7.1", "7.2"])),
            draw(st.sampled_from([1, 4])),
            fast_math=draw(st.booleans()),
        )
        signs = st.sampled_from(["+", "-", "any"])
        counts = st.sampled_from([None, 104, 110])
        origin = draw(st.sampled_from([BUILT, PUSHED]))
        candidate = program(
            f"{number}", origin, sramecc=draw(signs), xnack=draw(signs), num_cu=draw(counts), chiplets=draw(counts)
        )
        rows.append((own, replace(candidate, promoted=draw(st.integers(0, 2)))))
    return rows


@given(programs(), st.sampled_from([ANY, BUILT_ONLY]))
@settings(deadline=None)
def test_each_choice_is_what_a_resolve_of_its_request_gives(rows: list[tuple[Key, Candidate]], serve: str) -> None:
    listed = choices(OPEN, rows, serve=serve)
    assert len({each.id for each in listed}) == len(listed)
    for each in listed:
        request = each.request(OPEN)
        own = [candidate for at, candidate in rows if at == request.key]
        resolved = choose_candidate(request.constraints, own, serve=serve) if each.sramecc or each.xnack else None
        if resolved is not None:
            assert resolved[0].id == each.id
    # Every key with a program that may answer is there.
    keys = {at for at, each in rows if serve == ANY or each.origin == BUILT or each.promoted}
    assert {each.key for each in listed} <= keys
