"""What MIGraphX cannot compile is refused before a job is queued, with what would work."""

from __future__ import annotations

from typing import Any

import pytest
from harness.rows import for_each

from mxr.artifact.compile_support import FIRST_WITH_ARCH, LEAST_CUS, check_compilable, least_cus
from mxr.artifact.key import Key
from mxr.artifact.target import ROCM_OF, pair_warnings, refuse_rocm_number, release
from mxr.errors import UsageError
from mxr.request.builder import RequestOptions


def key(arch: str = "gfx908", migraphx: str = "2.15", precision: tuple[str, ...] = (), **more: Any) -> Key:
    fields = {"vendor": "amd", "rocm": "7.2", **more}
    return Key("sha256:" + "0" * 64, "gpu", migraphx, (("x", (1,)),), arch=arch, precision=precision, **fields)


@for_each(
    [
        (key("gfx950"), 64, "gfx950 with 64 CUs: its rocMLIR needs 256", "--env MIGRAPHX_DISABLE_MLIR=1"),
        (key("gfx1103", "2.10"), 6, "gfx1103 with 6 CUs: its rocMLIR needs 48", "Use MIGraphX 2.16, which takes 2."),
        (key("gfx1103", "2.14"), 6, "gfx1103 with 6 CUs: its rocMLIR needs 12", "Use MIGraphX 2.16, which takes 2."),
        (key("gfx942", "2.14"), 38, "gfx942 with 38 CUs: its rocMLIR needs 80", "Use MIGraphX 2.16, which takes 20."),
        (key("gfx908"), 60, "gfx908 with 60 CUs: its rocMLIR needs 120", "Partitions"),
        (key("gfx950", "2.10"), None, "2.10 cannot compile for gfx950", "Use MIGraphX 2.13 or newer"),
        (key("gfx1201", "2.10"), None, "2.10 cannot compile for gfx1201", "Use MIGraphX 2.11 or newer"),
        (key("gfx90a", "2.11", ("bf16",)), None, "2.11 cannot quantize to bf16", "Use MIGraphX 2.12 or newer"),
        (key("gfx942", "2.10", ("fp8",)), None, "2.10 cannot quantize to fp8", "another precision"),
        (key("gfx908", precision=("fp8",)), None, "fp8 does not run on gfx908", "gfx94x, gfx950 and gfx12"),
    ]
)
def test_what_cannot_be_compiled(asked: Key, num_cu: int | None, said: str, helps: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        check_compilable(asked, num_cu)
    assert helps in caught.value.hint


@for_each(
    [
        (key("gfx950"), 256),
        (key("gfx950"), None),
        (key("gfx950", "2.19"), 64),
        (key("gfx1103", "2.16"), 6),
        (key("gfx1103", "2.15"), 6),
        (key("gfx1103", "2.14", env=(("MIGRAPHX_DISABLE_MLIR", "1"),)), 6),
        (key("gfx1100"), 48),
        (key("gfx1030", "2.15"), 20),
        (key("gfx90a", "2.12", ("bf16",)), 104),
        (key("gfx906", "4.1", ("bf16",), vendor="hygon", rocm="25.04"), 4),
        (key("gfx11-generic", "2.10"), 2),
    ]
)
def test_what_can_be_compiled_or_is_unknown(asked: Key, num_cu: int | None) -> None:
    check_compilable(asked, num_cu)


def test_the_reference_target_has_no_cus() -> None:
    check_compilable(Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (1,)),), precision=("fp16",)), None)


def test_the_tables_are_whole() -> None:
    """Each row has a source; no two rows hold for one arch and release; releases exist."""
    for row in LEAST_CUS:
        assert row.source and row.count > 0 and release(row.first) <= release(row.last)
        assert {row.first, row.last} <= {*ROCM_OF}
        rows = [each for each in LEAST_CUS if each.prefix == row.prefix]
        assert sum(release(each.first) <= release(row.first) <= release(each.last) for each in rows) == 1
    assert {*FIRST_WITH_ARCH.values()} <= {*ROCM_OF}
    assert least_cus("gfx1103", "2.9") is None and least_cus("gfx900", "2.15") is None


def test_releases_that_belong_together() -> None:
    assert pair_warnings("2.15", "7.2") == pair_warnings("2.99", "7.2") == pair_warnings("2.15", None) == ()
    (warning,) = pair_warnings("2.15", "6.2")
    assert "MIGraphX 2.15 with ROCm 7.2" in warning and "ROCm 6.2 has MIGraphX 2.10" in warning
    (warning,) = pair_warnings("2.15", "6.9")
    assert "has MIGraphX" not in warning


@pytest.mark.parametrize("version", ["7.2.3", "7.2", "6.4.4", "10.1.0", "10.2"])
def test_the_number_of_a_package_is_no_version_of_migraphx(version: str) -> None:
    """Arch Linux and Nix number their package of MIGraphX like ROCm."""
    with pytest.raises(UsageError, match="is a version of ROCm, not of MIGraphX") as error:
        RequestOptions(migraphx=version)
    assert "migraphx-driver --version" in error.value.hint
    RequestOptions(migraphx=version, vendor="hygon")


@pytest.mark.parametrize("version", ["2.15", "2.19.0", "2.16.0.dev1", "4.0"])
def test_other_versions_of_migraphx_are_taken(version: str) -> None:
    refuse_rocm_number(version)


def test_each_release_belongs_to_one_rocm() -> None:
    assert (ROCM_OF["2.18"], ROCM_OF["2.19"]) == ("10.1", "10.2")
    assert "ROCm 10.1" in pair_warnings("2.18", "10.2")[0] and pair_warnings("2.19", "10.2") == ()
