"""The key: one meaning has one digest, another meaning another, and no release changes a digest by accident."""

from __future__ import annotations

import json
import random
from dataclasses import FrozenInstanceError, replace
from hashlib import sha256
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import GPU, MODEL, OTHER_MODEL, SHA, key_parts, keys

from mxr.artifact.attributes import Request
from mxr.artifact.key import KEY_VERSION, Difference, Key
from mxr.artifact.target import DynamicDim
from mxr.errors import UsageError
from mxr.util import codec

PLAIN = (
    '{"arch":"gfx90a","calibration":null,"env":{},"fast_math":true,"form":"whole",'
    '"inputs":{"x":[8,3,224,224]},"kind":"gpu","migraphx":"2.15",'
    '"model":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","offload_copy":true,"options":{},"precision":"fp32","rocm":"7.2",'
    '"v":2,"vendor":"amd"}'
)
RICH = (
    '{"arch":"gfx906","calibration":"' + "ab" * 32 + '","env":{"MIGRAPHX_MLIR_USE_SPECIFIC_OPS":"attention,~dot",'
    '"MIGRAPHX_NSTREAMS":"1"},"fast_math":false,"form":"ort:1.23:part_0","inputs":{"a":[],"ids":[[1,8,[1,4]],384]},"kind":"gpu",'
    '"migraphx":"2.4","model":"sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff","offload_copy":false,"options":{"convolution_layout":"channels_last","split_sizes":"1,8"},"precision":"int8+fp16",'
    '"rocm":"25.04","v":2,"vendor":"hygon"}'
)
REF = (
    '{"calibration":null,"env":{},"fast_math":true,"form":"whole","inputs":{"x":[8,3,224,224]},"kind":"ref",'
    '"migraphx":"2.15","model":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","offload_copy":true,"options":{},"precision":"fp32","v":2}'
)
RICH_KEY = Key(
    model=OTHER_MODEL,
    form="ort:1.23:part_0",
    kind="gpu",
    vendor="hygon",
    arch="gfx906",
    migraphx="2.4",
    rocm="25.04",
    inputs=(("ids", (DynamicDim(1, 8, (4, 1)), 384)), ("a", ())),
    precision=("int8", "fp16"),
    calibration=SHA,
    offload_copy=False,
    fast_math=False,
    env=(("MIGRAPHX_NSTREAMS", "1"), ("MIGRAPHX_MLIR_USE_SPECIFIC_OPS", "attention,~dot")),
    options=(("split_sizes", "1,8"), ("convolution_layout", "channels_last")),
)
GOLDEN = [
    (GPU, PLAIN, "7be628607cb765205b26f14cacb05dcfa936d2c372dfa49854e5ddb048be172c"),
    (RICH_KEY, RICH, "d776af82c15a847add1a4f9a5af3fa2f76271a2242820bcf85ad1f55af34dcd2"),
    (replace(GPU, kind="ref"), REF, "9b58f07e6f49fbe7b186e6750f5e022677839846d62b5a95850e2f8acac30920"),
]


@pytest.mark.parametrize(("key", "text", "digest"), GOLDEN)
def test_the_digest_of_version_2_never_changes(key: Key, text: str, digest: str) -> None:
    assert KEY_VERSION == 2
    assert key.canonical == text
    assert key.digest == digest == sha256(text.encode()).hexdigest()
    assert codec.decode(Key, json.loads(text), "key") == key


@given(key_parts(), st.randoms())
def test_order_is_no_meaning(parts: dict[str, Any], shuffler: random.Random) -> None:
    mixed = dict(parts)
    for name in ("inputs", "env", "options"):
        rows = list(parts[name])
        shuffler.shuffle(rows)
        mixed[name] = tuple(rows)
    names = list(mixed)
    shuffler.shuffle(names)
    one, other = Key(**parts), Key(**{name: mixed[name] for name in names})
    assert one == other and one.canonical == other.canonical and hash(one) == hash(other)
    shuffled = list(one.to_json().items())
    shuffler.shuffle(shuffled)
    assert codec.decode(Key, dict(shuffled), "key").digest == one.digest


