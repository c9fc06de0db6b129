"""The parts of a compile target: archs and their features, precisions, releases of MIGraphX and ROCm, input shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mxr.errors import UsageError
from mxr.facts import KINDS as KINDS
from mxr.facts import TUNINGS as TUNINGS
from mxr.facts import VENDORS as VENDORS
from mxr.facts import stated
from mxr.util.codec import refuse
from mxr.util.frozen import dataclass

from .limits import MAX_OPTIMALS, check_count

USERLANDS = {"amd": "ROCm", "hygon": "DTK"}
"""What each vendor calls the software that MIGraphX comes with; the field `rocm` of a key has its version."""

PRECISIONS = ("fp16", "bf16", "int8", "fp8", "int4w")
CALIBRATED = ("int8", "fp8")
"""The precisions whose scales MIGraphX derives from samples. Source: MIGraphX, src/py/migraphx_py.cpp."""

ALLOWED_TUNINGS = ("cross", "eager")
"""Tunings that serve only a request that allows them: faster to compile, and slower to run."""
FEATURES = ("sramecc", "xnack")

BASE_ARCH = re.compile(r"gfx[1-9][0-9]?[0-9a-f]{2}(-strict)?")
"""`gfx1250-strict` is the first revision of gfx1250, on which code for the later one does not run.

Source: ROCm/rocm-systems pull 11725; rocm-bootstrap 0.3.0, the table of targets.
"""

GENERIC_ARCH = re.compile(r"gfx[1-9][0-9]?(-[0-9])?-generic")

SRAMECC = frozenset({"gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx9-4-generic"})
"""Archs with an sramecc setting in their code objects. Source: LLVM, AMDGPUUsage, "AMDGPU Processors"."""

XNACK = SRAMECC | frozenset(
    {"gfx801", "gfx810", "gfx900", "gfx902", "gfx904", "gfx909", "gfx90c"}
    | {"gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx9-generic", "gfx10-1-generic"}
)
"""Archs with an xnack setting in their code objects. Source: LLVM, AMDGPUUsage, "AMDGPU Processors"."""

ALWAYS_XNACK = frozenset({"gfx1250", "gfx1251", "gfx1250-strict"})
"""Archs that always retry page faults: `xnack+` in a name says nothing, and their code objects have no setting.

Source: llvm/llvm-project pull 166754; AMD, hipBLAS, "Supported GPU targets" (gfx1250:xnack+).
"""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": tuple(f"gfx{n}" for n in (1100, 1101, 1102, 1103, 1150, 1151, 1152, 1153)),
    "gfx12-generic": ("gfx1200", "gfx1201"),
    "gfx12-5-generic": ("gfx1250", "gfx1251"),
}
"""The archs that run programs for each generic arch. Source: LLVM, AMDGPUUsage, "AMDGPU Generic Processors"."""

FAMILY_OF: Mapping[str, str] = {arch: family for family, members in FAMILIES.items() for arch in members}


def capable(arch: str, feature: str) -> bool:
    """Return whether programs for `arch` can be built for one setting of `feature` (sramecc or xnack)."""
    return arch in (SRAMECC if feature == "sramecc" else XNACK)


PRODUCTS = {
    "gfx906": "MI50, MI60, Radeon VII",
    "gfx908": "MI100",
    "gfx90a": "MI210, MI250, MI250X",
    "gfx942": "MI300A, MI300X, MI308X, MI325X",
    "gfx950": "MI350P, MI350X, MI355X",
    "gfx1030": "RX 6800, RX 6800 XT, RX 6900 XT, RX 6950 XT, Pro W6800, Pro V620",
    "gfx1100": "RX 7900 XTX, RX 7900 XT, RX 7900 GRE, Pro W7900, Pro W7800",
    "gfx1101": "RX 7800 XT, RX 7700 XT, Pro W7700",
    "gfx1102": "RX 7600, RX 7600 XT, Pro W7600, Pro W7500",
    "gfx1103": "780M",
    "gfx1150": "890M",
    "gfx1151": "8060S",
    "gfx1200": "RX 9060 XT",
    "gfx1201": "RX 9070, RX 9070 XT, R9700",
    "gfx926": "K100",
    "gfx928": "K100 AI",
    "gfx936": "BW1000",
}
"""The products of archs. Source: rocm.docs.amd.com, "GPU hardware specifications"; Hygon's documentation of DTK."""


def _arch_hint(text: str) -> str:
    """What to write instead of the name of a product, or of something like it."""
    import difflib

    def plain(name: str) -> str:
        return re.sub(r"amd|hygon|instinct|radeon|pro|graphics|rx|[^a-z0-9]", "", name.lower())

    known = {plain(name): (name.strip(), arch) for arch, row in PRODUCTS.items() for name in row.split(",")}
    written = plain(text)
    names = [written] if written in known else difflib.get_close_matches(written, known, 1, 0.8)
    if not names:
        return "Write it as gfx908, or gfx90a:sramecc+:xnack-."
    name, arch = known[names[0]]
    said = f"{name} is" if names == [written] else f"Did you mean {name}? It is"
    return f"{said} {arch}: {stated('arch', arch)}."


