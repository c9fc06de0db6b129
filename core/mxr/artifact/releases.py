"""The releases of MIGraphX and ROCm: how they compare, and which belong together."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.errors import UsageError
from mxr.facts import stated

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
