"""Will this program load here: each requirement as needed and as found, and nothing held against what is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import strategies
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.host_facts import Hardware, HostToolchain
from mxr.request import compatibility
from mxr.request.builder import RequestOptions

MI210 = Hardware("gfx90a", "+", "-", 104, 1, "amd")
NAVI = Hardware("gfx1100", None, None, 48, 1, "amd")
REF = Hardware(kind="ref")
ROCM = HostToolchain("7.2.1", "2.15.0", None)
FILE: dict[str, Any] = {
    "compiled": True,
    "targets": ["gpu"],
    "file_version": 7,
    "migraphx": "2.15.0",
    "flavour": "upstream",
    "archs": ["gfx90a:sramecc+:xnack-"],
    "libraries": [],
}


def rows(
    facts: dict[str, Any], hardware: Hardware = MI210, here: HostToolchain = ROCM
) -> dict[str, compatibility.Requirement]:
    found = compatibility.check_compatibility(facts, hardware, here)
    assert len({row.field for row in found}) == len(found)
    return {row.field: row for row in found}


def test_a_program_at_home() -> None:
    found = compatibility.check_compatibility(FILE, MI210, ROCM)
    assert {row.field: row.ok for row in found} == dict.fromkeys(
        ["compiled", "kind", "file_version", "migraphx", "vendor", "arch", "sramecc", "xnack"], True
    ) | {"num_cu": None}
    assert compatibility.fits(found)
    document = compatibility.to_json(found)
    assert document["ok"] is True
    assert document["requirements"][5] == {
        "field": "arch",
        "needed": "gfx90a",
        "found": "gfx90a",
        "ok": True,
        "why": found[5].why,
    }
    assert {"field", "needed", "found", "ok"} <= set(document["requirements"][0])


@for_each(
    [
        ({"compiled": False}, MI210, ROCM, "compiled", False),
        ({"compiled": None}, MI210, ROCM, "compiled", None),
        ({"targets": []}, MI210, ROCM, "kind", None),
        ({"targets": ["ref"]}, MI210, ROCM, "kind", True),
        ({"targets": ["gpu", "ref"]}, MI210, ROCM, "kind", True),
        ({"targets": ["fpga"]}, MI210, ROCM, "kind", False),
        ({}, REF, ROCM, "kind", False),
        ({"targets": ["ref"]}, REF, ROCM, "kind", True),
        ({"migraphx": "2.16.0", "file_version": 8}, MI210, ROCM, "file_version", False),
        ({"migraphx": "2.16.0", "file_version": 8}, MI210, ROCM, "migraphx", False),
        ({"migraphx": "2.15.9"}, MI210, ROCM, "migraphx", True),
        ({"migraphx": "2.1.5"}, MI210, ROCM, "migraphx", False),
        ({"migraphx": "2.14.0"}, MI210, ROCM, "file_version", True),
        ({"migraphx": "2.14.0"}, MI210, ROCM, "migraphx", False),
        ({"migraphx": None}, MI210, ROCM, "migraphx", None),
        ({}, MI210, HostToolchain(), "migraphx", None),
        ({}, MI210, HostToolchain(), "file_version", None),
        ({}, MI210, HostToolchain(migraphx="9.9.0"), "file_version", None),
        ({"file_version": None}, MI210, ROCM, "file_version", None),
        ({"file_version": 6}, MI210, ROCM, "file_version", False),
        ({}, MI210, HostToolchain(migraphx="2.16"), "file_version", False),
        ({}, MI210, HostToolchain(migraphx="2.7.0"), "file_version", False),
        ({"flavour": "hygon"}, MI210, ROCM, "vendor", False),
        ({"flavour": "upstream"}, replace(MI210, vendor="hygon"), ROCM, "vendor", False),
        ({"flavour": None}, MI210, ROCM, "vendor", None),
        ({}, NAVI, ROCM, "arch", False),
        ({"archs": []}, MI210, ROCM, "arch", None),
        ({"archs": ["gfx90a", "gfx1100"]}, MI210, ROCM, "arch", False),
        ({"archs": ["gfx11-generic"]}, NAVI, ROCM, "arch", True),
        ({"archs": ["gfx11-generic"]}, MI210, ROCM, "arch", False),
        ({"archs": ["gfx9-generic"]}, MI210, ROCM, "arch", False),
        ({"archs": ["gfx1100", "gfx11-generic"]}, NAVI, ROCM, "arch", True),
        ({}, replace(MI210, arch=None), ROCM, "arch", None),
        ({"archs": ["gfx90a:xnack+"]}, MI210, ROCM, "xnack", False),
        ({"archs": ["gfx90a:xnack+"]}, replace(MI210, xnack=None), ROCM, "xnack", None),
        ({"archs": ["gfx90a:xnack+", "gfx90a:xnack-"]}, MI210, ROCM, "xnack", False),
        ({"archs": ["gfx90a:xnack+", "gfx90a:xnack-"]}, replace(MI210, xnack=None), ROCM, "xnack", False),
        ({"archs": ["gfx90a", "gfx90a:sramecc+"]}, MI210, ROCM, "sramecc", True),
        ({"libraries": ["miopen", "rocblas"]}, MI210, ROCM, "libraries", None),
    ]
)
def test_one_requirement_each(
    change: dict[str, Any], hardware: Hardware, here: HostToolchain, field: str, ok: bool | None
) -> None:
    found = rows(FILE | change, hardware, here)
    assert found[field].ok is ok
    assert compatibility.fits(tuple(found.values())) is all(row.ok is not False for row in found.values())


def test_what_does_not_concern_the_target_is_left_out() -> None:
    assert not {"arch", "vendor", "xnack", "sramecc"} & set(rows(FILE | {"targets": ["ref"]}, REF))
    assert not {"xnack", "sramecc"} & set(rows(FILE | {"archs": ["gfx90a"]}))
    assert "libraries" not in rows(FILE)
    hygon = rows(FILE | {"flavour": "hygon"}, replace(MI210, vendor="hygon"))
    assert "file_version" not in hygon and hygon["vendor"].ok


def test_the_reason_names_the_release_that_changed_something() -> None:
    found = rows(FILE | {"migraphx": "2.14.0"})["migraphx"]
    assert (found.needed, found.found) == ("2.14.0", "2.15.0") and "2.15" in found.why
    both = rows(FILE | {"migraphx": "2.15.0"}, here=HostToolchain(migraphx="2.11.0"))["migraphx"].why
    assert "2.12" in both and "2.15" in both and "2.11" not in both


def test_only_changes_in_operators_of_the_program_are_reasons() -> None:
    def why(*operators: str) -> str:
        facts = FILE | {"operators": dict.fromkeys(operators, 1)}
        return rows(facts, here=HostToolchain(migraphx="2.9.0"))["migraphx"].why

    assert why("gpu::pooling", "@param") == "pooling gained count_include_pad in 2.10"
    assert "output_arg" in why("gpu::code_object") and "pooling" not in why("gpu::code_object")
    unknown = why("dot", "gpu::gemm", "convolution")
    assert "no change is known" in unknown and " in 2." not in unknown


def test_kernels_that_need_opposite_settings_are_said_in_words() -> None:
    found = rows(FILE | {"archs": ["gfx90a:xnack+", "gfx90a:xnack-"]})["xnack"]
    assert found.needed == "+ and -" and "None" not in found.why


@given(
    strategies.descriptions(),
    st.sampled_from([MI210, NAVI, REF, Hardware()]),
    st.sampled_from([ROCM, HostToolchain(), HostToolchain(migraphx="2.16.0")]),
)
def test_what_is_unknown_stands_against_nothing(facts: dict[str, Any], hardware: Hardware, here: HostToolchain) -> None:
    against = {row.field for row in compatibility.check_compatibility(facts, hardware, here) if row.ok is False}
    for name in facts:
        fewer = compatibility.check_compatibility(
            {fact: value for fact, value in facts.items() if fact != name}, hardware, here
        )
        assert {row.field for row in fewer if row.ok is False} <= against
    assert compatibility.fits(compatibility.check_compatibility({}, hardware, here))
    blind = compatibility.check_compatibility(
        facts, replace(hardware, arch=None, sramecc=None, xnack=None), HostToolchain()
    )
    mixed = {"sramecc", "xnack"}
    assert {row.field for row in blind if row.ok is False} - mixed <= against


SHAPED = FILE | {
    "inputs": {"x": {"dims": [8, 3]}, "n": {"dims": [[1, 4, []]]}},
    "precisions": ["fp16"],
    "operators": {"dot": 1},
    "offload_copy": True,
}


@for_each(
    [
        ({"inputs": (("x", (8, 3)),)}, "inputs.x", True),
        ({"inputs": (("x", (4, 3)),)}, "inputs.x", False),
        ({"inputs": (("x", (8,)),)}, "inputs.x", False),
        ({"inputs": (("n", (3,)),)}, "inputs.n", True),
        ({"inputs": (("n", (5,)),)}, "inputs.n", False),
        ({"inputs": (("unused", (5,)),)}, "inputs.unused", None),
        ({"batch": 8}, "batch", None),
        ({"batch": 9}, "batch", False),
        ({"precision": "fp16"}, "precision", True),
        ({"precision": "fp32"}, "precision", None),
        ({"consumer": "python"}, "offload_copy", True),
        ({"consumer": "driver"}, "offload_copy", False),
        ({"consumer": "driver", "offload_copy": True}, "offload_copy", True),
        ({"fast_math": False}, "fast_math", None),
    ]
)
def test_what_the_request_says_is_held_against_the_file(said: dict[str, Any], field: str, ok: bool | None) -> None:
    found = {row.field: row for row in compatibility.check_options(SHAPED, RequestOptions(**said), MI210, ROCM)}
    assert found[field].ok is ok
    assert all(row.ok is None for row in compatibility.check_options({}, RequestOptions(**said), MI210, ROCM)), (
        "nothing known, nothing against"
    )


def test_a_precision_that_would_show_and_does_not() -> None:
    row = compatibility.check_options(
        FILE | {"precisions": ["fp32"], "operators": {"dot": 1}}, RequestOptions(precision="fp16"), MI210, ROCM
    )
    assert [each.ok for each in row if each.field == "precision"] == [False]


def test_an_override_of_the_arch_is_mentioned() -> None:
    """The usual way to serve on a small part such as a 780M. Source: ROCm/ROCR-Runtime, libhsakmt/src/topology.c."""
    small = replace(NAVI, arch="gfx1103", num_cu=6)
    row = rows({**FILE, "archs": ["gfx1100"]}, small)["arch"]
    assert row.ok is False and "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes a gfx1103 count as gfx1100" in row.why
    for archs, hardware in ((["gfx1100"], MI210), (["gfx90a"], small), (["gfx1103"], NAVI)):
        assert "HSA_OVERRIDE" not in rows({**FILE, "archs": archs}, hardware)["arch"].why
    spoofed = replace(NAVI, real_arch="gfx1103")
    found = rows({**FILE, "archs": ["gfx1100"]}, spoofed)
    assert (
        found["arch"].ok and found["real_arch"].ok is None and "this gfx1103 count as gfx1100" in found["real_arch"].why
    )
