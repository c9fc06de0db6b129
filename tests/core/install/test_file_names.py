"""The names of several programs of one model in one folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU, keys

from mxr.artifact.key import Key
from mxr.artifact.target import DynamicDim
from mxr.install.file_names import distinct_names, shorter_stem

IDS = ("a" * 64, "b" * 64)


def key(batch: int = 1, **more: Any) -> Key:
    return replace(GPU, **{"inputs": (("x", (batch, 3)), ("y", (batch, 7))), **more})


@for_each(
    [
        (key(4), key(8), ["net_b4.mxr", "net_b8.mxr"]),
        (key(4), key(8, precision=("fp16",)), ["net_b4_fp32.mxr", "net_b8_fp16.mxr"]),
        (key(precision=("int8", "fp16")), key(), ["net_int8+fp16.mxr", "net_fp32.mxr"]),
        (key(), key(arch="gfx908"), [f"net_{GPU.arch}.mxr", "net_gfx908.mxr"]),
        (key(rocm="6.4"), key(rocm="7.2"), ["net_rocm6.4.mxr", "net_rocm7.2.mxr"]),
        (key(), key(inputs=(("x", (1, 5)), ("y", (1, 7)))), ["net_1x3.mxr", "net_1x5.mxr"]),
        (key(2), key(inputs=(("x", (2, 3)), ("y", (1, 7)))), ["net_b2.mxr", "net_b1.mxr"]),
        (key(2), key(inputs=(("x", (3, 3)), ("y", (1, 7)))), ["net_b2.mxr", "net_3x3_1x7.mxr"]),
        (key(2), key(inputs=(("x", (DynamicDim(1, 8), 3)), ("y", (2, 7)))), ["net_b2.mxr", "net_1..8x3.mxr"]),
        # What no word tells apart: the flags, other names of inputs, long shapes.
        (key(fast_math=True), key(fast_math=False), [f"net_{each[:12]}.mxr" for each in IDS]),
        (key(), key(inputs=(("z", (1, 3)),)), [f"net_{each[:12]}.mxr" for each in IDS]),
        (
            key(inputs=(("x", (1, *[224] * 12)),)),
            key(inputs=(("x", (1, *[225] * 12)),)),
            [f"net_{each[:12]}.mxr" for each in IDS],
        ),
    ]
)
def test_names_say_in_what_the_programs_differ(one: Key, two: Key, names: list[str]) -> None:
    found = distinct_names("net.mxr", [(one, IDS[0]), (two, IDS[1])])
    assert found == names
    again = distinct_names("net.mxr", [(one, "c" * 64), (two, "d" * 64)])
    assert again == ([f"net_{'c' * 12}.mxr", f"net_{'d' * 12}.mxr"] if IDS[0][:12] in found[0] else names), "stable"


@given(st.lists(keys, min_size=2, max_size=4))
def test_names_are_distinct_and_lead_back_to_the_model(found: list[Key]) -> None:
    names = distinct_names("a model.mxr", [(each, f"{at:x}" * 64) for at, each in enumerate(found)])
    assert len(set(names)) == len(names)
    for name in names:
        stem: str | None = name.removesuffix(".mxr")
        while stem and stem != "a model":
            stem = shorter_stem(stem)
        assert stem == "a model", name


@pytest.mark.parametrize("stem", ["net", "net_v2b", "b8", "_b8", "fp16", "net_fp", "net_b8_x", "net_gfx"])
def test_other_names_have_no_added_word(stem: str) -> None:
    assert shorter_stem(stem) is None
