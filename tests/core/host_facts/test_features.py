"""MIGraphX's count of CUs, the xnack mode of a process, and the overridden arch."""

from __future__ import annotations

from harness.rows import for_each

from mxr.host_facts import kfd


@for_each(
    [
        (120, "gfx908", 120),
        (38, "gfx942", 38),
        (64, "gfx803", 64),
        (40, "gfx1031", 20),
        (84, "gfx1100", 42),
        (12, "gfx1103", 6),
        (64, "gfx1201", 32),
        (1, "gfx1100", None),
        (0, "gfx908", None),
        (2**60, "gfx908", None),
        (None, "gfx908", None),
        (64, "gfx1250", None),
    ]
)
def test_counts_of_compute_units(units: int | None, arch: str, counted: int | None) -> None:
    assert kfd.migraphx_cus(units, arch) == counted


@for_each(
    [
        (["gfx90a"], None, "-1", False),
        (["gfx90a"], "1", "-1", True),
        (["gfx942", "gfx942"], "1", "1", True),
        (["gfx950"], "0", "0", False),
        (["gfx90a"], None, "0", True),
        (["gfx908"], "1", "-1", False),
        (["gfx908"], "1", "0", True),
        (["gfx908"], "1", None, False),
        (["gfx902"], None, "-1", True),
        (["gfx902"], None, "1", False),
        (["gfx90a", "gfx1100"], "1", "0", False),
        (["gfx90a", "gfx908"], "1", "-1", False),
        (["gfx90a", "gfx803"], "1", "-1", True),
        (["gfx90a"], "yes", "0", False),
        (["gfx1010"], "1", "0", False),
        ([], "1", "0", False),
    ]
)
def test_xnack_is_one_mode_for_all_gpus_of_a_process(
    archs: list[str], asked: str | None, noretry: str | None, on: bool
) -> None:
    assert kfd.xnack_mode(archs, asked, noretry) is on


@for_each(
    [
        ({}, (None, None)),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}, ("gfx1100", "HSA_OVERRIDE_GFX_VERSION")),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}, ("gfx90a", "HSA_OVERRIDE_GFX_VERSION")),
        ({"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"}, ("gfx1030", "HSA_OVERRIDE_GFX_VERSION_1")),
        ({"HSA_OVERRIDE_GFX_VERSION_2": "10.3.0"}, (None, None)),
        (
            {"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0", "HSA_OVERRIDE_GFX_VERSION": "11.0.0"},
            ("gfx1030", "HSA_OVERRIDE_GFX_VERSION_1"),
        ),
        ({"HSA_OVERRIDE_GFX_VERSION": "gfx1100"}, (None, "HSA_OVERRIDE_GFX_VERSION")),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0"}, (None, "HSA_OVERRIDE_GFX_VERSION")),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.0x"}, (None, "HSA_OVERRIDE_GFX_VERSION")),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.99"}, (None, "HSA_OVERRIDE_GFX_VERSION")),
    ]
)
def test_the_override(environ: dict[str, str], found: tuple[str | None, str | None]) -> None:
    assert kfd.overridden(environ, 1) == found


def test_chiplets_are_unknown_only_for_archs_with_several_dies() -> None:
    assert kfd.chiplets_of(None, "gfx908") == 1
    assert kfd.chiplets_of(None, "gfx942") is None
    assert kfd.chiplets_of(8, "gfx942") == 8
