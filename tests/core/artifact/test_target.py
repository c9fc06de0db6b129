"""Archs, dims, inputs, precisions and versions: what is read, what is refused, and the tables of archs."""

from __future__ import annotations

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import dims

from mxr.artifact import target
from mxr.artifact.target import FAMILY_OF, PRODUCTS, DynamicDim, GfxArch
from mxr.errors import UsageError


@for_each(
    [
        ("gfx908", GfxArch("gfx908")),
        (" gfx90a:sramecc+:xnack- ", GfxArch("gfx90a", "+", "-")),
        ("gfx90a:xnack-:sramecc+", GfxArch("gfx90a", "+", "-")),
        ("gfx942:xnack+", GfxArch("gfx942", None, "+")),
        ("gfx1010:xnack-", GfxArch("gfx1010", None, "-")),
        ("gfx1100", GfxArch("gfx1100")),
        ("gfx11-generic", GfxArch("gfx11-generic")),
        ("gfx9-4-generic:sramecc-", GfxArch("gfx9-4-generic", "-")),
        ("gfx9-generic:xnack+", GfxArch("gfx9-generic", None, "+")),
    ]
)
def test_archs(text: str, arch: GfxArch) -> None:
    assert GfxArch.parse(text) == arch
    assert GfxArch.parse(str(arch)) == arch


@for_each(
    [
        *(
            "",
            " ",
            ":",
            "908",
            "GFX908",
            "gfx",
            "gfx9",
            "gfx90",
            "gfx9000a",
            "gfx90A",
            "gfx90a;gfx908",
            "gfx908\n:xnack+",
        ),
        *("gfx90a:", "gfx90a:xnack", "gfx90a:xnack*", "gfx90a:+", "gfx90a:wave64+", "gfx90a:xnack+:xnack+"),
        *("gfx90a:xnack+:xnack-", "gfx90a::xnack+", "gfx90a:XNACK+", "gfx90a: xnack+", "generic", "gfx-generic"),
        *("gfx1100:xnack+", "gfx1030:sramecc-", "gfx900:sramecc+", "gfx11-generic:xnack-", "gfx9-generic:sramecc+"),
        *("native", "all", "gfx908,gfx90a", "../gfx908", "gfx９０８"),
    ]
)
def test_what_is_no_arch(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        GfxArch.parse(text)
    assert caught.value.hint


@for_each(
    [
        *((arch, True, True) for arch in ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx9-4-generic")),
        *((arch, False, True) for arch in ("gfx900", "gfx90c", "gfx1010", "gfx1012", "gfx9-generic")),
        *((arch, False, False) for arch in ("gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx12-generic", "")),
    ]
)
def test_which_archs_have_which_feature(arch: str, sramecc: bool, xnack: bool) -> None:
    assert (target.capable(arch, "sramecc"), target.capable(arch, "xnack")) == (sramecc, xnack)


def test_generic_families() -> None:
    assert target.FAMILY_OF["gfx906"] == "gfx9-generic"
    assert target.FAMILY_OF["gfx942"] == "gfx9-4-generic"
    assert target.FAMILY_OF["gfx1103"] == target.FAMILY_OF["gfx1151"] == "gfx11-generic"
    assert not {"gfx908", "gfx90a"} & set(target.FAMILY_OF), "these belong to no family"
    members = [arch for family in target.FAMILIES.values() for arch in family]
    assert len(members) == len(set(members))
    assert all(target.BASE_ARCH.fullmatch(arch) for arch in members)
    assert all(target.GENERIC_ARCH.fullmatch(family) for family in target.FAMILIES)


@given(dims())
def test_a_dim_has_one_form(dim: int | DynamicDim) -> None:
    found = target.dim_from_json(target.dim_to_json(dim), "x")
    if isinstance(dim, int) or dim.least == dim.most:
        assert found == (dim if isinstance(dim, int) else dim.least)
    else:
        assert found == DynamicDim(dim.least, dim.most, tuple(sorted(set(dim.optimals))))
    assert target.parse_input("x=" + target.show_dims((found,))) == ("x", (found,))


@for_each(
    [
        *(0, -1, 2**31, 10**30, True, False, None, 4.0, "4", [], [1], [1, 8], [1, 8, None], [1, 8, 4], {}),
        *([8, 1, []], [0, 8, []], [1, 8, [9]], [2, 8, [1]], [1, 8, [True]], [1, 8, ["4"]], [1, 8, [4], 1]),
        *([True, 8, []], ["1", 8, []], [1, 2**31, []], [1.0, 8, []], [4, 4, [5]]),
    ]
)
def test_what_is_no_dim(value: object) -> None:
    with pytest.raises(UsageError, match=r"^input\.x: "):
        target.dim_from_json(value, "input.x")


@for_each(
    [
        ("x=1,3,224,224", ("x", (1, 3, 224, 224))),
        ("x=1..8@4/1/8/4,3", ("x", (DynamicDim(1, 8, (1, 4, 8)), 3))),
        ("x=1..8", ("x", (DynamicDim(1, 8),))),
        ("x=4..4@4", ("x", (4,))),
        ("x= 1 , 3 ", ("x", (1, 3))),
        ("x=", ("x", ())),
        ("a=b=1", ("a=b", (1,))),
        ("x:0=2", ("x:0", (2,))),
        ("past=1,8,0,64", ("past", (1, 8, 0, 64))),
    ]
)
def test_inputs(text: str, found: tuple[str, target.Shape]) -> None:
    assert target.parse_input(text) == found


@for_each(
    [
        *("", "x", "=1", "x=a", "x=1,", "x=,1", "x=0", "x=-1", "x=1..", "x=..8", "x=8..1", "x=1..8@", "x=1..8@9"),
        *("x=0,3", "x=1,0..8"),
        *("x=1..8@1/", "x=1...8", "x=1@1", "x=2147483648", "x=99999999999", "x=1x3", "x=٤", "x=1 3", "x=0x10"),
    ]
)
def test_what_is_no_input(text: str) -> None:
    with pytest.raises(UsageError):
        target.parse_input(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("fp32", ()), ("fp16", ("fp16",)), ("int8+fp16", ("int8", "fp16")), (" fp16+int8 ", ("fp16", "int8"))],
)
def test_precisions(text: str, words: tuple[str, ...]) -> None:
    assert target.parse_precision(text) == words


@for_each(["", "+", "fp64", "FP16", "fp16+", "+fp16", "fp16+fp16", "fp32+fp16", "fp16,int8", "fp16 + int8"])
def test_what_is_no_precision(text: str) -> None:
    with pytest.raises(UsageError):
        target.parse_precision(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7.2", ("7.2", None)),
        ("7.2.1", ("7.2", "7.2.1")),
        ("2.15.0.70200-43~22.04", ("2.15", "2.15.0.70200-43~22.04")),
        ("2.16.0+gabc", ("2.16", "2.16.0+gabc")),
        ("0.0", ("0.0", None)),
    ],
)
def test_versions(text: str, found: tuple[str, str | None]) -> None:
    assert target.split_version(text, "rocm") == found


