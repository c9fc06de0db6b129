"""Programs that a real MIGraphX saves during the test: the reader's description must equal that of the library.

The tests compile each graph for the reference target in several variants, except those that the library rejects. The
whole module is one skip if `MXR_TEST_MIGRAPHX_PYTHON` is not set.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from compiler_workers.graphs import GRAPHS
from core.program import library, odd_graphs

from mxr.artifact import model_evidence, program_evidence
from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key, inputs_from_json
from mxr.onnxfile import read_model
from mxr.program import FileSource, cut_points, describe_file
from mxr.program.number_types import BYTES
from mxr.workflows.push import split_program

if not os.environ.get("MXR_TEST_MIGRAPHX_PYTHON"):
    pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx", allow_module_level=True)

pytestmark = pytest.mark.real_migraphx

OPEN = {"parse": {"default_dyn_dim_value": {"open": [1, 8, [1, 4, 8]]}}}
FOUR = {"parse": {"default_dim_value": 4}}
VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32-b4-tuned": FOUR | {"exhaustive_tune": True},
    "fp16-b4": FOUR | {"precision": ["fp16"]},
    "bf16-plain": {"precision": ["bf16"], "offload_copy": False, "fast_math": False},
    "int8": {"precision": ["int8"]},
    "int8-fp16-json": {"precision": ["int8", "fp16"], "format": "json"},
    "fp8": {"precision": ["fp8"]},
    "dynamic": OPEN,
    "uncompiled": {"compile": False},
    "uncompiled-json": {"compile": False, "format": "json"},
    "uncompiled-dynamic": OPEN | {"compile": False},
}
REFUSED = {  # by MIGraphX
    "dynamic": ("layer_norm", "hard_sigmoid", "topk", "if", "quantised_model", "quantised_unsigned", "integer_matmul"),
    "fp8": ("if", "loop", "if_in_if", "matmul_in_loop"),
}
REFUSED["dynamic"] += ("other_batch_for_each",)
REFUSED["uncompiled-dynamic"] = REFUSED["dynamic"]
NOTHING_TO_REDUCE = {("matmul_of_integers", "int8"), ("matmul_of_integers", "int8-fp16-json")}
"""The only product is of integers, which int8 does not change. The reader cannot tell it from a product of floats."""

CASES = [
    (name, variant)
    for name in [*GRAPHS, *odd_graphs.ODD]
    for variant in VARIANTS
    if name not in REFUSED.get(variant, ())
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[library.Library]:
    """The library in a child process."""
    started = library.start(tmp_path_factory.mktemp("library"))
    yield started
    started.close()


def write(name: str, folder: Path) -> Path:
    return GRAPHS[name].write(folder) if name in GRAPHS else odd_graphs.write(name, folder)


def save(real: library.Library, name: str, folder: Path, **order: Any) -> tuple[Path, dict[str, Any]]:
    """Save a program; return its path and the facts that the library reports."""
    path = folder / "program.mxr"
    return path, real.ask({"make": {"model": str(write(name, folder)), "path": str(path), **order}})


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_the_reader_agrees_with_the_library(real: library.Library, tmp_path: Path, name: str, variant: str) -> None:
    order = VARIANTS[variant]
    path, expected = save(real, name, tmp_path, **order)
    found: Any = describe_file(path).to_json()
    agree(found, expected, order)
    if expected["compiled"] and (name, variant) not in NOTHING_TO_REDUCE:
        key = label_is_true(found, expected, order.get("precision", ()))
        model = read_model(write(name, tmp_path), weight_dims=True)
        assert model_evidence.contradictions(key, model, found) == ()
        assert name not in odd_graphs.DECLARED_WRONGLY or model_evidence.warnings(model, found)
    rebuilt = rebuild(path)
    assert rebuilt.read_bytes() == path.read_bytes()
    again = real.ask({"load": str(rebuilt), "format": order.get("format", "msgpack")})
    assert {**again, "text": ""} == {**expected, "text": ""}


def agree(found: dict[str, Any], expected: dict[str, Any], order: dict[str, Any]) -> None:
    """Compare all facts that both report."""
    assert found["inputs"] == expected["inputs"]
    assert found["outputs"] == expected["outputs"]
    assert found["compiled"] == expected["compiled"] == order.get("compile", True)
    assert found["targets"] == (["ref"] if expected["compiled"] else [])
    assert re.match(rf"{re.escape(found['migraphx'])}(\.|$)", expected["version"])
    assert found["form"] == order.get("format", "msgpack")
    assert found["dynamic"] == any(isinstance(dim, list) for row in expected["inputs"].values() for dim in row["dims"])
    plain = Counter[str]()
    for operator, count in found["operators"].items():
        plain[operator.removeprefix("ref::")] += count
    nodes = printed(expected["text"])
    assert plain == Counter(operator for operator, _ in nodes)
    assert found["modules"] == expected["text"].count("module: ")
    seen = {kind for _, kind in nodes if kind}
    assert set(found["types"]) - {"tuple_type"} == seen
    assert found["precisions"] == precisions(seen, set(nodes))
    assert found["sizes"]["literals"] == literal_bytes(expected["text"])
    assert (found["archs"], found["libraries"], found["offload_copy"]) == ([], [], None)
    assert (found["warnings"], found["notes"]) == ([], [])


NODE = re.compile(r"^(?:\S+ = )?(?:ref::)?(@?[\w:]+?)(?=[\[({]|:\S| ->|$)")
KIND = re.compile(r"-> (?:dynamic, )?(\w+_type), ")


def printed(text: str) -> list[tuple[str, str | None]]:
    """The operator and the result type of each node in the library's output."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("module: ")]
    kinds = [KIND.search(line) for line in lines]
    names = [NODE.match(line) for line in lines]
    assert all(names)
    return [(name[1], kind and kind[1]) for name, kind in zip(names, kinds, strict=True) if name]


