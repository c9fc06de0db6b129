"""The GPUs that ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES leave visible."""

from __future__ import annotations

from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.host_facts.gpus import hip_visible, rocr_visible, visible

UUIDS = ["c34f000000000001", "c34f000000000002", "18446744073709ab", None]


@for_each(
    [
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("0x2", [2]),
        ("02", [2]),
        ("", []),
        ("-1", []),
        ("4", []),
        ("1,9,0", [1]),
        ("1,1,0", [1]),
        ("0,x,1", [0]),
        ("GPU-c34f000000000002", [1]),
        ("gpu-C34F000000000002,0", [1, 0]),
        ("GPU-18", [2]),
        ("GPU-c34f", []),
        ("GPU-", []),
        ("GPU-0000000000000000", []),
        ("0,,1", [0]),
        ("0,1,2,3,0", [0, 1, 2, 3]),
    ]
)
def test_rocr(text: str, order: list[int]) -> None:
    assert rocr_visible(text, UUIDS) == order


@for_each(
    [
        ("1,0", [1, 0]),
        ("1,1,0", [1, 0]),
        ("0,-1,1", [0]),
        ("01", []),
        (" 1", []),
        ("", []),
        ("GPU-c34f000000000002", [1]),
        ("GPU-c34f", [0]),
        ("GPU-ffff", []),
        ("9", []),
    ]
)
def test_hip(text: str, order: list[int]) -> None:
    assert hip_visible(text, UUIDS) == order


def test_hip_indexes_count_the_gpus_that_rocr_leaves() -> None:
    assert visible({"ROCR_VISIBLE_DEVICES": "2,0", "HIP_VISIBLE_DEVICES": "0"}, UUIDS) == (
        [2],
        ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
    )


def test_hip_overrides_cuda_even_if_empty() -> None:
    assert visible({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "0"}, UUIDS) == ([], ["HIP_VISIBLE_DEVICES"])
    assert visible({"CUDA_VISIBLE_DEVICES": "3"}, UUIDS) == ([3], ["CUDA_VISIBLE_DEVICES"])
    assert visible({"GPU_DEVICE_ORDINAL": "0"}, UUIDS) == ([0, 1, 2, 3], [])


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 4))
def test_any_text_leaves_each_gpu_at_most_once(below: str, above: str, count: int) -> None:
    order, _ = visible({"ROCR_VISIBLE_DEVICES": below, "HIP_VISIBLE_DEVICES": above}, UUIDS[:count])
    assert len(order) == len(set(order))
    assert all(0 <= index < count for index in order)
