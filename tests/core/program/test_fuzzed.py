"""Mutated programs: each is described or reported as damaged, within the limits. `fuzz.py` does this for longer."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from dataclasses import replace

from core.program import program_maker as make
from core.program.mutations import bombs, mutate
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU

from mxr.artifact import program_evidence
from mxr.artifact.attributes import Attributes
from mxr.errors import DamagedError
from mxr.program import BytesSource, cut_points, describe, read_header

SOAK = os.environ.get("MXR_TEST_SOAK") == "1"
SMALL = sorted((make.DATA / "mxr_spliced").iterdir())
SAMPLES = [path.read_bytes() for path in SMALL]
SAMPLES += [make.as_json(SAMPLES[0])]
PARTS = SAMPLES + [path.read_bytes() for path in (make.DATA / "hsaco").iterdir()]


def survive(data: bytes) -> None:
    """Read `data` with every read function. The only allowed error is `DamagedError` with an offset within the data."""
    source = BytesSource(data)
    for read in (describe, read_header):
        try:
            found = read(source)
        except DamagedError as error:
            assert 0 <= error.context["offset"] <= len(data)
            assert error.message
            assert error.hint
        else:
            if read is describe:
                check_evidence(json.loads(json.dumps(found.to_json())))
    points = cut_points(source)
    assert points[0] == 0
    assert points == sorted({*points, len(data)})


def check_evidence(facts: dict) -> None:
    """Compare hostile facts with labels. No facts may raise an error."""
    for key in (GPU, replace(GPU, kind="ref", precision=("fp16", "int8", "fp8"))):
        for difference in program_evidence.contradictions(key, Attributes(), facts):
            assert difference.asked != difference.found
        said = program_evidence.sources(key, Attributes(), [facts], "publisher")
        assert {said["model"], said["fast_math"]} == {"publisher"}
    assert {name for name, _ in program_evidence.inputs_of(facts)} <= set(facts["inputs"])
    assert len(program_evidence.archs_of(facts)) <= len(facts["archs"])


@for_each(range(200 if SOAK else 10))
def test_mutations(seed):
    chance = random.Random(seed)
    for _ in range(10):
        survive(mutate(chance.choice(SAMPLES), PARTS, chance))


SHAPES = st.fixed_dictionaries(
    {"type": st.sampled_from(["float_type", "int8_type", "tuple_type", "half_type", "x"])},
    optional={
        "lens": st.lists(st.integers(0, 2**64 - 1), max_size=4) | st.none(),
        "strides": st.lists(st.integers(-1, 9), max_size=4) | st.text(max_size=2),
        "sub_shapes": st.lists(st.just({"type": "float_type"}), max_size=2),
        "dynamic_dimensions": st.lists(
            st.dictionaries(
                st.sampled_from(["min", "max", "opt", "optimals", "range", "sym"]),
                st.integers(-1, 9)
                | st.none()
                | st.lists(st.integers(0, 4), max_size=2)
                | st.just({"min": 1, "max": 2}),
                max_size=4,
            ),
            max_size=3,
        ),
    },
)
BINARIES = st.sampled_from(PARTS).map(lambda data: make.Chunks([data])) | st.binary(max_size=40) | st.just([])
NODES = st.fixed_dictionaries(
    {
        "output": st.sampled_from(["x", "@1", "@2", "main:#output_0", "scratch"]),
        "name": st.sampled_from(
            [
                "@param",
                "@return",
                "@literal",
                "gpu::code_object",
                "hip::copy_to_gpu",
                "hip::hip_copy_literal",
                "ref::op",
            ]
        ),
        "shape": SHAPES | st.just({}),
    },
    optional={
        "inputs": st.lists(st.sampled_from(["x", "@1", "@9"]) | st.integers(-9, 2**64 - 1), max_size=3),
        "literal": st.fixed_dictionaries({"shape": SHAPES, "data": BINARIES}) | st.none(),
        "operator": st.fixed_dictionaries(
            {},
            optional={
                "name": st.text(max_size=3) | st.integers(-9, 2**64 - 1),
                "parameter": st.text(max_size=3) | st.none(),
                "code_object": BINARIES,
                "symbol_name": st.sampled_from(["mlir_dot", 7, None]),
                "expected_inputs": st.lists(SHAPES | st.integers(-9, 2**64 - 1), max_size=2) | st.none(),
                "literal": st.fixed_dictionaries({"shape": SHAPES, "data": BINARIES, "sub": st.lists(st.none())}),
            },
        ),
        "debug_symbols": st.lists(st.text(max_size=3), max_size=2),
    },
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "version": st.integers(-1, 9) | st.none(),
        "migraphx_version": st.sampled_from(["2.15.0", "", "x.y", None, 2]),
        "target": st.sampled_from(["gpu", "", None]),
        "targets": st.lists(st.dictionaries(st.sampled_from(["name", "gpu_arch"]), st.text(max_size=3))) | st.none(),
        "contexts": st.lists(st.dictionaries(st.just("gfx_name"), st.sampled_from(["gfx90a", "", None]))),
        "offload_copy": st.booleans() | st.none(),
    },
)


@given(HEADERS, st.lists(NODES | st.integers(-9, 2**64 - 1), max_size=5), st.binary(max_size=5))
def test_programs_of_unusual_parts(header, nodes, trailer):
    top = make.fields(nodes) | header
    survive(make.pack(top) + trailer)


@for_each(bombs(0))
def test_bombs_cost_little_memory(name):
    """With small bombs. `fuzz.py` reads bombs of 5 MB, for which the limits are 2 s and 256 MiB."""
    data = bombs(60_000)[name]
    survive(data)
    tracemalloc.start()
    try:
        describe(BytesSource(data))
    except DamagedError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3 << 20
