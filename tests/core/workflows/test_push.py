"""The label of a program to publish: what its file tells, what must be said, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness.rows import for_each
from paths import DATA
from strategies import MODEL

from mxr.artifact.target import DynamicDim
from mxr.errors import MismatchError, NotAllowedError, UsageError
from mxr.onnxfile import OnnxInput, OnnxModel, OutputDim
from mxr.request.builder import RequestOptions
from mxr.request.model import ModelReference
from mxr.workflows.push import PublicationLabel, label_program, split_program


def subject(*inputs: OnnxInput) -> ModelReference:
    return ModelReference(MODEL, OnnxModel(Path("m.onnx"), 0, inputs, (), (), 17, 8, ""))


X = OnnxInput("x", "float32", ("N", 3))
SUBJECT = subject(X)
ROW = {"type": "float_type", "dims": [8, 3]}
FILE: dict[str, Any] = {
    "compiled": True,
    "targets": ["gpu"],
    "file_version": 7,
    "migraphx": "2.15.0",
    "flavour": "upstream",
    "archs": ["gfx90a:sramecc+:xnack-"],
    "inputs": {"x": ROW},
    "offload_copy": True,
    "precisions": ["fp32"],
    "operators": {"dot": 1},
    "libraries": ["rocblas", "miopen"],
}
SAID: dict[str, Any] = {"rocm": "7.2.1", "fast_math": True, "precision": "fp32"}
REF = FILE | {"targets": ["ref"], "archs": [], "offload_copy": None, "libraries": []}
REF_SAID = {"fast_math": False, "offload_copy": False, "precision": "fp32"}


def labelled(facts: dict[str, Any] | None = None, model: ModelReference = SUBJECT, **said: Any) -> PublicationLabel:
    """The label of a file like `FILE` but for `facts`, with what is usually said but for `said`."""
    return label_program(RequestOptions(**(SAID | said)), model, FILE | (facts or {}))


def test_the_file_tells_what_it_tells() -> None:
    found = labelled()
    key, has = found.key, found.attributes
    assert (key.model, key.kind, key.vendor, key.arch, key.form) == (MODEL, "gpu", "amd", "gfx90a", "whole")
    assert (key.migraphx, key.rocm, key.inputs) == ("2.15", "7.2", (("x", (8, 3)),))
    assert (key.precision, key.offload_copy, key.fast_math, key.env) == ((), True, True, ())
    assert (has.sramecc, has.xnack, has.tuning) == ("+", "-", "default")
    assert (has.rocm_patch, has.migraphx_patch, has.libraries) == ("7.2.1", "2.15.0", ("miopen", "rocblas"))
    assert (has.num_cu, has.chiplets, has.build) == (None, None, None), "nothing is detected"


def test_a_ref_program() -> None:
    found = label_program(RequestOptions(**REF_SAID), SUBJECT, REF)
    assert (found.key.kind, found.key.arch, found.key.rocm, found.key.vendor) == ("ref", None, None, None)
    named = label_program(
        RequestOptions(**REF_SAID, arch="gfx90a", rocm="7.2.1", num_cu=104, vendor="amd"), SUBJECT, REF
    )
    assert named == found
    assert (found.attributes.sramecc, found.attributes.rocm_patch, found.attributes.libraries) == ("any", None, ())


@for_each(
    [
        ({}, {"rocm": None}, ["the ROCm version"]),
        ({}, {"fast_math": None}, ["fast_math"]),
        ({"offload_copy": None}, {}, ["offload_copy"]),
        ({"offload_copy": None}, {"fast_math": None}, ["offload_copy and fast_math"]),
        ({"migraphx": None}, {}, ["the MIGraphX version"]),
        ({"archs": []}, {}, ["the GPU arch"]),
        ({"archs": ["an arch of tomorrow"]}, {}, ["the GPU arch"]),
        ({"archs": []}, {"arch": "gfx90a"}, ["sramecc and xnack"]),
        ({"archs": []}, {"arch": "gfx90a:xnack-"}, ["sramecc"]),
        ({"archs": []}, {"arch": "gfx1010"}, ["xnack"]),
        ({"precisions": ["fp16", "int8"]}, {"precision": None}, ["the precision (the program computes in fp16+int8)"]),
        (
            {"archs": [], "offload_copy": None, "migraphx": None, "precisions": ["fp16"]},
            {"rocm": None, "fast_math": None, "precision": None},
            [
                *("the GPU arch", "the ROCm version", "the MIGraphX version", "offload_copy and fast_math"),
                "the precision (the program computes in fp16)",
            ],
        ),
    ]
)
def test_what_must_be_said(facts: dict[str, Any], said: dict[str, Any], missing: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        labelled(facts, **said)
    assert caught.value.context == {"missing": missing}
    assert all(each in caught.value.message for each in missing)
    assert caught.value.hint.count("--") >= len(missing)


@for_each(
    [
        ({"bfloat16", "int64"}, (), ["bf16"], True),
        ({"float16"}, (), ["fp16"], True),
        ({"float32", "int8"}, ("QuantizeLinear", "Conv"), ["int8"], True),
        ({"float32", "uint8"}, ("ConvInteger",), ["fp16", "int8"], True),
        ({"float16", "float8e4m3fn"}, (), ["fp16", "fp8"], True),
        ({"float32", "float16"}, (), ["fp16"], False),
        ({"float32"}, (), ["fp16"], False),
        ({"float32", "int8"}, ("Conv",), ["int8"], False),
        ({"float32"}, ("QuantizeLinear",), ["fp16", "int8"], False),
        ({"float16"}, (), ["fp16", "int8"], False),
    ]
)
def test_a_precision_that_the_model_itself_has(
    types: set[str], operators: tuple[str, ...], found: list[str], explained: bool
) -> None:
    model = replace(SUBJECT, onnx=replace(SUBJECT.onnx, types=frozenset(types), operators=frozenset(operators)))
    if not explained:
        with pytest.raises(UsageError, match="the precision"):
            labelled({"precisions": found}, model, precision=None)
        return
    label = labelled({"precisions": found}, model, precision=None)
    assert label.key.precision == () and "as the model itself does" in label.notes[0]
    assert not labelled({"precisions": found}, model, precision="+".join(found)).notes


@for_each(
    [
        ({"offload_copy": None}, {"consumer": "python", "fast_math": None}),
        ({"migraphx": None}, {"migraphx": "2.15"}),
        ({"archs": []}, {"arch": "gfx90a:sramecc+:xnack-"}),
        ({"archs": []}, {"arch": "gfx1100"}),
        ({"precisions": []}, {"precision": None}),
        ({"precisions": ["fp32"]}, {"precision": None}),
        ({"targets": []}, {}),
        ({"inputs": {}}, {"batch": 8}),
    ]
)
def test_and_no_more(facts: dict[str, Any], said: dict[str, Any]) -> None:
    assert labelled(facts, **said).key.kind == "gpu"


@for_each(
    [
        (["gfx90a"], None, ("any", "any")),
        (["gfx90a"], "gfx90a:sramecc+:xnack-", ("any", "any")),
        (["gfx90a:sramecc+:xnack-"], "gfx90a", ("+", "-")),
        (["gfx90a:sramecc+:xnack-"], "gfx90a:sramecc+:xnack-", ("+", "-")),
        (["gfx90a", "gfx90a:xnack+"], None, ("any", "+")),
        (["gfx90a:sramecc-", "gfx90a:xnack+"], "gfx90a:xnack+", ("-", "+")),
        ([], "gfx90a:sramecc-:xnack+", ("-", "+")),
        (["gfx11-generic"], None, ("any", "any")),
    ]
)
def test_features(archs: list[str], said: str | None, signs: tuple[str, str]) -> None:
    has = labelled({"archs": archs}, arch=said).attributes
    assert (has.sramecc, has.xnack) == signs


@for_each(
    [
        ({"compiled": False}, {}, {"compiled"}),
        ({}, {"kind": "ref", "offload_copy": True}, {"kind", "arch"}),
        ({}, {"arch": "gfx908"}, {"arch"}),
        ({}, {"arch": "gfx90a:xnack+"}, {"xnack"}),
        ({"archs": ["gfx90a:xnack+", "gfx90a:xnack-"]}, {}, {"xnack"}),
        ({"archs": ["gfx90a", "gfx1100"]}, {"arch": "gfx90a"}, {"arch"}),
        ({}, {"migraphx": "2.16"}, {"migraphx"}),
        ({}, {"migraphx": "2.15.1"}, {"migraphx_patch"}),
        ({}, {"vendor": "hygon", "rocm": "25.04"}, {"vendor"}),
        ({"flavour": "hygon"}, {"vendor": "amd"}, {"vendor"}),
        ({}, {"offload_copy": False}, {"offload_copy"}),
        ({}, {"consumer": "driver"}, {"offload_copy"}),
        ({}, {"precision": "fp16"}, {"precision"}),
        ({}, {"batch": 1}, {"inputs.x"}),
        ({}, {"inputs": (("x", (DynamicDim(1, 8), 3)),)}, {"inputs.x"}),
        ({"targets": ["gpu", "ref"]}, {}, {"kind"}),
        ({}, {"arch": "gfx908", "batch": 4, "precision": "fp16"}, {"arch", "inputs.x", "precision"}),
    ]
)
def test_a_label_that_the_file_contradicts(facts: dict[str, Any], said: dict[str, Any], fields: set[str]) -> None:
    with pytest.raises(MismatchError) as caught:
        labelled(facts, **said)
    rows = caught.value.context["differences"]
    assert {row["field"] for row in rows} == fields
    assert all(set(row) == {"field", "asked", "found"} for row in rows)
    assert caught.value.hint


def test_the_flags_of_a_consumer_where_the_file_is_silent() -> None:
    found = labelled({"offload_copy": None}, consumer="ort", fast_math=None).key
    assert (found.offload_copy, found.fast_math) == (False, False)
    found = labelled({"offload_copy": None}, consumer="ort", fast_math=True, offload_copy=True).key
    assert (found.offload_copy, found.fast_math) == (True, True)


def test_hygon() -> None:
    found = labelled({"flavour": "hygon", "archs": ["gfx906"], "migraphx": "2.04.0"}, rocm="25.04.1")
    assert (found.key.vendor, found.key.rocm, found.key.migraphx) == ("hygon", "25.04", "2.04")
    assert (found.attributes.rocm_patch, found.attributes.migraphx_patch) == ("25.04.1", "2.04.0")


@pytest.mark.parametrize(
    ("told", "said", "patch"),
    [
        ("2.15.0", None, "2.15.0"),
        ("2.15.0", "2.15", "2.15.0"),
        ("2.15.0", "2.15.0.70200-43~22.04", "2.15.0.70200-43~22.04"),
        ("2.15", "2.15.3", "2.15.3"),
        (None, "2.15", None),
        ("2.15", None, None),
    ],
)
def test_the_patch_of_migraphx(told: str | None, said: str | None, patch: str | None) -> None:
    assert labelled({"migraphx": told}, migraphx=said).attributes.migraphx_patch == patch


@pytest.mark.parametrize(
    ("inputs", "rows", "shapes"),
    [
        ([X], {"x": [[1, 8, [4]], 3]}, (("x", (DynamicDim(1, 8, (4,)), 3)),)),
        ([X, OnnxInput("unused", "int64", (1,))], {"x": [8, 3]}, (("unused", (1,)), ("x", (8, 3)))),
        ([X, OnnxInput("scale", "float32", ())], {"x": [8, 3], "scale": [1]}, (("scale", ()), ("x", (8, 3)))),
        ([OnnxInput("any", "float32", None)], {"any": [2, 2]}, (("any", (2, 2)),)),
        ([], {}, ()),
    ],
    ids=["a range", "an input that nothing uses", "a scalar", "any rank", "none"],
)
def test_the_inputs_of_the_file(inputs: list[OnnxInput], rows: dict[str, Any], shapes: tuple[Any, ...]) -> None:
    facts = {"inputs": {name: {"type": "float_type", "dims": dims} for name, dims in rows.items()}}
    assert labelled(facts, subject(*inputs)).key.inputs == shapes


@pytest.mark.parametrize(
    "rows",
    [{"x": [8, 4]}, {"x": [8]}, {"y": [8, 3]}, {"x": [8, 3], "y": [1]}, {"y": None}],
)
def test_a_program_of_another_model_comes_before_everything_else(rows: dict[str, Any]) -> None:
    with pytest.raises(MismatchError, match="was not compiled from sha256:") as caught:
        labelled({"inputs": {name: {"dims": dims} for name, dims in rows.items()}}, rocm=None, arch="gfx908")
    assert caught.value.context["differences"][0]["field"].startswith("inputs")


@pytest.mark.parametrize("dims", [None, [None, 3], [[0, 8, []], 3], [0, 3]])
def test_dims_that_the_file_does_not_tell_must_be_said(dims: Any) -> None:
    facts = {"inputs": {"x": {"dims": dims}}}
    with pytest.raises(UsageError, match="Some dims are unknown"):
        labelled(facts)
    assert labelled(facts, batch=8).key.inputs == (("x", (8, 3)),)
    with pytest.raises(UsageError, match="Some dims are unknown"):
        labelled({"inputs": {}})


@pytest.mark.parametrize(
    "said",
    [{"arch": "gfx"}, {"kind": "cpu"}, {"consumer": "nobody"}, {"rocm": "seven"}, {"precision": "fp12"}],
    ids=repr,
)
def test_what_cannot_be_said(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        labelled(**said)


EXAMPLES = sorted((DATA).glob("mxr_*/*.mxr"))


@for_each(EXAMPLES[::3])
def test_cutting_a_real_file(path: Path) -> None:
    file = split_program(path, "model.mxr")
    data = path.read_bytes()
    assert (file.size, file.sha256) == (len(data), sha256(data).hexdigest())
    ends = [0]
    for blob in file.blobs:
        ends.append(ends[-1] + blob.size)
    assert [sha256(data[start:end]).hexdigest() for start, end in pairwise(ends)] == [b.sha256 for b in file.blobs]
    assert split_program(path, "model.mxr") == file, "the same file is cut the same way"


def test_cutting_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises((UsageError, NotAllowedError)):
        split_program(tmp_path / "gone", "model.mxr")
    assert replace(split_program(EXAMPLES[0], "a"), name="b") == split_program(EXAMPLES[0], "b")


def test_a_program_for_several_archs_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(MismatchError, match="gfx1100, gfx90a"):
        labelled({"archs": ["gfx90a", "gfx1100"]}, rocm=None)


def test_a_program_of_another_model_with_the_same_inputs_is_refused() -> None:
    ten = OnnxInput("y", "float32", ("N", 10))
    model = replace(SUBJECT, onnx=replace(SUBJECT.onnx, outputs=(ten,), weight_dims=(("y", OutputDim(-1, 10, 2)),)))
    for dims in ([8, 64, 32, 32], [8, 11]):
        with pytest.raises(MismatchError, match=r"outputs\.y"):
            labelled({"outputs": [{"type": "float_type", "dims": dims}]}, model)
    with pytest.raises(MismatchError, match="outputs is"):
        labelled({"outputs": [{"type": "float_type", "dims": [8, 10]}] * 2}, model)
    assert labelled({"outputs": [{"type": "float_type", "dims": [8, 10]}]}, model).warnings == ()


def test_what_is_doubtful_is_a_warning() -> None:
    model = replace(SUBJECT, onnx=replace(SUBJECT.onnx, outputs=(OnnxInput("y", "float32", ("N", 10)),)))
    (warning,) = labelled({"outputs": [{"type": "float_type", "dims": [8, 11]}]}, model).warnings
    assert "y float32[N, 10]" in warning and "[8,11]" in warning
    (warning,) = labelled({"rocm_hint": "7.2"}, rocm="6.2.4").warnings
    assert "6.2" in warning and "7.2" in warning and "both versions" in warning
    assert labelled({"rocm_hint": "7.2"}, rocm="7.2.1").warnings == ()
    assert labelled({"rocm_hint": None}, rocm="6.2.4").warnings == ()
    assert label_program(RequestOptions(**REF_SAID), SUBJECT, REF | {"rocm_hint": "7.2"}).warnings == ()