@dataclass(frozen=True, slots=True)
class GfxArch:
    """A base arch with its features: `gfx90a:sramecc+:xnack-`. A feature that is not given is None (open, or any)."""

    base: str
    sramecc: str | None = None
    xnack: str | None = None

    @classmethod
    def parse(cls, text: str) -> GfxArch:
        """Parse `gfx908`, `gfx90a:sramecc+:xnack-` or `gfx11-generic`. Raises `UsageError`."""
        base, *rest = text.strip().split(":")
        if not (BASE_ARCH.fullmatch(base) or GENERIC_ARCH.fullmatch(base)):
            raise UsageError(f"{text!r} is not a GPU arch.", hint=_arch_hint(text))
        found: dict[str, str] = {}
        for part in rest:
            name, sign = part[:-1], part[-1:]
            if name not in FEATURES or sign not in ("+", "-") or name in found:
                raise UsageError(
                    f"{part!r} in {text!r} is not a feature setting.",
                    hint="Write sramecc+, sramecc-, xnack+ or xnack-, each feature once.",
                )
            if name == "xnack" and sign == "+" and base in ALWAYS_XNACK:
                continue
            if not capable(base, name):
                raise UsageError(f"{base} has no {name} setting.", hint=f"Omit it: {stated('arch', base)}.")
            found[name] = sign
        return cls(base, found.get("sramecc"), found.get("xnack"))

    @classmethod
    def of(cls, base: str | None, features: Any) -> GfxArch:
        """Return an arch with the features that attributes, constraints or a GPU state."""
        signs = (sign if sign in ("+", "-") else None for sign in (getattr(features, name) for name in FEATURES))
        return cls(base or "", *signs)

    def __str__(self) -> str:
        return self.base + "".join(f":{name}{sign}" for name in FEATURES if (sign := getattr(self, name)) is not None)


@dataclass(frozen=True, slots=True)
class DynamicDim:
    """A dim with any size from `least` to `most`. `optimals` are the sizes for which the program is tuned."""

    least: int
    most: int
    optimals: tuple[int, ...] = ()


Dim = int | DynamicDim
Shape = tuple[Dim, ...]
Inputs = tuple[tuple[str, Shape], ...]


def userland(vendor: str | None) -> str:
    """Return the name of a vendor's ROCm."""
    return USERLANDS.get(vendor or "amd", "ROCm")


def dim_from_json(value: object, where: str, place: int = 0) -> Dim:
    """Return the dim for an integer, or for `[min,max,[optimals]]`. A range of one size becomes that size.

    `place` is the position in the shape. Only a dim after the first may be 0: the past of a language model is empty at
    its first step, but no batch is. Raises `UsageError`.
    """
    if type(value) is int:
        return size_of(value, where, least=0 if place else 1)
    if not (isinstance(value, list) and len(value) == 3 and isinstance(value[2], list)):
        raise refuse(where, "a dim such as 4 or [1,8,[1,4]]", value)
    check_count(value[2], MAX_OPTIMALS, where, "optimal sizes")
    least, most = size_of(value[0], where), size_of(value[1], where)
    optimals = tuple(sorted({size_of(each, where) for each in value[2]}))
    if least > most or any(not least <= optimal <= most for optimal in optimals):
        raise refuse(where, "min <= optimals <= max", value)
    return least if least == most else DynamicDim(least, most, optimals)


def size_of(value: object, where: str, *, least: int = 1) -> int:
    """Return `value` if it is a valid size: an integer from `least` to 2^31 - 1. Raises `UsageError`."""
    if type(value) is not int or not least <= value < 2**31:
        raise refuse(where, f"a size from {least} to 2147483647", value)
    return value


def dim_to_json(dim: Dim) -> int | list[object]:
    """Return the JSON form of a dim."""
    return dim if isinstance(dim, int) else [dim.least, dim.most, list(dim.optimals)]


def show_dims(shape: Shape) -> str:
    """Return a shape in the form of the command line: `1,3,224,224`, `1..8@1/4/8,3`."""
    return ",".join(_show_dim(dim) for dim in shape)


def _show_dim(dim: Dim) -> str:
    if isinstance(dim, int):
        return str(dim)
    optimals = "@" + "/".join(map(str, dim.optimals)) if dim.optimals else ""
    return f"{dim.least}..{dim.most}{optimals}"


def parse_input(text: str) -> tuple[str, Shape]:
    """Parse `NAME=1,3,224,224`. A dynamic dim is `1..8@1/4/8`, a scalar is `NAME=`. Raises `UsageError`."""
    name, equals, dims = text.rpartition("=")
    if not equals or not name:
        raise UsageError(
            f"{text!r} is not an input shape.",
            hint=f"Write {stated('inputs', 'NAME=1,3,224,224')} (a dynamic dim is 1..8@1/4/8).",
        )
    parts = dims.split(",") if dims.strip() else ()
    return name, tuple(_parse_dim(part.strip(), text, place) for place, part in enumerate(parts))


