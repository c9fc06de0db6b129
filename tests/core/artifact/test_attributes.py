"""Attributes, constraints and requests: what they refuse, what a `ref` request forgets, and their JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import strategies
from harness.rows import for_each
from hypothesis import given
from strategies import GPU

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.errors import UsageError
from mxr.util import codec

REF = replace(GPU, kind="ref")


@given(strategies.attributes)
def test_attributes_to_json_and_back(has: Attributes) -> None:
    document = json.loads(codec.canonical(has.to_json()))
    assert {*document, "real_arch"} == set(Attributes.__dataclass_fields__)
    assert ("real_arch" in document) == (has.real_arch is not None), "what registries before it do not know"
    assert codec.decode(Attributes, document) == has


@given(strategies.keys, strategies.constraints())
def test_requests_to_json_and_back(key: Key, asked: Constraints) -> None:
    asked = replace(asked, sramecc=None, xnack=None, rocm_patch=None, migraphx_patch=None)
    request = Request(key, asked)
    document = json.loads(codec.canonical(request.to_json()))
    assert codec.decode(Request, document) == request


def test_the_real_arch_is_said_only_where_it_is_another() -> None:
    navi = replace(GPU, arch="gfx1100")
    assert Request(navi, Constraints(real_arch="gfx1100")) == Request(navi)
    assert Request(REF, Constraints(real_arch="gfx1103")) == Request(REF)
    assert Request(navi, Constraints(real_arch="gfx1103")).to_json()["constraints"]["real_arch"] == "gfx1103"
    assert "real_arch" not in Request(navi).to_json()["constraints"]
    Attributes(real_arch="gfx1103").check(navi)
    for key in (replace(GPU, arch="gfx1103"), REF):
        with pytest.raises(UsageError, match="real_arch"):
            Attributes(real_arch="gfx1103").check(key)
    for kind in (Attributes, Constraints):
        with pytest.raises(UsageError, match="real_arch: expected an arch"):
            kind(real_arch="11.0.3")


def test_a_ref_request_forgets_what_ref_does_not_have() -> None:
    asked = Constraints("+", "-", 104, 1, "7.2.1", "2.15.0", "build", "default")
    assert Request(REF, asked) == Request(REF, Constraints(migraphx_patch="2.15.0", build="build", tuning="default"))
    assert Request(GPU, asked).constraints == asked


def test_orders_and_repeats_mean_nothing() -> None:
    assert Constraints(allow=("patch", "cu", "cu")) == Constraints(allow=("cu", "patch"))
    assert Attributes(libraries=("rocblas", "miopen", "miopen")) == Attributes(libraries=("miopen", "rocblas"))


@for_each(
    [
        *({"sramecc": sign} for sign in ("", "any", "on", "+-")),
        *({"num_cu": count} for count in (0, -1, 65537)),
        *({"chiplets": count} for count in (0, 65537)),
        *({"tuning": word} for word in ("", "fast", "Default")),
        *({"allow": words} for words in (("all",), ("cu", ""), ("exact",))),
        {"exact": True, "allow": ("cu",)},
        {"tuning": "cross"},
        {"tuning": "eager"},
        {"tuning": "eager", "allow": ("cross",)},
        {"tuning": "cross", "allow": ("cu",)},
    ]
)
def test_what_no_constraint_can_be(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Constraints(**change)


@for_each(
    [
        *({"xnack": sign} for sign in (None, "", "on")),
        *({"num_cu": count} for count in (0, -5, 10**9)),
        *({"tuning": word} for word in (None, "fast")),
        {"libraries": ("mlir",)},
    ]
)
def test_what_no_artifact_can_state(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Attributes(**change)


@for_each(["7.2", "7.2.", "7.1.0", "7.20.1", "7.2.1\n", "7.2. 1", "7.2." + "1" * 61, "x7.2.1", ""])
def test_a_patch_belongs_to_its_version(patch: str) -> None:
    with pytest.raises(UsageError, match="rocm_patch"):
        Request(GPU, Constraints(rocm_patch=patch))
    with pytest.raises(UsageError, match="rocm_patch"):
        Attributes(rocm_patch=patch).check(GPU)
    Request(GPU, Constraints(rocm_patch="7.2.1-43~22.04", migraphx_patch="2.15.0"))
    Attributes(rocm_patch="7.2.1-43~22.04", migraphx_patch="2.15.0").check(GPU)


def test_ref_states_no_rocm_and_no_features() -> None:
    Attributes(migraphx_patch="2.15.3").check(REF)
    for wrong in (Attributes(rocm_patch="7.2.1"), Attributes(sramecc="+"), Attributes(migraphx_patch="2.16.0")):
        with pytest.raises(UsageError):
            wrong.check(REF)


@pytest.mark.parametrize(("arch", "name"), [("gfx1100", "xnack"), ("gfx1030", "sramecc"), ("gfx900", "sramecc")])
def test_features_that_an_arch_does_not_have(arch: str, name: str) -> None:
    key = replace(GPU, arch=arch)
    with pytest.raises(UsageError, match=name):
        Attributes(**{name: "+"}).check(key)
    with pytest.raises(UsageError, match=f"{arch} has no {name}"):
        Request(key, Constraints(**{name: "-"}))


@for_each(
    [
        {},
        {"constraints": {}},
        {"key": None},
        {"key": GPU.to_json(), "constraints": None},
        {"key": GPU.to_json(), "batch": 1},
        {"key": GPU.to_json() | {"num_cu": 104}},
        {"key": GPU.to_json(), "constraints": {"cu": 104}},
        {"key": GPU.to_json(), "constraints": {"num_cu": "104"}},
        {"key": GPU.to_json(), "constraints": {"num_cu": 104.0}},
        {"key": GPU.to_json(), "constraints": {"num_cu": 10**30}},
        {"key": GPU.to_json(), "constraints": {"allow": "cu"}},
        {"key": GPU.to_json(), "constraints": {"exact": 1}},
        {"key": GPU.to_json(), "constraints": {"build": "\ud800"}},
    ]
)
def test_documents_that_hold_no_request(document: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        codec.decode(Request, document)
    assert codec.decode(Request, {"key": GPU.to_json()}) == Request(GPU)
