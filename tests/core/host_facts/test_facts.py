"""Recorded host facts: round trips, validation, and combination with another node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.errors import DamagedError, UsageError
from mxr.host_facts import Host, HostTarget, HostToolchain, combine, detect, read_recorded

SIGNS = st.sampled_from(["+", "-", None])
COUNTS = st.none() | st.integers(1, 2**31)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TARGETS = st.builds(
    HostTarget,
    arch=st.sampled_from(["gfx908", "gfx90a", "gfx1100"]),
    sramecc=SIGNS,
    xnack=SIGNS,
    num_cu=COUNTS,
    chiplets=COUNTS,
    vendor=st.sampled_from(["amd", "hygon"]),
    name=st.none() | TEXTS,
    real_arch=st.sampled_from([None, "gfx1103"]),
    node=st.none() | st.integers(0, 300),
    unique_id=st.none() | st.integers(1, 2**64 - 1).map("{:016x}".format),
    vram=st.none() | st.integers(0, 2**50),
)
TOOLCHAINS = st.builds(
    HostToolchain,
    rocm=st.sampled_from([None, "7.2.1", "7.14.0a20260519", "25.04.4"]),
    migraphx=st.sampled_from([None, "2.15.0"]),
    migraphx_build=st.none() | TEXTS,
    vendor=st.sampled_from(["amd", "hygon"]),
)
HOSTS = st.builds(
    Host,
    targets=st.lists(TARGETS, max_size=4).map(tuple),
    toolchain=TOOLCHAINS,
    found_by=st.dictionaries(TEXTS, TEXTS, max_size=3),
    notes=st.lists(TEXTS, max_size=3).map(tuple),
)


@given(HOSTS)
def test_a_record_is_read_back_unchanged(host: Host) -> None:
    assert Host.from_json(json.loads(json.dumps(host.to_json()))) == host


def test_a_detected_host_is_read_back_from_its_file(tree, tmp_path: Path) -> None:
    tree.node(0, "CPU").node(1, "MI300X").write("opt/rocm/.info/version", "7.2.1")
    host = detect(tree.top, {"HSA_XNACK": "1"})
    (tmp_path / "host.json").write_text(json.dumps(host.to_json()))
    assert read_recorded(tmp_path / "host.json") == host
    assert host.targets[0].xnack == "+"


def test_a_handwritten_record_can_be_incomplete() -> None:
    host = Host.from_json({"targets": [{"arch": "gfx908"}], "toolchain": {"rocm": "7.2", "migraphx": "2.15"}})
    assert host == Host((HostTarget("gfx908"),), HostToolchain("7.2", "2.15"))


@for_each(
    [
        ([], "the document"),
        ({"target": []}, "target"),
        ({"targets": {}}, "targets"),
        ({"targets": [1]}, "targets[0]"),
        ({"targets": [{}]}, "targets[0].arch"),
        ({"targets": [{"arch": "gfx908"}, {"arch": "mi100"}]}, "targets[1].arch"),
        ({"targets": [{"arch": "gfx908:xnack-"}]}, "targets[0].arch"),
        ({"targets": [{"arch": "gfx908", "real_arch": "x"}]}, "targets[0].real_arch"),
        ({"targets": [{"arch": "gfx908", "num_cu": "120"}]}, "targets[0].num_cu"),
        ({"targets": [{"arch": "gfx908", "num_cu": True}]}, "targets[0].num_cu"),
        ({"targets": [{"arch": "gfx908", "num_cu": 0}]}, "targets[0].num_cu"),
        ({"targets": [{"arch": "gfx908", "num_cu": 2**70}]}, "targets[0].num_cu"),
        ({"targets": [{"arch": "gfx908", "node": -1}]}, "targets[0].node"),
        ({"targets": [{"arch": "gfx908", "xnack": "any"}]}, "targets[0].xnack"),
        ({"targets": [{"arch": "gfx908", "vendor": "nvidia"}]}, "targets[0].vendor"),
        ({"targets": [{"arch": "gfx908", "kind": "cpu"}]}, "targets[0].kind"),
        ({"targets": [{"arch": "gfx908", "unique_id": "GPU-1"}]}, "targets[0].unique_id"),
        ({"targets": [{"arch": "gfx908", "wave": 64}]}, "targets[0].wave"),
        ({"toolchain": {"rocm": 7.2}}, "toolchain.rocm"),
        ({"toolchain": {"rocm": "seven"}}, "toolchain.rocm"),
        ({"toolchain": {"migraphx": "2"}}, "toolchain.migraphx"),
        ({"toolchain": {"vendor": "x"}}, "toolchain.vendor"),
        ({"toolchain": {"dtk": "1"}}, "toolchain.dtk"),
        ({"found_by": {"arch": 1}}, "found_by.arch"),
        ({"notes": [1]}, "notes[0]"),
    ]
)
def test_an_error_names_the_path_of_the_invalid_field(document: object, path: str) -> None:
    with pytest.raises(DamagedError) as problem:
        Host.from_json(document)
    assert f" {path}: " in problem.value.message
    assert problem.value.exit == 65
    assert problem.value.hint


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"<html>", b'{"targets":[]', b'{"notes":[],"notes":[]}', b"[" * 100_000, b" " * 5_000_000],
)
def test_foreign_files_are_damaged(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(data)
    with pytest.raises(DamagedError) as problem:
        read_recorded(path)
    assert str(path) in problem.value.message


def test_an_unreadable_file_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_recorded(path)


LOCAL = Host((HostTarget("gfx906"),), HostToolchain("6.4.4", "2.12.0", "b"), {"arch": "kfd", "rocm": "file"}, ("here",))


def test_a_record_without_gpus_uses_those_of_this_node() -> None:
    recorded = Host((), HostToolchain("7.2.1", None), {"rocm": "/opt/rocm/.info/version"}, ("there",))
    host = combine(recorded, LOCAL)
    assert host.targets == LOCAL.targets
    assert host.toolchain == HostToolchain("7.2.1", None)
    assert host.found_by == {"arch": "kfd", "rocm": "recorded: /opt/rocm/.info/version"}


def test_a_record_with_gpus_uses_nothing_of_this_node() -> None:
    recorded = Host((HostTarget("gfx942"),), HostToolchain())
    assert combine(recorded, LOCAL) == recorded


def test_a_record_of_a_hygon_image_changes_the_vendor_of_the_gpus() -> None:
    recorded = Host(toolchain=HostToolchain("25.04.4", "4.0.0", vendor="hygon"), found_by={"vendor": "DTK"})
    host = combine(recorded, LOCAL)
    assert host.targets == (HostTarget("gfx906", vendor="hygon"),)
    assert host.found_by == {"arch": "kfd", "vendor": "recorded: DTK"}