@for_each(["", "7", "7.", ".2", "7.2.", "v7.2", "7.2-1", "07.2", "7.02", "7,2", "7.2.1 beta", "٧.٢", "7" * 7 + ".1"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="rocm"):
        target.split_version(text, "rocm")


def test_hygon_writes_leading_zeros() -> None:
    assert target.split_version("25.04.1", "rocm", zeros=True) == ("25.04", "25.04.1")
    with pytest.raises(UsageError):
        target.split_version("25.04.1", "rocm")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (GfxArch.parse, target.parse_input, target.parse_precision, lambda t: target.split_version(t, "rocm")):
        try:
            read(text)
        except UsageError as problem:
            assert problem.message and problem.hint


def test_names_of_gfx1250() -> None:
    """The first revision has a name of its own; xnack is always on there, and has no setting."""
    assert str(GfxArch.parse("gfx1250-strict")) == "gfx1250-strict"
    for name in ("gfx1250", "gfx1251", "gfx1250-strict"):
        assert GfxArch.parse(f"{name}:xnack+") == GfxArch.parse(name) == GfxArch(name)
        with pytest.raises(UsageError, match="has no xnack setting"):
            GfxArch.parse(f"{name}:xnack-")
    assert "gfx1250-strict" not in FAMILY_OF
    for text in ("gfx1250-", "gfx1250-strict-strict", "gfx1250-lax"):
        with pytest.raises(UsageError):
            GfxArch.parse(text)


@for_each(
    [
        ("MI100", "MI100 is gfx908: --arch gfx908."),
        ("mi210", "MI210 is gfx90a: --arch gfx90a."),
        ("AMD Instinct MI300X", "MI300X is gfx942: --arch gfx942."),
        ("rx7900xtx", "RX 7900 XTX is gfx1100: --arch gfx1100."),
        ("MI3000X", "Did you mean MI300X? It is gfx942: --arch gfx942."),
        ("", "Write it as gfx908, or gfx90a:sramecc+:xnack-."),
        ("A100", "Write it as gfx908, or gfx90a:sramecc+:xnack-."),
    ]
)
def test_the_name_of_a_product_is_answered_with_its_arch(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is not a GPU arch") as caught:
        GfxArch.parse(text)
    assert caught.value.hint == hint
    assert set(PRODUCTS) == {str(GfxArch.parse(arch)) for arch in PRODUCTS}
