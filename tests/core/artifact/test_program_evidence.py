"""What a file says of its label: each fact, and that a fact which is absent never speaks against anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import strategies
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU

from mxr.artifact import program_evidence
from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim

REF = replace(GPU, kind="ref")
HYGON = replace(GPU, vendor="hygon", arch="gfx906", rocm="25.04")
PLAIN = Attributes()
ROW = {"type": "float_type", "dims": [8, 3, 224, 224]}
FULL: dict[str, Any] = {
    "compiled": True,
    "targets": ["gpu"],
    "migraphx": "2.15.0",
    "flavour": "upstream",
    "archs": ["gfx90a:sramecc+:xnack-"],
    "inputs": {"x": ROW},
    "offload_copy": True,
    "precisions": ["fp32"],
    "operators": {"dot": 1},
    "libraries": ["miopen"],
}
LABEL = Attributes("+", "-", migraphx_patch="2.15.0")
MLIR = {"precisions": ["fp32"], "kernels": {"mlir": 1}}


def seen(precision: str, operator: str = "dot") -> dict[str, Any]:
    """The facts of a program that shows one precision and has one operator."""
    return {"precisions": [precision], "operators": {"@param": 1, operator: 1}, "types": {"float_type": 3}}


def against(key: Key, has: Attributes, **facts: Any) -> dict[str, tuple[Any, Any]]:
    """The contradictions by field: as said, and as the file has it."""
    return {each.field: (each.asked, each.found) for each in program_evidence.contradictions(key, has, facts)}


def test_a_true_label_is_not_contradicted() -> None:
    assert against(GPU, LABEL, **FULL) == {}
    assert against(GPU, LABEL) == {}
    empty = {name: type(value)() if isinstance(value, (list, dict)) else None for name, value in FULL.items()}
    assert against(GPU, LABEL, **empty) == {}


@for_each(
    [
        (GPU, PLAIN, {"compiled": False}, "compiled", (True, False)),
        (GPU, PLAIN, {"targets": ["ref"]}, "kind", ("gpu", "ref")),
        (REF, PLAIN, {"targets": ["gpu"]}, "kind", ("ref", "gpu")),
        (GPU, PLAIN, {"targets": ["gpu", "ref"]}, "kind", ("gpu", "gpu+ref")),
        (GPU, PLAIN, {"migraphx": "2.16.0"}, "migraphx", ("2.15", "2.16.0")),
        (replace(GPU, migraphx="2.1"), PLAIN, {"migraphx": "2.15.0"}, "migraphx", ("2.1", "2.15.0")),
        (GPU, Attributes(migraphx_patch="2.15.1"), {"migraphx": "2.15.0"}, "migraphx_patch", ("2.15.1", "2.15.0")),
        (GPU, PLAIN, {"flavour": "hygon"}, "vendor", ("amd", "hygon")),
        (HYGON, PLAIN, {"flavour": "upstream"}, "vendor", ("hygon", "amd")),
        (GPU, PLAIN, {"archs": ["gfx908"]}, "arch", ("gfx90a", "gfx908")),
        (GPU, PLAIN, {"archs": ["gfx90a", "gfx1100"]}, "arch", ("gfx90a", "gfx90a+gfx1100")),
        (GPU, PLAIN, {"archs": ["gfx9-generic"]}, "arch", ("gfx90a", "gfx9-generic")),
        (REF, PLAIN, {"archs": ["gfx908"]}, "arch", (None, "gfx908")),
        (GPU, Attributes(xnack="-"), {"archs": ["gfx90a:xnack+"]}, "xnack", ("-", "+")),
        (GPU, PLAIN, {"archs": ["gfx90a:xnack+"]}, "xnack", ("any", "+")),
        (GPU, PLAIN, {"archs": ["gfx90a", "gfx90a:sramecc-"]}, "sramecc", ("any", "-")),
        (GPU, Attributes("+"), {"archs": ["gfx90a:sramecc+", "gfx90a:sramecc-"]}, "sramecc", ("+", "+ and -")),
        (
            GPU,
            PLAIN,
            {"inputs": {"x": ROW | {"dims": [1, 3, 224, 224]}}},
            "inputs.x",
            ([8, 3, 224, 224], [1, 3, 224, 224]),
        ),
        (GPU, PLAIN, {"inputs": {"x": ROW | {"dims": [8]}}}, "inputs.x", ([8, 3, 224, 224], [8])),
        (GPU, PLAIN, {"inputs": {"y": ROW}}, "inputs.y", (None, [8, 3, 224, 224])),
        (GPU, PLAIN, {"inputs": {"x": ROW, "y": {"dims": [None]}}}, "inputs.y", (None, [None])),
        (GPU, PLAIN, {"inputs": {"x": ROW | {"dims": [[1, 8, []], 3, 224, 224]}}}, "inputs.x", None),
        (GPU, PLAIN, {"offload_copy": False}, "offload_copy", (True, False)),
        (replace(GPU, offload_copy=False), PLAIN, {"offload_copy": True}, "offload_copy", (False, True)),
        (replace(GPU, precision=("fp16",)), PLAIN, MLIR, "precision", ("fp16", "fp32")),
        (replace(GPU, precision=("fp16",)), PLAIN, seen("fp32", "gpu::gemm"), "precision", ("fp16", "fp32")),
        (replace(REF, precision=("int8", "fp16")), PLAIN, seen("int8"), "precision", ("int8+fp16", "int8")),
        (replace(REF, precision=("int8",)), PLAIN, seen("fp32", "convolution"), "precision", ("int8", "fp32")),
        (replace(REF, precision=("bf16",)), PLAIN, seen("fp16"), "precision", ("bf16", "fp16")),
        (replace(REF, precision=("fp8",)), PLAIN, seen("fp32", "ref::softmax"), "precision", ("fp8", "fp32")),
    ]
)
def test_what_contradicts(
    key: Key, has: Attributes, facts: dict[str, Any], field: str, pair: tuple[Any, Any] | None
) -> None:
    found = against(key, has, **facts)
    assert set(found) == {field}
    assert pair is None or found[field] == pair


@for_each(
    [
        (GPU, PLAIN, {"migraphx": "2.15.3"}),
        (GPU, PLAIN, {"migraphx": "2.15"}),
        (GPU, Attributes(migraphx_patch="2.15.0.70200-43~22.04"), {"migraphx": "2.15.0"}),
        (GPU, Attributes(migraphx_patch="2.15.0-rc1"), {"migraphx": "2.15.0"}),
        (HYGON, PLAIN, {"flavour": "hygon", "archs": ["gfx906"]}),
        (REF, PLAIN, {"flavour": "hygon"}),
        (REF, PLAIN, {"offload_copy": False}),
        (GPU, Attributes("+", "-"), {"archs": ["gfx90a"]}),
        (GPU, Attributes("+"), {"archs": ["gfx90a:sramecc+", "gfx90a"]}),
        (GPU, PLAIN, {"archs": ["gfx99zz", "an arch of tomorrow"]}),
        (GPU, PLAIN, {"inputs": {"x": {"type": "float_type"}}}),
        (GPU, PLAIN, {"inputs": {"x": ROW | {"dims": None}}}),
        (GPU, PLAIN, {"inputs": {"x": ROW | {"dims": [None, 3, 224, 224]}}}),
        (GPU, PLAIN, {"inputs": {"x": ROW | {"dims": [[0, 8, []], 3, 224, 224]}}}),
        (replace(GPU, inputs=(("x", (8,)), ("unused", (1,)))), PLAIN, {"inputs": {"x": {"dims": [8]}}}),
        (replace(GPU, inputs=(("x", ()),)), PLAIN, {"inputs": {"x": {"dims": [1]}}}),
        (replace(GPU, inputs=(("x", (DynamicDim(1, 8, (4,)),)),)), PLAIN, {"inputs": {"x": {"dims": [[1, 8, [4]]]}}}),
        (GPU, PLAIN, {"precisions": ["fp16", "int8"]}),
        (replace(GPU, precision=("fp16",)), PLAIN, {"precisions": ["fp16", "int8"]}),
        (replace(GPU, precision=("bf16",)), PLAIN, MLIR),
        (replace(GPU, precision=("fp8",)), PLAIN, MLIR),
        (replace(GPU, precision=("fp16",)), PLAIN, seen("fp32", "concat") | {"kernels": {"mlir": 0}}),
        (replace(GPU, precision=("int8", "fp16")), PLAIN, MLIR | {"precisions": ["int8"]}),
        (replace(REF, precision=("fp16",)), PLAIN, seen("fp32", "concat")),
        (replace(REF, precision=("fp16",)), PLAIN, seen("int8", "ref::quant_dot")),
        (replace(REF, precision=("bf16",)), PLAIN, seen("fp16") | {"types": {"half_type": 3}}),
        (replace(REF, precision=("int8",)), PLAIN, seen("fp32", "convolution_backwards")),
        (replace(REF, precision=("fp8",)), PLAIN, seen("fp32", "dot")),
        (replace(REF, precision=("int4w",)), PLAIN, seen("fp32", "dot")),
        (replace(GPU, fast_math=False), PLAIN, FULL | {"archs": []}),
    ]
)
def test_what_does_not(key: Key, has: Attributes, facts: dict[str, Any]) -> None:
    assert against(key, has, **facts) == {}


def test_one_element_is_not_a_scalar_the_other_way_round() -> None:
    assert set(against(replace(GPU, inputs=(("x", (1,)),)), PLAIN, inputs={"x": {"dims": []}})) == {"inputs.x"}


SAID = st.sampled_from([PLAIN, LABEL, Attributes("-", "+", migraphx_patch="2.15.1")])
KEYS = st.sampled_from([GPU, REF, HYGON, replace(GPU, precision=("fp16",)), replace(GPU, offload_copy=False)])


@given(KEYS, SAID, strategies.descriptions())
def test_a_fact_taken_away_never_adds_a_contradiction(key: Key, has: Attributes, facts: dict[str, Any]) -> None:
    before = against(key, has, **facts)
    for name in facts:
        without = against(key, has, **{fact: value for fact, value in facts.items() if fact != name})
        assert set(without) <= set(before)
        assert set(against(key, has, **facts | {name: None})) == set(without)


@given(KEYS, SAID, strategies.descriptions())
def test_a_part_of_a_fact_taken_away_contradicts_no_true_label(
    key: Key, has: Attributes, facts: dict[str, Any]
) -> None:
    if against(key, has, **facts):
        return
    for name in ("archs", "inputs", "precisions"):
        for part in list(facts.get(name) or ()):
            left = [each for each in facts[name] if each != part]
            fewer = left if name != "inputs" else {each: facts[name][each] for each in left}
            if name == "precisions" and left:
                continue  # a list of precisions is a statement about all of them
            assert against(key, has, **facts | {name: fewer}) == {}


def stated(key: Key, has: Attributes, facts: dict[str, Any]) -> set[str]:
    said = program_evidence.sources(key, has, [facts], "publisher")
    assert {*said.values()} <= {"reader", "publisher"}
    return {name for name, source in said.items() if source == "publisher"}


@given(KEYS, SAID, strategies.descriptions())
def test_what_is_stated_is_what_the_file_leaves_open(key: Key, has: Attributes, facts: dict[str, Any]) -> None:
    found = stated(key, has, facts)
    assert {"model", "precision", "fast_math", "tuning"} <= set(found)
    assert ("rocm" in found) == (key.kind == "gpu")
    assert ("migraphx" in found) == (not facts.get("migraphx"))
    if key.kind == "ref":
        assert not {"arch", "vendor", "sramecc", "xnack"} & set(found)
    fewer = stated(key, has, {})
    assert set(found) <= set(fewer)


def test_what_a_full_file_leaves_to_the_publisher() -> None:
    has = replace(LABEL, num_cu=104, rocm_patch="7.2.1")
    left = {"fast_math", "model", "num_cu", "precision", "rocm", "rocm_patch", "tuning", "vendor"}
    assert stated(GPU, has, FULL) == left
    # A file that runs with any setting does not show an explicit one, and one of two files shows nothing for both.
    plain = FULL | {"archs": ["gfx90a"]}
    assert stated(GPU, has, plain) == left | {"sramecc", "xnack"}
    assert program_evidence.sources(GPU, has, [FULL, plain], "worker")["xnack"] == "worker"
    tied = replace(has, libraries=("miopen",), migraphx_patch="2.15.0.7")
    assert stated(GPU, tied, FULL | {"libraries": ["miopen"], "migraphx": "2.15.0"}) == left | {"migraphx_patch"}


def test_archs_and_inputs_that_cannot_be_read_are_left_out() -> None:
    facts = {
        "archs": ["gfx90a:xnack+", "gfx90a:wave64+", "nonsense"],
        "inputs": {"x": ROW, "y": {"dims": [0]}, "z": {}},
    }
    assert [str(arch) for arch in program_evidence.archs_of(facts)] == ["gfx90a:xnack+"]
    assert program_evidence.inputs_of(facts) == (("x", (8, 3, 224, 224)),)
    assert (
        program_evidence.archs_of({})
        == program_evidence.inputs_of({})
        == program_evidence.inputs_of({"inputs": None})
        == ()
    )


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["x", "", "y"]), HOSTILE | st.fixed_dictionaries({"dims": HOSTILE})))
def test_hostile_inputs_are_left_out_or_contradict(rows: dict[str, Any]) -> None:
    assert {name for name, _ in program_evidence.inputs_of({"inputs": rows})} <= set(rows)
    assert set(against(GPU, PLAIN, inputs=rows)) >= {f"inputs.{name}" for name in rows if name != "x"}


def test_who_states_what_no_file_shows() -> None:
    key = replace(GPU, options=(("convolution_layout", "channels_last"),), env=(("MIGRAPHX_DISABLE_MLIR", "1"),))
    said = program_evidence.sources(key, Attributes(), [FULL], "publisher")
    assert said["options"] == said["env"] == "publisher" and "calibration" not in said
