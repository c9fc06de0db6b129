"""Fake file systems of hosts: folders with the layout of /sys, /dev, /opt and /var on real machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

NODES = "sys/class/kfd/kfd/topology/nodes"

CPU = {"cpu_cores_count": 96, "simd_count": 0, "simd_per_cu": 0, "gfx_target_version": 0, "device_id": 0}
AMD = {"cpu_cores_count": 0, "vendor_id": 4098}
# Values from real kernels. Source of Vega10, MI210, MI300X and MI308X: ROCm/k8s-device-plugin, testdata. The others are
# from public reports.
VEGA10 = AMD | {"simd_count": 256, "simd_per_cu": 4, "device_id": 26720, "wave_front_size": 64, "capability": 8832}
VEGA10 |= {"unique_id": 14073402507705256556, "drm_render_minor": 128}
MI100 = AMD | {"simd_count": 480, "simd_per_cu": 4, "gfx_target_version": 90008, "device_id": 29580, "num_xcc": 1}
MI100 |= {"wave_front_size": 64, "drm_render_minor": 128, "capability": 749970048}
MI210 = AMD | {"simd_count": 416, "simd_per_cu": 4, "gfx_target_version": 90010, "device_id": 29711, "num_xcc": 1}
MI210 |= {"drm_render_minor": 128, "capability": 746037888, "unique_id": 1801979520617338022}
MI300X = AMD | {"simd_count": 1216, "simd_per_cu": 4, "gfx_target_version": 90402, "device_id": 29857, "num_xcc": 8}
MI300X |= {"drm_render_minor": 128, "capability": 2893521536, "unique_id": 2000}
MI300X_CPX = MI300X | {"simd_count": 152, "num_xcc": 1}
MI308X_CPX = MI300X | {"simd_count": 80, "num_xcc": 1, "device_id": 29858, "capability": 746037888}
MI355X = MI300X | {"simd_count": 1024, "gfx_target_version": 90500, "device_id": 30112}
RX7900XTX = AMD | {"simd_count": 192, "simd_per_cu": 2, "gfx_target_version": 110000, "device_id": 29772, "num_xcc": 1}
RX7900XTX |= {"wave_front_size": 32, "capability": 671588992, "drm_render_minor": 128}
RX780M = RX7900XTX | {"simd_count": 24, "gfx_target_version": 110003, "device_id": 0x15BF, "cpu_cores_count": 16}
RX8060S = RX7900XTX | {"simd_count": 80, "gfx_target_version": 110501, "device_id": 5510, "array_count": 4}
R9700 = RX7900XTX | {"simd_count": 128, "gfx_target_version": 120001, "device_id": 30033}
BOARDS = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, dict)}


class Tree:
    """A root folder under construction. Every method returns the tree."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def write(self, path: str, text: str | bytes = "") -> Tree:
        place = self.top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self

    def link(self, path: str, target: str) -> Tree:
        place = self.top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        return self

    def node(self, number: int, board: str, *, device: bool = True, name: str = "", **facts: int | None) -> Tree:
        """Add a node of `board`. `facts` replace values, None removes one. `device` adds its files under /dev."""
        lines = {key: value for key, value in (BOARDS[board] | facts).items() if value is not None}
        self.write(f"{NODES}/{number}/properties", "".join(f"{key} {value}\n" for key, value in lines.items()))
        self.write(f"{NODES}/{number}/name", name + "\n")
        self.write(f"{NODES}/{number}/gpu_id", f"{number * 1111 if board != 'CPU' else 0}\n")
        if device and board != "CPU":
            self.write("dev/kfd").write(f"dev/dri/renderD{lines['drm_render_minor']}")
        return self


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty root folder."""
    return Tree(tmp_path)


@pytest.fixture
def never_run() -> Callable[..., None]:
    """A `run` function that fails the test."""

    def run(words: object, seconds: float) -> None:
        raise AssertionError(f"{words} was run")

    return run
