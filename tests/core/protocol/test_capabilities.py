"""Who can compile what: on the GPU itself, and across."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.rows import for_each

from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.matching import Candidate, apply_rules
from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.recording_form import OrtRuntime, form_of
from mxr.errors import UsageError
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol.capabilities import CompileMethod, able, made_across, tuning_for, whole_gpu
from mxr.protocol.jobs import WorkerCapabilities

MODEL = "sha256:" + "0" * 64
REF = HostTarget("ref", kind="ref")
MI100 = HostTarget("gfx908", "+", "-", num_cu=120, chiplets=1)
TOOLS = HostToolchain("7.2.1", "2.15.0", "a1")
ALLOWED = {"num_cu": 304, "chiplets": 8, "allow": ("cross",)}


def request(arch: str = "gfx942", vendor: str = "amd", **constraints: Any) -> Request:
    key = Key(MODEL, "gpu", "2.15", (), vendor=vendor, arch=arch, rocm="7.2")
    return Request(key, Constraints(**constraints))


def test_the_first_target_that_fits_is_taken() -> None:
    other = HostTarget("gfx908", "+", "-", num_cu=110, chiplets=1)
    assert able(WorkerCapabilities((REF, MI100, other), TOOLS), request("gfx908")) == CompileMethod(1)
    assert able(WorkerCapabilities((REF, MI100, other), TOOLS), request("gfx908", num_cu=110)) == CompileMethod(2)
    assert able(WorkerCapabilities((MI100,), TOOLS), request("gfx908", num_cu=110)) is None
    ref = Request(Key(MODEL, "ref", "2.15", ()))
    assert able(WorkerCapabilities((MI100, REF), HostToolchain(migraphx="2.15.1")), ref) == CompileMethod(1)


def test_silicon_that_passes_for_another_compiles_for_its_like_alone() -> None:
    true, spoofed = HostTarget("gfx1100", num_cu=48), HostTarget("gfx1100", num_cu=6, real_arch="gfx1103")
    can = WorkerCapabilities((spoofed, true), TOOLS)
    assert able(can, request("gfx1100")) == CompileMethod(1)
    assert able(can, request("gfx1100", real_arch="gfx1103")) == CompileMethod(0)
    assert able(WorkerCapabilities((spoofed,), TOOLS), request("gfx1100")) is None
    assert able(WorkerCapabilities((spoofed,), TOOLS), request("gfx1100", allow=("spoof",))) == CompileMethod(0)
    described = request("gfx1100", num_cu=6, chiplets=1, real_arch="gfx1103", allow=("cross",))
    assert able(WorkerCapabilities((MI100,), TOOLS, cross=True), described) is None, "across, it is made for a true one"


def test_eager_only_where_migraphx_has_compile_modes() -> None:
    asked = request("gfx908", tuning="eager", allow=("eager",))
    assert able(WorkerCapabilities((MI100,), TOOLS, eager=True), asked) == CompileMethod(0)
    assert able(WorkerCapabilities((MI100,), TOOLS), asked) is None
    assert (
        tuning_for(asked.constraints) == "eager"
        and tuning_for(request("gfx908", allow=("eager",)).constraints) == "default"
    )


def test_across_only_where_it_is_allowed_and_can_be_done() -> None:
    can = WorkerCapabilities((REF, MI100), TOOLS, cross=True)
    assert able(can, request(**ALLOWED)) == CompileMethod(1, cross=True)
    assert able(can, request("gfx908", **ALLOWED)) == CompileMethod(1, cross=True), "the same arch with other counts"
    assert able(can, request("gfx908", **ALLOWED | {"num_cu": 120, "chiplets": 1})) == CompileMethod(1), "it is here"
    assert able(can, request(**ALLOWED, sramecc="+", xnack="-")) == CompileMethod(1, cross=True), (
        "built for any setting"
    )
    assert able(can, request(**ALLOWED, tuning="cross")) == CompileMethod(1, cross=True)


@for_each(
    [
        (WorkerCapabilities((MI100,), TOOLS), request(**ALLOWED)),
        (WorkerCapabilities((REF,), TOOLS, cross=True), request(**ALLOWED)),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(num_cu=304, chiplets=8)),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(num_cu=304, chiplets=8, allow=("cu", "patch"))),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(num_cu=38, allow=("cross",))),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(chiplets=1, allow=("cross",))),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(**ALLOWED, tuning="default")),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request(**ALLOWED, tuning="exhaustive")),
        (WorkerCapabilities((MI100,), TOOLS, cross=True), request("gfx906", "hygon", **ALLOWED)),
        (WorkerCapabilities((MI100,), HostToolchain("7.1.0", "2.15.0"), cross=True), request(**ALLOWED)),
        (WorkerCapabilities((MI100,), HostToolchain("7.2.1", "2.16.0"), cross=True), request(**ALLOWED)),
        (WorkerCapabilities((MI100,), HostToolchain(None, "2.15.0"), cross=True), request(**ALLOWED)),
    ]
)
def test_never_across_otherwise(can: WorkerCapabilities, asked: Request) -> None:
    assert able(can, asked) is None


def test_a_record_needs_that_very_onnx_runtime() -> None:
    form = form_of(Contract("B", "1.27.1"), "net.onnx", "all")
    asked = replace(request("gfx908"), key=replace(request("gfx908").key, form=form))
    assert able(WorkerCapabilities((MI100,), TOOLS), asked) is None
    assert able(WorkerCapabilities((REF, MI100), TOOLS, ort=OrtRuntime("B", "1.27.1")), asked) == CompileMethod(1)
    for other in (OrtRuntime("C", "1.27.1"), OrtRuntime("B", "1.27.0")):
        assert able(WorkerCapabilities((MI100,), TOOLS, ort=other), asked) is None
    assert able(WorkerCapabilities((MI100,), TOOLS, ort=OrtRuntime("B", "1.27.1")), request("gfx908")) == CompileMethod(
        0
    ), "whole models as well"
    described = replace(request(**ALLOWED), key=replace(request(**ALLOWED).key, form=form))
    assert able(WorkerCapabilities((MI100,), TOOLS, cross=True, ort=OrtRuntime("B", "1.27.1")), described) is None, (
        "never across"
    )


def test_counts_that_only_one_product_has_need_not_be_stated() -> None:
    can = WorkerCapabilities((), TOOLS, cross=True, cross_for=("gfx942", "gfx950"))
    for arch, stated, counts in (
        ("gfx950", {}, (256, 8)),
        ("gfx942", {"num_cu": 228}, (228, 6)),
        ("gfx942", {"chiplets": 4}, (80, 4)),
    ):
        asked = request(arch, **stated, allow=("cross",))
        assert able(can, asked) == CompileMethod(0, cross=True)
        found = whole_gpu(asked.key, asked.constraints)
        assert (found.num_cu, found.chiplets) == counts
    assert able(can, request("gfx942", allow=("cross",))) is None, "more than one"


def test_what_is_made_across_is_marked() -> None:
    constraints = request(**ALLOWED, sramecc="+").constraints
    made = made_across(constraints, TOOLS)
    assert (made.tuning, made.num_cu, made.chiplets, made.sramecc) == ("cross", 304, 8, "any")
    assert apply_rules(constraints, Candidate("", made)).relaxed == ["tuning"]
    assert apply_rules(Constraints(num_cu=304), Candidate("", made)).refused


@pytest.mark.parametrize("name", ["vram", "node", "render_minor"])
def test_no_number_of_a_gpu_is_negative(name: str) -> None:
    WorkerCapabilities((replace(MI100, **{name: 0}),), TOOLS)
    with pytest.raises(UsageError, match=rf"can.targets\[1\].{name}: expected 0 or more, found -1"):
        WorkerCapabilities((MI100, replace(MI100, **{name: -1})), TOOLS)
