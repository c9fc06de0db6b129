"""Labels of Kubernetes nodes."""

from __future__ import annotations

import re

from harness.rows import for_each

from mxr.host_facts import HostTarget
from mxr_cli.commands.host import node_labels

MI300X = HostTarget("gfx942", "+", "-", 304, 8, name="AMD Instinct MI300X OAM", partition="spx_nps1")


def test_a_node_with_eight_equal_gpus() -> None:
    labels, differing = node_labels([MI300X] * 8)
    assert labels == {
        "mxr.dev/gfx": "gfx942",
        "mxr.dev/num-cu": "304",
        "mxr.dev/sramecc": "on",
        "mxr.dev/xnack": "off",
        "mxr.dev/vendor": "amd",
        "mxr.dev/partition": "spx_nps1",
        "mxr.dev/gpus": "8",
    }
    assert differing == ()


def test_unknown_facts_are_left_out() -> None:
    assert node_labels([HostTarget("gfx1100")])[0] == {
        "mxr.dev/gfx": "gfx1100",
        "mxr.dev/vendor": "amd",
        "mxr.dev/gpus": "1",
    }


def test_what_differs_is_left_out_and_named() -> None:
    labels, differing = node_labels([MI300X, HostTarget("gfx908", "+", "-", 120)])
    assert "mxr.dev/gfx" not in labels and labels["mxr.dev/xnack"] == "off" and labels["mxr.dev/gpus"] == "2"
    assert differing == ("mxr.dev/gfx", "mxr.dev/num-cu", "mxr.dev/partition")


@for_each(["gfx942:sramecc+:xnack-", "gfx 9", "-gfx", "gfx\n", "g" * 64, "", "gfx942/x", "gfxé"])
def test_what_kubernetes_does_not_take_is_no_label(arch: str) -> None:
    labels, _ = node_labels([HostTarget(arch)])
    assert "mxr.dev/gfx" not in labels
    assert all(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value) for value in labels.values())


def test_no_gpu() -> None:
    assert node_labels([]) == ({}, ())