def _parse_dim(part: str, text: str, place: int) -> Dim:
    found = re.fullmatch(r"(\d{1,10})(?:\.\.(\d{1,10})(?:@(\d{1,10}(?:/\d{1,10})*))?)?", part, re.ASCII)
    if not found:
        raise UsageError(f"{part!r} in {text!r} is not a dim.", hint="Write 4, or 1..8@1/4/8 for a dynamic dim.")
    least, most, optimals = found.groups()
    if most is None:
        return dim_from_json(int(least), text, place)
    return dim_from_json([int(least), int(most), [int(each) for each in (optimals or "").split("/") if each]], text)


def parse_precision(text: str) -> tuple[str, ...]:
    """Parse `fp32` (no reduced precision) or precisions joined by `+` in the order applied. Raises `UsageError`."""
    words = tuple(text.strip().split("+"))
    if words == ("fp32",):
        return ()
    if len(set(words)) != len(words) or any(word not in PRECISIONS for word in words):
        known = " ".join(PRECISIONS)
        raise UsageError(
            f"{text!r} is not a precision.", hint=f"Write fp32, or one or more of {known}, joined by + (int8+fp16)."
        )
    return words


def show_precision(words: tuple[str, ...]) -> str:
    """Return what `parse_precision` reads."""
    return "+".join(words) or "fp32"


def split_version(text: str, name: str, *, zeros: bool = False) -> tuple[str, str | None]:
    """Return `MAJOR.MINOR`, and the full version if `text` has more parts: `7.2.1` gives `("7.2", "7.2.1")`.

    `name` is the program in errors. `zeros` allows leading zeros, as in Hygon's DTK 25.04. Raises `UsageError`.
    """
    found = re.fullmatch(r"(\d{1,6})\.(\d{1,6})(\.[0-9A-Za-z.+~-]{1,60})?", text.strip(), re.ASCII)
    parts = found.groups() if found else ()
    if not parts or (not zeros and any(len(part) > 1 and part[0] == "0" for part in parts[:2])):
        hint = f"Write it as {stated(name, '7.2')} or {stated(name, '7.2.1')}."
        raise UsageError(f"{text!r} is not a version of {name}.", hint=hint)
    short = f"{parts[0]}.{parts[1]}"
    return short, short + parts[2] if parts[2] else None


ROCM_OF: Mapping[str, str] = {
    **{f"2.{minor}": f"5.{minor}" for minor in range(8)},
    **{f"2.{minor}": f"6.{minor - 8}" for minor in range(8, 13)},
    **{f"2.{minor}": f"7.{minor - 13}" for minor in range(13, 16)},
    "2.16": "7.14",
    "2.17": "10.0",
    "2.18": "10.1",
    "2.19": "10.2",
}
"""The ROCm release (MAJOR.MINOR) that ships each MIGraphX version (MAJOR.MINOR).

Source: MIGraphX's CMakeLists.txt at the tags rocm-5.0.0 to rocm-7.2.4; from 2.16, AMD's installation pages of MIGraphX
and ONNX Runtime for ROCm 7.14, 10.0, 10.1 and 10.2. All patch releases of one ROCm minor release write the same
version, so the patch release is unknown."""


def release(version: str) -> tuple[int, ...]:
    """Return MAJOR.MINOR of a version as numbers, for comparisons."""
    return tuple(int(part) for part in version.split(".")[:2])


def refuse_rocm_number(migraphx: str) -> None:
    """Raise `UsageError` for a version of AMD's MIGraphX that is a number of ROCm.

    Some distributions number their package of MIGraphX like ROCm. Source: Arch Linux, package migraphx 7.2.3-2;
    nixpkgs.
    """
    majors = {rocm.partition(".")[0] for rocm in ROCM_OF.values()} - {"5"}
    if migraphx.strip().partition(".")[0] in majors:
        raise UsageError(
            f"{migraphx.strip()} is a version of ROCm, not of MIGraphX, which counts 2.15, 2.16 and so on. Some "
            "distributions number their package of MIGraphX like ROCm.",
            hint=f"Ask MIGraphX itself (`migraphx-driver --version`), and give that version with {stated('migraphx')}.",
        )


def pair_warnings(migraphx: str | None, rocm: str | None) -> tuple[str, ...]:
    """Return a sentence if AMD ships this MIGraphX (MAJOR.MINOR) with another ROCm (MAJOR.MINOR) than `rocm`.

    A MIGraphX that was built from source can have any ROCm below it, so this is no contradiction.
    """
    shipped = ROCM_OF.get(migraphx or "")
    if rocm is None or shipped is None or shipped == rocm:
        return ()
    other = next((version for version, of in ROCM_OF.items() if of == rocm), None)
    with_rocm = f", and ROCm {rocm} has MIGraphX {other}" if other else ""
    return (
        f"AMD ships MIGraphX {migraphx} with ROCm {shipped}{with_rocm}: check both versions, unless this MIGraphX was "
        "built from source",
    )
