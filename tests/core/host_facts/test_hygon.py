"""Hygon's DCUs from their files to the key: their own vendor, DTK versions, Hygon's MIGraphX versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mxr.host_facts import Host, combine, detect
from mxr.host_facts.host import HostToolchain
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.request.builder import RequestOptions, build_request
from mxr.request.model import ModelReference

SUBJECT = ModelReference(
    "sha256:" + "0" * 64,
    OnnxModel(Path("m.onnx"), 0, (OnnxInput("x", "float32", ("N", 3)),), (), (), None, 8, ""),
)
DCUS = [(90006, "gfx906"), (90206, "gfx926"), (90208, "gfx928"), (90306, "gfx936"), (90308, "gfx938")]
"""Z100, K100, K100_AI, BW1000 and a newer one. Source: Hygon's public DTK notes and device tables."""


def dtk(tree, version: int, **facts: int):
    """A host with DTK 25.04.4 and Hygon's MIGraphX 4.0.0."""
    tree.write("opt/dtk-25.04.4/.info/rocm_version", "25.04.4\n").link("opt/dtk", "dtk-25.04.4")
    tree.write("opt/dtk-25.04.4/lib/libmigraphx.so.4000000.0")
    return tree.node(0, "CPU").node(1, "MI100", gfx_target_version=version, **facts)


def key_of(host: Host, **said: object):
    return build_request(RequestOptions(batch=8, **said), SUBJECT, host).request.key


@pytest.mark.parametrize(("version", "arch"), DCUS)
def test_a_dcu_has_the_vendor_hygon_for_every_arch(tree, version: int, arch: str) -> None:
    host = detect(dtk(tree, version).top)
    (target,) = host.targets
    assert (target.vendor, target.arch, target.num_cu) == ("hygon", arch, 120)
    assert host.toolchain == HostToolchain("25.04.4", "4.0.0", vendor="hygon")
    key = key_of(host)
    assert (key.vendor, key.arch, key.rocm, key.migraphx) == ("hygon", arch, "25.04", "4.0")
    assert key.generic() is None


def test_the_same_arch_of_two_vendors_is_two_keys(tree) -> None:
    """rocminfo prints gfx906:sramecc+:xnack- both on a Z100 and on an MI50."""
    key = key_of(detect(dtk(tree, 90006).top), rocm="6.4", migraphx="2.12")
    other = replace(key, vendor="amd")
    assert (key.vendor, key.arch, other.arch) == ("hygon", "gfx906", "gfx906")
    assert key.digest != other.digest


def test_a_dcu_is_detected_from_its_pci_id_without_dtk(tree) -> None:
    """In an init container without DTK, with facts recorded in the serving image."""
    tree.node(0, "CPU").node(1, "MI100", gfx_target_version=90208, vendor_id=0x1D94)
    local = detect(tree.top)
    assert [each.vendor for each in local.targets] == ["hygon"]
    recorded = Host(toolchain=HostToolchain("25.04.4", "4.0.0", vendor="hygon"), found_by={"rocm": "dtk"})
    key = key_of(combine(recorded, local))
    assert (key.vendor, key.arch, key.rocm) == ("hygon", "gfx928", "25.04")


def test_hygons_dynamic_shapes_are_part_of_the_key(tree) -> None:
    host = detect(dtk(tree, 90208).top)
    assert key_of(host, env={"MIGRAPHX_DYNAMIC_SHAPE": "1"}).digest != key_of(host).digest
