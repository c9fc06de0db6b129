"""Programs saved as JSON: the description equals that of the MessagePack form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core.program import program_maker as make
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.errors import DamagedError
from mxr.program import BytesSource, describe, json_form, read_header

CODE = make.hsaco("gfx1100.cov5.hsaco")


SAMPLES = ["mxr_spliced/v7_bf16_b1.mxr", "mxr_spliced/v6_layout_gfx90a.mxr", "mxr_real/mlp_ext_b4_fp16_ref.mxr"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_description(name):
    data = (make.DATA / name).read_bytes()
    expected = describe(BytesSource(data)).to_json()
    text = make.as_json(data)
    found = describe(BytesSource(text)).to_json()
    assert found["sizes"]["file"] == len(text)
    assert found["form"] == "json"
    changed = {"form": "msgpack", "sizes": found["sizes"] | {"file": len(data)}}
    assert found | changed == expected
    assert read_header(BytesSource(text)).form == "json"


def test_a_program_saved_by_a_real_migraphx():
    found = describe(BytesSource((make.DATA / "mxr_real" / "gemm_b1_fp16_ref.json").read_bytes()))
    assert (found.header.form, found.header.migraphx, found.header.targets) == ("json", "2.16.0", ("ref",))
    assert found.to_json()["inputs"] == {"x": {"type": "float_type", "dims": [1, 16]}}
    assert found.sizes.literals == 2 * (16 * 5 + 5)
    assert found.precisions == ("fp16",)
    assert found.warnings == ()


def test_short_binaries_and_large_lens():
    form = make.shape("float", 1)
    wide = make.shape("float", *[1000] * 70)
    nodes = [
        make.literal("@0", form, [1, 2, 3, 4]),
        make.literal("@1", form, []),
        make.literal("@2", form, [[1, 2], [3, 4]]),
        make.literal("@2", form, {"bytes": [1, 2, 3, 4]}),
        make.literal("@2", form, {"bytes": [1000]}),
        make.node("@3", "relu", wide),
    ]
    found = describe(BytesSource(json.dumps(make.fields(nodes)).encode()))
    assert found.sizes.literals == 12
    assert len(found.warnings) == 1


@pytest.mark.parametrize("binary", [list(CODE), {"bytes": list(CODE)}])
def test_code_objects_are_read(binary):
    top = make.fields(make.add_relu(code=CODE))
    top["modules"]["main"]["nodes"][2]["operator"]["code_object"] = binary
    assert describe(BytesSource(json.dumps(top, indent=4).encode())).archs == ("gfx1100",)


def test_a_mark_in_the_file_itself_is_not_a_binary():
    nodes = [make.literal("@0", make.shape("float", 1), "mxr binary 0:99999999999")]
    assert describe(BytesSource(json.dumps(make.fields(nodes)).encode())).sizes.literals == 0


def test_a_too_large_program_is_rejected_before_it_is_read():
    class Large:
        size = json_form.MAX_BYTES + 1

        def read_at(self, offset: int, length: int) -> bytes:
            assert length <= 4096
            return b"{" + b" " * (length - 1)

    with pytest.raises(DamagedError, match="the maximum is") as caught:
        describe(Large())
    assert "MessagePack" in caught.value.hint


@for_each(
    [
        b'{"a":' * 100_000,
        b'{"a": [' + b"[]," * 2_000_000 + b"1]}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"version": ' + b"9" * 10_000 + b', "modules": {}}',
        b'{"a": "\xff"}',
        b'{"version": 7, "version": 8, "modules": {}}',
        b'{"version": 7, "targets": [], "modules": {"main": {"nodes": [1]}}}',
        b'{"version": 7, "targets": [], "modules": []}',
        b'{"data": [' + b"1,  " * 70 + b"}",
    ]
)
def test_wrong_json(text):
    with pytest.raises(DamagedError) as caught:
        describe(BytesSource(text))
    assert 0 <= caught.value.context["offset"] <= len(text)


@given(st.lists(st.integers(0, 300), min_size=60, max_size=70), st.sampled_from([",", " , ", ",\n  "]))
def test_arrays_of_bytes_and_of_other_numbers(numbers, comma):
    text = '{"data": [' + comma.join(map(str, numbers)) + '], "lens": [1]}'
    tree, blobs = json_form.load_json_program(BytesSource(text.encode()))
    assert tree["lens"] == [1]
    if max(numbers) < 256:
        data: Any = tree["data"]
        (span,) = data.spans
        assert blobs.read_at(*span) == bytes(numbers)
    else:
        assert tree["data"] == numbers


@pytest.mark.parametrize(
    "numbers",
    [
        "[" + " " * 200 + "1, 2, 3]",
        "[" + ", ".join(["1000"] * 70) + "]",
        "[" + ", ".join(["1"] * 63) + " " * 100 + "]",
    ],
)
def test_long_arrays_that_are_not_bytes_stay_arrays(numbers):
    tree, blobs = json_form.load_json_program(BytesSource(b'{"a": ' + numbers.encode() + b"}"))
    assert tree == {"a": json.loads(numbers)}
    assert blobs.size == 0


@pytest.mark.parametrize("numbers", ["[" + "1," * 70 + "]", "[" + ",1" * 70 + "]", "[" + "1 2," * 70 + "3]"])
def test_invalid_arrays_of_numbers_are_damaged(numbers):
    with pytest.raises(DamagedError):
        json_form.load_json_program(BytesSource(b'{"a": ' + numbers.encode() + b"}"))