@given(keys)
def test_json_and_back(key: Key) -> None:
    again = codec.decode(Key, json.loads(json.dumps(key.to_json())), "key")
    assert again == key and again.digest == key.digest
    assert key.canonical == json.dumps(key.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert key.differences(again) == ()


@given(keys, keys)
def test_digests_agree_exactly_where_nothing_differs(one: Key, other: Key) -> None:
    assert (one.digest == other.digest) == (one == other) == (one.differences(other) == ())


@pytest.mark.parametrize("dim", [DynamicDim(4, 4), DynamicDim(4, 4, (4,)), DynamicDim(4, 4, (4, 4))])
def test_a_range_of_one_size_is_that_size(dim: DynamicDim) -> None:
    plain = replace(GPU, inputs=(("x", (4, 3)),))
    assert replace(GPU, inputs=(("x", (dim, 3)),)).digest == plain.digest
    document = plain.to_json() | {"inputs": {"x": [[4, 4, []], 3]}}
    assert codec.decode(Key, document, "key").digest == plain.digest


def test_optimals_are_a_set() -> None:
    one = replace(GPU, inputs=(("x", (DynamicDim(1, 8, (8, 1, 4, 1)),)),))
    assert one.digest == replace(GPU, inputs=(("x", (DynamicDim(1, 8, (1, 4, 8)),)),)).digest


def test_ref_has_no_vendor_arch_and_rocm() -> None:
    ref = Key(model=MODEL, kind="ref", migraphx="2.15", inputs=GPU.inputs)
    named = Key(
        model=MODEL, kind="ref", vendor="hygon", arch="not an arch", rocm="x", migraphx="2.15", inputs=GPU.inputs
    )
    assert named == ref and named.digest == ref.digest and ref.arch is None
    assert not {"vendor", "arch", "rocm"} & set(ref.to_json())
    spoken = ref.to_json() | {"vendor": "amd", "arch": "gfx908", "rocm": "7.2"}
    assert codec.decode(Key, spoken, "key").digest == ref.digest


CHANGES: dict[str, list[Any]] = {
    "model": [OTHER_MODEL, MODEL[:-1] + "0"],
    "form": ["ort:a", "ort:b"],
    "kind": ["ref"],
    "vendor": ["hygon"],
    "arch": ["gfx908", "gfx942", "gfx1100", "gfx9-4-generic"],
    "rocm": ["7.1", "6.2", "7.20"],
    "migraphx": ["2.16", "2.1", "2.14"],
    "inputs": [
        *((("x", shape),) for shape in ((1, 3, 224, 224), (8, 224, 224, 3), (8, 3, 224), (8, 3, 224, 224, 1), ())),
        (("X", (8, 3, 224, 224)),),
        (("x", (8, 3, 224, 224)), ("y", ())),
        (("x", (DynamicDim(1, 8), 3, 224, 224)),),
        (("x", (DynamicDim(1, 8, (8,)), 3, 224, 224)),),
        (),
    ],
    "precision": [("fp16",), ("bf16",), ("int8",), ("int8", "fp16"), ("fp16", "int8")],
    "calibration": [SHA, "cd" * 32],
    "offload_copy": [False],
    "fast_math": [False],
    "env": [(("MIGRAPHX_NSTREAMS", "1"),), (("MIGRAPHX_NSTREAMS", "2"),), (("MIGRAPHX_ENABLE_CK", "1"),)],
    "options": [
        (("split_sizes", "1"),),
        (("split_sizes", "2"),),
        (("mlss_use_specific_ops", "conv"),),
        (("split_sizes", "1"), ("mlss_use_specific_ops", "conv")),
    ],
}


def test_any_hard_change_is_another_digest() -> None:
    assert set(CHANGES) == set(Key.__dataclass_fields__) - {"v"}, "a field of the key without an example here"
    base = replace(GPU, precision=("fp8",))
    found = [
        replace(base, **{name: value}) for name, values in CHANGES.items() for value in values if name != "precision"
    ]
    found += [replace(GPU, precision=words) for words in CHANGES["precision"]]
    found += [base, GPU]
    assert len({key.digest for key in found}) == len(found)


@given(keys, st.data())
def test_a_change_is_named_as_asked_and_as_found(key: Key, data: st.DataObject) -> None:
    name = data.draw(
        st.sampled_from(["model", "form", "migraphx", "offload_copy", "fast_math", "inputs", "env", "options"])
    )
    value = data.draw(st.sampled_from(CHANGES[name]))
    assume(value != getattr(key, name))
    other = replace(key, **{name: value})
    differences = key.differences(other)
    assert {each.field.split(".")[0] for each in differences} == {name}
    swapped = {str(Difference(each.field, each.found, each.asked)) for each in differences}
    assert {str(each) for each in other.differences(key)} == swapped
    assert other.digest != key.digest


def test_differences_go_field_by_field() -> None:
    other = replace(GPU, arch="gfx908", inputs=(("x", (1, 3, 224, 224)), ("y", ())), env=(("MIGRAPHX_NSTREAMS", "1"),))
    assert GPU.differences(other) == (
        Difference("arch", "gfx90a", "gfx908"),
        Difference("inputs.x", [8, 3, 224, 224], [1, 3, 224, 224]),
        Difference("inputs.y", None, []),
        Difference("env.MIGRAPHX_NSTREAMS", None, "1"),
    )
    assert str(GPU.differences(other)[0]) == "arch: requested gfx90a, found gfx908"
    assert str(GPU.differences(other)[2]) == "inputs.y: requested unknown, found []"


def test_the_generic_key() -> None:
    family = replace(GPU, arch="gfx1103").generic()
    assert family is not None and family == replace(GPU, arch="gfx11-generic")
    assert family.generic() is None
    assert GPU.generic() is None, "gfx90a is in no family"
    assert replace(GPU, arch="gfx906", vendor="hygon").generic() is None, "Hygon's gfx906 is not AMD's"
    assert replace(GPU, kind="ref").generic() is None


@for_each(
    [
        *(
            {"model": model}
            for model in (
                "",
                "sha256:" + "A" * 64,
                "xxh3:" + "0" * 32,
                "sha256:" + "0" * 63,
                "0" * 64,
                MODEL + "\n",
                "model.onnx",
            )
        ),
        *({"form": form} for form in ("", "Whole", "ort:", "ort:a b", "ort:" + "a" * 201)),
        *({"kind": kind} for kind in ("", "cpu", "GPU", "fpga")),
        *({"vendor": vendor} for vendor in ("", "AMD", "nvidia")),
        *({"arch": arch} for arch in (None, "", "gfx90a:xnack+", "GFX908", "gfx90a ")),
        *({"rocm": rocm} for rocm in (None, "", "7", "7.2.1", "7.2 ", "07.2", "7.2\n")),
        *({"migraphx": version} for version in ("", "2", "2.15.0", "2.015")),
        *({"inputs": (("x", (dim,)),)} for dim in (0, -1, 2**31, True, DynamicDim(8, 1), DynamicDim(1, 8, (9,)))),
        *({"inputs": inputs} for inputs in ((("x", ()), ("x", (1,))), (("\ud800", ()),), (("a\0", ()),))),
        *({"precision": words} for words in (("fp32",), ("fp16", "fp16"), ("fp64",), ("fp16+int8",), ("",))),
        *({"calibration": value} for value in (SHA, "x")),
        {"precision": ("int8",), "calibration": SHA.upper()},
        {"precision": ("fp16",), "calibration": SHA},
        *({"offload_copy": value} for value in (1, None, "true")),
        *({"fast_math": value} for value in (0, None)),
        *({"env": ((name, "1"),)} for name in ("PATH", "MIGRAPHX_", "migraphx_nstreams", "MIGRAPHX_NSTREAMS=")),
        {"env": (("MIGRAPHX_NSTREAMS", "1"), ("MIGRAPHX_NSTREAMS", "1"))},
        *({"env": (("MIGRAPHX_NSTREAMS", value),)} for value in ("a\0b", "\udc80")),
        *({"options": ((name, "1"),)} for name in ("", "A", "a-b", "1a", "a" * 65, "a=b")),
        {"options": (("a", "1"), ("a", "1"))},
        {"options": (("a", "a\0b"),)},
    ]
)
def test_what_no_key_can_have(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        replace(GPU, **change)


@for_each(
    [
        *(
            {name: None}
            for name in ("model", "kind", "migraphx", "inputs", "offload_copy", "env", "options", "precision", "v")
        ),
        *({"v": value} for value in (0, 1, 3, "2", True)),
        *({"inputs": inputs} for inputs in ([], {"x": None}, {"x": 4}, {"x": [1] * 65}, {"x": [0]}, {"x": ["N"]})),
        {"batch": 8},
        {"features": "+"},
        {"env": {"MIGRAPHX_NSTREAMS": 1}},
        {"options": {"a": 1}},
        {"precision": ["fp16"]},
        {"model": 5},
        {"offload_copy": 1},
    ]
)
def test_documents_that_hold_no_key(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        codec.decode(Key, GPU.to_json() | change, "key")


@for_each(["model", "kind", "migraphx", "inputs", "offload_copy", "fast_math", "arch", "rocm"])
def test_a_missing_field_is_named(name: str) -> None:
    document = {field: value for field, value in GPU.to_json().items() if field != name}
    with pytest.raises(UsageError, match="arch" if name == "arch" else "ROCm" if name == "rocm" else rf"key\.{name}"):
        codec.decode(Key, document, "key")


def test_a_fact_that_is_not_understood_is_never_dropped() -> None:
    """A lenient reader passes over new fields of a reply. Without one of its facts, a key means another program."""
    newer = {"key": GPU.to_json() | {"sparsity": "2:4"}, "constraints": {}}
    with pytest.raises(UsageError, match=r"key\.sparsity: unknown field"):
        codec.decode(Request, newer, lenient=True)


def test_a_key_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        GPU.arch = "gfx908"
