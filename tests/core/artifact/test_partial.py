"""What a request leaves open admits every value, and what it states admits one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU, OTHER_MODEL, keys

from mxr.artifact.attributes import Constraints
from mxr.artifact.key import Key
from mxr.artifact.partial import FACTS, PartialRequest
from mxr.errors import UsageError


def partial_of(key: Key, opened: set[str]) -> PartialRequest:
    """The request for a key that leaves these facts open."""
    shapes = tuple((name, None if f"inputs.{name}" in opened else shape) for name, shape in key.inputs)
    known = {name: getattr(key, name) for name in FACTS if name not in opened}
    rest = {name: getattr(key, name) for name in ("form", "precision", "calibration", "env", "options")}
    return PartialRequest(key.model, shapes, **known, **rest)


@given(keys, st.data())
def test_a_key_is_admitted_whatever_of_it_is_open(key: Key, data: st.DataObject) -> None:
    names = [*FACTS, *(f"inputs.{name}" for name, _ in key.inputs)]
    opened = set(data.draw(st.lists(st.sampled_from(names), unique=True)))
    partial = partial_of(key, opened)
    assert partial.admits(key) and partial.differences(key) == ()
    if key.kind == "ref" and "kind" not in opened:
        opened -= {"vendor", "arch", "rocm"}
    assert set(partial.open_facts) == opened | ({"vendor", "arch", "rocm"} & set(partial.open_facts))
    assert partial.completed(key).key == key


@given(keys, keys)
def test_what_is_not_admitted_differs_as_keys_do(asked: Key, found: Key) -> None:
    whole = partial_of(asked, set())
    assert whole.admits(found) == (not asked.differences(found))
    if asked.kind == found.kind:
        assert {each.field for each in whole.differences(found)} == {each.field for each in asked.differences(found)}


@for_each(
    [
        ({"migraphx": "2.14"}, "migraphx"),
        ({"rocm": "7.1"}, "rocm"),
        ({"arch": "gfx908"}, "arch"),
        ({"kind": "ref"}, "kind"),
        ({"vendor": "hygon"}, "vendor"),
        ({"fast_math": False}, "fast_math"),
        ({"precision": ("fp16",)}, "precision"),
        ({"model": OTHER_MODEL}, "model"),
        ({"inputs": (("x", (4, None, None, None)),)}, "inputs.x"),
        ({"inputs": (("x", (None, None)),)}, "inputs.x"),
        ({"inputs": (("y", None),)}, "inputs.y"),
        ({"env": (("MIGRAPHX_NSTREAMS", "2"),)}, "env.MIGRAPHX_NSTREAMS"),
    ]
)
def test_what_is_stated_admits_one_value(stated: dict[str, Any], field: str) -> None:
    partial = PartialRequest(**({"model": GPU.model, "inputs": (("x", None),)} | stated))
    assert not partial.admits(GPU)
    assert field in {each.field for each in partial.differences(GPU)}


def test_dims_are_open_one_by_one() -> None:
    partial = PartialRequest(GPU.model, (("x", (None, 3, 224, 224)),))
    assert "inputs.x" in partial.open_facts
    assert partial.admits(GPU) and partial.admits(replace(GPU, inputs=(("x", (1, 3, 224, 224)),)))
    assert not partial.admits(replace(GPU, inputs=(("x", (8, 1, 224, 224)),)))


def test_the_generic_family_of_an_arch_is_admitted_for_the_arch() -> None:
    partial = PartialRequest(GPU.model, GPU.inputs, arch="gfx1100", constraints=Constraints(num_cu=48))
    family = replace(GPU, arch="gfx11-generic")
    assert partial.admits(family) and not partial.admits(replace(GPU, arch="gfx10-3-generic"))
    request = partial.completed(family)
    assert (request.key.arch, request.constraints.num_cu) == ("gfx1100", 48)
    assert request.key.generic() == family


def test_settings_of_a_compile_are_checked() -> None:
    with pytest.raises(UsageError, match="LD_PRELOAD"):
        PartialRequest(GPU.model, (), env=(("LD_PRELOAD", "x"),))
