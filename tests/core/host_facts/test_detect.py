"""Whole hosts: common boards, containers, overrides, hidden GPUs, and tools as a last resort."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxr.host_facts
from mxr.host_facts import Host, HostTarget, detect, run_tool

NODES = "sys/class/kfd/kfd/topology/nodes"
ROCMINFO = """\
Agent 1
  Name:                    {arch}
  Uuid:                    GPU-21b6d61638a86f8c
  Marketing Name:          AMD Instinct MI300X
  Device Type:             GPU
  Compute Unit:            304
  Internal Node ID:        {node}
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--{arch}:sramecc+:xnack-
    ISA 2
      Name:                    amdgcn-amd-amdhsa--gfx9-4-generic:sramecc+:xnack-
"""


@pytest.mark.parametrize(
    ("board", "arch", "sramecc", "xnack", "num_cu", "chiplets"),
    [
        ("VEGA10", "gfx900", None, "-", 64, 1),
        ("MI100", "gfx908", "+", "-", 120, 1),
        ("MI210", "gfx90a", "+", "-", 104, 1),
        ("MI300X", "gfx942", "+", "-", 304, 8),
        ("MI300X_CPX", "gfx942", "+", "-", 38, 1),
        ("MI308X_CPX", "gfx942", "+", "-", 20, 1),
        ("MI355X", "gfx950", "+", "-", 256, 8),
        ("RX7900XTX", "gfx1100", None, None, 48, 1),
        ("RX780M", "gfx1103", None, None, 6, 1),
        ("RX8060S", "gfx1151", None, None, 20, 1),
        ("R9700", "gfx1201", None, None, 32, 1),
    ],
)
def test_boards(tree, never_run, board, arch, sramecc, xnack, num_cu, chiplets) -> None:
    host = detect(tree.node(0, "CPU").node(1, board).top, run=never_run)
    (target,) = host.targets
    found = (target.arch, target.sramecc, target.xnack, target.num_cu, target.chiplets)
    assert found == (arch, sramecc, xnack, num_cu, chiplets)
    assert (target.vendor, target.kind, target.real_arch, target.node) == ("amd", "gpu", None, 1)
    assert host.notes == ()


def test_how_each_fact_was_found(tree) -> None:
    host = detect(tree.node(0, "CPU").node(1, "MI100").node(2, "VEGA10", drm_render_minor=129).top)
    assert host.found_by == {
        "arch": "kfd topology node 1; PCI device id in kfd topology node 2",
        "num_cu": "kfd topology nodes 1-2",
        "chiplets": "kfd topology nodes 1-2",
        "sramecc": "kfd topology node 1",
        "xnack": "default, HSA_XNACK not set",
        "vendor": "PCI vendor id, no DTK installed",
    }


def test_names(tree) -> None:
    tree.node(1, "MI100", name="arcturus").node(2, "RX7900XTX", name="ip discovery", drm_render_minor=129)
    tree.node(3, "MI210", name="aldebaran", drm_render_minor=130)
    tree.write("sys/class/drm/renderD130/device/product_name", "AMD Instinct MI210\n")
    assert [target.name for target in detect(tree.top).targets] == ["arcturus", None, "AMD Instinct MI210"]


def test_eight_partitions_of_one_gpu_are_one_choice(tree) -> None:
    tree.node(0, "CPU")
    for number in range(1, 9):
        tree.node(number, "MI300X_CPX", drm_render_minor=127 + number)
    tree.node(9, "MI300X_CPX", drm_render_minor=136, unique_id=2001)
    host = detect(tree.top)
    assert len(host.targets) == 9
    assert [target.node for target in host.choices()] == [1]
    assert [len(group) for group in host.physical()] == [8, 1]
    assert host.targets[0].unique_id == f"{2000:016x}"


def test_different_gpus_are_different_choices(tree) -> None:
    tree.node(1, "MI100").node(2, "MI210", drm_render_minor=129).node(3, "MI100", drm_render_minor=130)
    assert [target.arch for target in detect(tree.top).choices()] == ["gfx908", "gfx90a"]


def test_gpus_without_an_id_are_not_partitions(tree) -> None:
    tree.node(1, "MI100").node(2, "MI100", drm_render_minor=129)
    assert [len(group) for group in detect(tree.top).physical()] == [1, 1]


def test_a_container_uses_only_the_gpus_it_was_given(tree) -> None:
    tree.node(0, "CPU").node(1, "MI210", device=False).node(2, "MI210", drm_render_minor=129)
    host = detect(tree.top)
    assert [target.render_minor for target in host.targets] == [129]
    (note,) = host.notes
    assert "Node 1" in note and "gfx90a" in note and "/dev/dri/renderD128" in note


def test_an_init_container_without_devices_can_ask_for_the_whole_node(tree) -> None:
    tree.node(0, "CPU").node(1, "MI210", device=False).node(2, "MI210", device=False, drm_render_minor=129)
    assert detect(tree.top).targets == ()
    host = detect(tree.top, whole_node=True)
    assert [target.node for target in host.targets] == [1, 2]
    assert any("/dev/kfd" in note for note in host.notes)


def test_a_gpu_that_the_device_cgroup_excludes_is_noted(tree) -> None:
    tree.node(1, "MI210").node(2, "MI210", drm_render_minor=129)
    (tree.top / NODES / "1/properties").unlink()
    host = detect(tree.top)
    assert [target.node for target in host.targets] == [2]
    assert host.notes == ("Node 1 is not readable: this container does not have access to that GPU.",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can open every file")
def test_a_device_without_permission_is_noted(tree) -> None:
    tree.node(1, "MI210")
    (tree.top / "dev/dri/renderD128").chmod(0)
    (tree.top / "dev/kfd").chmod(0)
    host = detect(tree.top)
    assert host.targets == ()
    assert ["renderD128" in host.notes[0], "/dev/kfd" in host.notes[1]] == [True, True]


def test_missing_permissions_are_detected_with_access(tree, monkeypatch) -> None:
    tree.node(1, "MI210")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    host = detect(tree.top)
    assert host.targets == ()
    assert "`render`" in host.notes[0] and "/dev/kfd" in host.notes[1]


def test_rocminfo_runs_if_the_kernel_lists_no_gpu(tree) -> None:
    asked = []

    def run(words, seconds):
        asked.append((words, seconds))
        return ROCMINFO.format(arch="gfx942", node=1)

    host = detect(tree.write("dev/kfd").top, {"ROCR_VISIBLE_DEVICES": "5", "HSA_OVERRIDE_GFX_VERSION": "9.0.8"}, run)
    assert host.targets == (
        HostTarget("gfx942", "+", "-", 304, name="AMD Instinct MI300X", node=1, unique_id="21b6d61638a86f8c"),
    )
    assert host.found_by["arch"] == "rocminfo"
    assert asked == [(["rocminfo"], 5.0)]
    assert detect(tree.top, {"HIP_VISIBLE_DEVICES": "1"}, run).targets == ()


def test_rocminfo_completes_a_gpu_that_an_old_kernel_does_not_know(tree) -> None:
    tree.node(0, "CPU").node(1, "MI300X", gfx_target_version=None, num_xcc=None)
    host = detect(tree.top, run=lambda words, seconds: ROCMINFO.format(arch="gfx942", node=1))
    (target,) = host.targets
    assert (target.arch, target.num_cu, target.chiplets, target.render_minor) == ("gfx942", 304, None, 128)


@pytest.mark.parametrize("answer", [None, "", "garbage", ROCMINFO.format(arch="gfx942", node=9)])
def test_an_unknown_gpu_is_noted_and_not_guessed(tree, answer) -> None:
    tree.node(1, "MI300X", gfx_target_version=None)
    host = detect(tree.top, run=lambda words, seconds: answer)
    assert host.targets == ()
    assert "74a1" in host.notes[0]


def test_rocminfo_does_not_run_in_a_container_without_gpus(tree, never_run) -> None:
    assert detect(tree.node(1, "MI210", device=False).write("dev/kfd").top, run=never_run).targets == ()


def test_hygon_is_detected_from_its_toolkit_or_its_pci_id(tree) -> None:
    tree.node(1, "MI100", gfx_target_version=90006)
    assert detect(tree.top).targets[0].vendor == "amd"
    tree.node(1, "MI100", gfx_target_version=90006, vendor_id=0x1D94)
    assert detect(tree.top).targets[0].vendor == "hygon"
    tree.node(1, "MI100", gfx_target_version=90006).write("opt/dtk/.info/rocm_version", "25.04.4\n")
    host = detect(tree.top)
    assert host.targets[0].vendor == "hygon"
    assert (host.toolchain.vendor, host.toolchain.rocm) == ("hygon", "25.04.4")
    assert host.found_by["vendor"] == "Hygon's DTK is installed"


def test_no_kfd_device(tree) -> None:
    tree.node(1, "MI100")
    (tree.top / "dev/kfd").unlink()
    host = detect(tree.top)
    assert len(host.targets) == 1
    assert "/dev/kfd does not exist" in host.notes[0]


def test_an_empty_root(tree, never_run) -> None:
    host = detect(tree.top, run=never_run)
    assert (host.targets, host.found_by) == ((), {})
    assert "no AMD GPU" in host.notes[0]


def test_a_root_that_does_not_exist(tmp_path: Path) -> None:
    assert detect(tmp_path / "absent").targets == ()


COUNTS = ["simd_count", "simd_per_cu", "num_xcc"]
KEYS = st.sampled_from([*COUNTS, "gfx_target_version", "device_id", "unique_id", "drm_render_minor", "location_id"])
ARCHS = st.sampled_from([b"90402", b"110000", b"90010"])
VALUES = st.binary() | st.integers(0, 2**70).map(lambda value: str(value).encode()) | ARCHS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(KEYS, VALUES), max_size=6))
def test_garbage_in_the_topology_never_raises(tree, lines) -> None:
    text = b"simd_count 4\ngfx_target_version 90008\n"
    text += b"".join(key.encode() + b" " + value + b"\n" for key, value in lines)
    tree.write(f"{NODES}/1/properties", b"drm_render_minor 128\n" + text).write("dev/dri/renderD128")
    tree.write("opt/rocm/.info/version", text).write("var/lib/dpkg/status", text)
    tree.write("opt/rocm/include/migraphx/version.h", text)
    for whole_node in (False, True):
        host = detect(tree.top, whole_node=whole_node)
        assert Host.from_json(host.to_json()) == host


def test_no_tool_runs_on_a_machine_without_a_gpu(never_run) -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has /dev/kfd")
    assert detect(run=never_run).targets == ()


def test_by_default_tools_run_only_for_the_real_root(tree, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(mxr.host_facts, "run_tool", lambda words, seconds: asked.append(words))
    detect(tree.write("dev/kfd").top)
    assert asked == []


def test_a_tool_that_fails_hangs_or_does_not_exist_returns_none(tmp_path: Path) -> None:
    assert run_tool(["/bin/sh", "-c", "echo out; echo err >&2"], 5) == "out\n"
    assert run_tool(["/bin/sh", "-c", "echo out; exit 3"], 5) is None
    assert run_tool([str(tmp_path / "absent")], 5) is None
    assert run_tool(["/bin/sh", "-c", "exec sleep 30"], 0.05) is None


def test_the_choice_of_a_target_excludes_its_location(tree) -> None:
    (target,) = detect(tree.node(1, "MI300X", name="x").top).targets
    assert target.choice() == replace(target, name=None, node=None, render_minor=None, unique_id=None)
