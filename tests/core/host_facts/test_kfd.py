"""Decoding of the kernel's numbers, and properties files with any content."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.host_facts.kfd import NODES, decode_gfx_target_version, read_nodes
from mxr.host_facts.root import Root, properties


@for_each(
    [
        (90000, "gfx900"),
        (90006, "gfx906"),
        (90008, "gfx908"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (100300, "gfx1030"),
        (100306, "gfx1036"),
        (110000, "gfx1100"),
        (110003, "gfx1103"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (0, None),
        (7, None),
        (91600, None),
        (90016, None),
        (2**64 - 1, None),
    ]
)
def test_target_versions(version: int, arch: str | None) -> None:
    assert decode_gfx_target_version(version) == arch


def test_properties_keep_unknown_keys_and_ignore_invalid_values() -> None:
    text = (
        "simd_count 480\nunique_id 18446744073709551615\nfuture 7\ntoo_big 18446744073709551616\nname x\nno\n -1 2 3\n"
    )
    assert properties(text) == {"simd_count": 480, "unique_id": 2**64 - 1, "future": 7}


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted(data: bytes) -> None:
    assert all(0 <= value < 2**64 for value in properties(data.decode("utf-8", "replace")).values())


def test_nodes_are_in_numeric_order_and_other_names_are_ignored(tree) -> None:
    for number in (10, 2, 1):
        tree.node(number, "MI100", drm_render_minor=128 + number)
    tree.write(f"{NODES}/stray", "x").write(f"{NODES}/3x/properties", "simd_count 4\n")
    nodes, closed = read_nodes(Root(tree.top))
    assert [node.number for node in nodes] == [1, 2, 10]
    assert closed == []


def test_an_unreadable_node_is_reported(tree) -> None:
    tree.node(1, "MI100").node(2, "MI100")
    (tree.top / NODES.lstrip("/") / "2/properties").unlink()
    nodes, closed = read_nodes(Root(tree.top))
    assert [node.number for node in nodes] == [1]
    assert closed == [2]


def test_memory_is_the_frame_buffer_only(tree) -> None:
    tree.node(1, "MI100")
    for bank, (heap, size) in enumerate([(1, 30 * 2**30), (2, 2 * 2**30), (0, 5), (4, 65536)]):
        tree.write(f"{NODES}/1/mem_banks/{bank}/properties", f"heap_type {heap}\nsize_in_bytes {size}\n")
    assert read_nodes(Root(tree.top))[0][0].vram == 32 * 2**30


def test_partition_mode_is_found_by_the_pci_address(tree) -> None:
    device = "/sys/bus/pci/devices/0001:83:00.0"
    tree.node(1, "MI300X_CPX", location_id=0x8303, domain=1)
    tree.write(f"{device}/current_compute_partition", "CPX\n").write(f"{device}/current_memory_partition", "NPS4\n")
    assert read_nodes(Root(tree.top))[0][0].partition == "cpx_nps4"


def test_a_pipe_or_a_folder_in_place_of_a_file_is_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    root = Root(tmp_path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert not root.read("/pipe")
    assert root.read("/folder") is None
    assert root.read("/a\0b") is None
    assert root.names("/pipe") == []