def precisions(types: set[str], nodes: set[tuple[str, str | None]]) -> list[str]:
    """The precisions that the printed program shows."""
    found = [word for kind, word in (("half_type", "fp16"), ("bf16_type", "bf16")) if kind in types]
    eight = {("quantizelinear", "int8_type"), ("quantizelinear", "uint8_type"), ("quant_dot", "int32_type")}
    found += ["int8"] if eight & nodes else []
    found += ["fp8"] if any(kind.startswith("fp8") for kind in types) else []
    return found or (["fp32"] if "float_type" in types else [])


def literal_bytes(text: str) -> int:
    """The bytes of all literals in the library's output."""
    total = 0
    for line in text.splitlines():
        if "= @literal{" in line:
            kind, lens, strides = re.search(r"-> (\w+), \{([\d, ]*)\}, \{([\d, ]*)\}", line).groups()
            steps = zip(map(int, lens.split(", ")), map(int, strides.split(", ")), strict=True)
            total += BYTES[kind] * (1 + sum((length - 1) * stride for length, stride in steps))
    return total


def label_is_true(found: dict[str, Any], expected: dict[str, Any], precision: list[str]) -> Key:
    """Check that a correct key is not contradicted and that a key with another batch is; return the correct one."""
    inputs = inputs_from_json({name: row["dims"] for name, row in expected["inputs"].items()}, "inputs")
    version = ".".join(expected["version"].split(".")[:2])
    key = Key("sha256:" + "0" * 64, "ref", version, inputs, precision=tuple(precision))
    assert program_evidence.contradictions(key, Attributes(), found) == ()
    assert sorted(program_evidence.inputs_of(found)) == sorted(inputs)
    for name, shape in inputs:
        other = Key("sha256:" + "0" * 64, "ref", version, ((name, (*shape, 7)),))
        assert f"inputs.{name}" in {each.field for each in program_evidence.contradictions(other, Attributes(), found)}
    return key


def rebuild(path: Path) -> Path:
    """Reassemble the file from the blobs that its manifest lists."""
    entry = split_program(path, "model.mxr")
    rebuilt = path.with_suffix(".rebuilt")
    with FileSource(path) as source, rebuilt.open("wb") as file:
        points = cut_points(source)
        assert [end - start for start, end in pairwise(points)] == [blob.size for blob in entry.blobs]
        for start, end in pairwise(points):
            file.write(source.read_at(start, end - start))
    assert sum(blob.size for blob in entry.blobs) == entry.size == path.stat().st_size
    return rebuilt


def test_dims_given_by_name(real: library.Library, tmp_path: Path) -> None:
    four = {"default_dim_value": 4, "dim_params": {"L": {"open": [2, 6, [2]]}}}
    path, expected = save(real, "two_symbols", tmp_path, parse=four, compile=False)
    assert describe_file(path).to_json()["inputs"] == expected["inputs"]
    assert expected["inputs"]["x"]["dims"] == [4, [2, 6, [2]]]


def test_dims_given_for_each_input(real: library.Library, tmp_path: Path) -> None:
    given: dict[str, Any] = {"map_input_dims": {"x": [2, 8], "z": [3, 2]}}
    path, expected = save(real, "other_batch_for_each", tmp_path, parse=given)
    found: Any = describe_file(path).to_json()
    assert found["inputs"] == expected["inputs"]
    assert {name: row["dims"] for name, row in found["inputs"].items()} == given["map_input_dims"]


def test_a_large_weight_is_a_separate_blob_at_every_batch_size(real: library.Library, tmp_path: Path) -> None:
    found = []
    for batch in (1, 4, 8):
        path, _ = save(real, "large_weights", tmp_path, parse={"default_dim_value": batch})
        found.append({blob.sha256: blob.size for blob in split_program(path, "model.mxr").blobs})
    shared = found[0].keys() & found[1].keys() & found[2].keys()
    assert [found[0][each] for each in shared].count(4 * 160 * 256) == 2


def test_the_cases_cover_nearly_all_graphs_and_variants() -> None:
    assert len(GRAPHS | odd_graphs.ODD) >= 90
    assert len(CASES) >= 0.95 * len(GRAPHS | odd_graphs.ODD) * len(VARIANTS)
