"""The GPUs of AMD that MIGraphX compiles for: CUs and chiplets as it counts them, for a cross-compile without the GPU.

`num_cu` is HIP's `multiProcessorCount`: on RDNA work-group processors, each of two CUs. Not partitioned. Sources: AMD,
"GPU specifications" (rocm.docs.amd.com/en/latest/reference/gpu-specs.html); chiplets of MI308X: ROCm/rocMLIR pull 2151.
"""

from __future__ import annotations

from collections.abc import Iterable

from mxr.util.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """Products with one arch and equal counts."""

    names: str
    arch: str
    num_cu: int
    chiplets: int = 1


PRODUCTS = (
    Product("MI100", "gfx908", 120),
    Product("MI210 and each half of an MI250", "gfx90a", 104),
    Product("each half of an MI250X", "gfx90a", 110),
    Product("MI300X and MI325X", "gfx942", 304, 8),
    Product("MI300A", "gfx942", 228, 6),
    Product("MI308X", "gfx942", 80, 4),
    Product("MI350X and MI355X", "gfx950", 256, 8),
    Product("RX 6900 XT and RX 6950 XT", "gfx1030", 40),
    Product("RX 6800 XT", "gfx1030", 36),
    Product("RX 6800 and PRO W6800", "gfx1030", 30),
    Product("RX 7900 XTX and PRO W7900", "gfx1100", 48),
    Product("RX 7900 XT", "gfx1100", 42),
    Product("RX 7900 GRE", "gfx1100", 40),
    Product("PRO W7800", "gfx1100", 35),
    Product("RX 7800 XT", "gfx1101", 30),
    Product("RX 7700 XT", "gfx1101", 27),
    Product("PRO W7700", "gfx1101", 24),
    Product("RX 7600", "gfx1102", 16),
    Product("RX 9060 XT", "gfx1200", 16),
    Product("RX 9070 XT and AI PRO R9700", "gfx1201", 32),
    Product("RX 9070", "gfx1201", 28),
)


def products_of(arch: str | None) -> tuple[Product, ...]:
    """Return the products with this arch, the largest first."""
    return tuple(each for each in PRODUCTS if each.arch == arch)


def only_counts(
    known: Iterable[tuple[int | None, int | None]], num_cu: int | None, chiplets: int | None
) -> tuple[int, int] | None:
    """Return the CUs and chiplets of those that agree with what is stated, if all that do are equal."""
    found = {
        (cus, chips)
        for cus, chips in known
        if cus is not None and chips is not None and num_cu in (None, cus) and chiplets in (None, chips)
    }
    return found.pop() if len(found) == 1 else None


def described(arch: str | None) -> str:
    """Return the counts of each product with this arch, in a sentence; empty for an unknown arch."""
    found = products_of(arch)
    rows = (f"{each.names}: {each.num_cu} and {each.chiplets}" for each in found)
    return f"CUs and chiplets of {arch}: {'; '.join(rows)}." if found else ""
