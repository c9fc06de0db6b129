"""Effects of the environment and the driver on the GPUs: xnack, ECC, overrides, hidden devices."""

from __future__ import annotations

from mxr.host_facts import detect


def test_xnack_follows_the_environment_and_the_module(tree) -> None:
    tree.node(1, "MI210")
    host = detect(tree.top, {"HSA_XNACK": "1"})
    assert (host.targets[0].xnack, host.found_by["xnack"]) == ("+", "HSA_XNACK=1")
    tree.node(2, "MI100", drm_render_minor=129)
    host = detect(tree.top, {"HSA_XNACK": "1"})
    assert [target.xnack for target in host.targets] == ["-", "-"]
    assert host.found_by["xnack"] == "HSA_XNACK=1, which these GPUs do not support"
    tree.write("sys/module/amdgpu/parameters/noretry", "0\n")
    assert [target.xnack for target in detect(tree.top).targets] == ["+", "+"]
    assert [target.xnack for target in detect(tree.top, {"HSA_XNACK": "0"}).targets] == ["-", "-"]


def test_ecc_can_be_off_or_unknown(tree) -> None:
    tree.node(1, "MI100", capability=749970048 & ~(1 << 26)).node(2, "MI100", capability=None, drm_render_minor=129)
    assert [target.sramecc for target in detect(tree.top).targets] == ["-", None]


def test_an_override_also_reports_the_real_arch(tree) -> None:
    host = detect(tree.node(0, "CPU").node(1, "RX780M").top, {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"})
    (target,) = host.targets
    assert (target.arch, target.real_arch, target.num_cu) == ("gfx1100", "gfx1103", 6)
    assert host.found_by["arch"] == "HSA_OVERRIDE_GFX_VERSION"


def test_an_override_to_the_real_arch_has_no_effect(tree) -> None:
    (target,) = detect(tree.node(1, "RX7900XTX").top, {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}).targets
    assert (target.arch, target.real_arch) == ("gfx1100", None)


def test_an_override_per_node_counts_the_nodes_of_the_process(tree) -> None:
    tree.node(0, "CPU").node(1, "RX780M", device=False).node(2, "RX780M", drm_render_minor=129)
    (target,) = detect(tree.top, {"HSA_OVERRIDE_GFX_VERSION_1": "11.0.2"}).targets
    assert (target.node, target.arch) == (2, "gfx1102")
    (target,) = detect(tree.top, {"HSA_OVERRIDE_GFX_VERSION_2": "11.0.2"}).targets
    assert (target.node, target.arch) == (2, "gfx1103")


def test_an_invalid_override_is_noted_and_ignored(tree) -> None:
    host = detect(tree.node(1, "RX780M").top, {"HSA_OVERRIDE_GFX_VERSION": "gfx1100"})
    assert host.targets[0].arch == "gfx1103"
    assert "HSA_OVERRIDE_GFX_VERSION is 'gfx1100'" in host.notes[0]


def test_hidden_gpus(tree) -> None:
    tree.node(0, "CPU").node(1, "RX780M").node(2, "MI210", drm_render_minor=129).node(3, "MI100", drm_render_minor=130)
    host = detect(tree.top, {"ROCR_VISIBLE_DEVICES": "2,GPU-19", "HIP_VISIBLE_DEVICES": "1"})
    assert [target.arch for target in host.targets] == ["gfx90a"]
    assert host.notes == ("ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES hide 2 of the GPUs of this host.",)
    assert host.found_by["arch"] == "kfd topology node 2"
    host = detect(tree.top, {"CUDA_VISIBLE_DEVICES": "", "GPU_DEVICE_ORDINAL": "0"})
    assert host.targets == ()
    assert host.notes == ("CUDA_VISIBLE_DEVICES hides 3 of the GPUs of this host.",)


def test_the_requested_order_is_kept(tree) -> None:
    tree.node(1, "MI100").node(2, "MI210", drm_render_minor=129)
    assert [target.arch for target in detect(tree.top, {"ROCR_VISIBLE_DEVICES": "1,0"}).targets] == ["gfx90a", "gfx908"]


def test_an_unknown_gpu_has_an_index(tree) -> None:
    tree.node(1, "MI300X", gfx_target_version=None).node(2, "MI210", drm_render_minor=129)
    host = detect(tree.top, {"HIP_VISIBLE_DEVICES": "1"})
    assert [target.arch for target in host.targets] == ["gfx90a"]
    assert host.notes == ("HIP_VISIBLE_DEVICES hides 1 of the GPUs of this host.",)


def test_opencl_ordinals_hide_nothing(tree) -> None:
    host = detect(tree.node(1, "MI100").top, {"GPU_DEVICE_ORDINAL": ""})
    assert len(host.targets) == 1
    assert "OpenCL" in host.notes[0]
