"""The slots of a host, their targets and toolchains; the settings of a worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxr.errors import NoWorkerError, UsageError
from mxr.host_facts import Host, HostTarget, HostToolchain
from mxr_workers.interpreter import Interpreter, InterpreterInfo
from mxr_workers.run_job import provenance_of
from mxr_workers.settings import read_settings
from mxr_workers.slots import find_slots, locked, toolchain_of

INFO = InterpreterInfo("3.11", "2.15.0", "2.15.0.dev+abc", ("gpu", "ref"), (), {})
TOOLS = HostToolchain(rocm="7.2.1", migraphx="2.15.0", migraphx_build="abc")
GPU = HostTarget("gfx942", "+", "-", 304, 8, node=1, unique_id="a" * 16, name="AMD Instinct MI300X")
PART = replace(GPU, num_cu=38, chiplets=1, partition="cpx_nps1")


def test_each_gpu_and_the_reference_target_have_a_slot() -> None:
    other = replace(GPU, node=2, unique_id="b" * 16)
    slots = find_slots(Host((GPU, other), TOOLS), INFO, (), "h")
    assert [slot.name for slot in slots] == ["h/" + "a" * 16, "h/" + "b" * 16, "h/ref"]
    assert [slot.devices for slot in slots] == [(0,), (1,), (None,)]
    assert [slot.kind for slot in slots] == ["gpu", "gpu", "ref"]
    assert slots[0].can.targets == (GPU.choice(),) and slots[0].hardware == (GPU,)


def test_partitions_of_one_gpu_share_a_slot() -> None:
    (slot,) = find_slots(Host((PART, replace(PART, node=2)), TOOLS), INFO, ("gpu",), "h")
    assert slot.can.targets == (PART.choice(),) and slot.devices == (0,)
    lease = SimpleNamespace(job="ab" * 16, attempt=1, target=0, cross=False)
    found = provenance_of(SimpleNamespace(slot=slot, interpreter=SimpleNamespace(way=None)), lease, {})
    assert (found["gpu"], found["partition"]) == ("AMD Instinct MI300X", "cpx_nps1")


def test_a_kind_that_is_excluded_or_missing_has_no_slot() -> None:
    assert [each.kind for each in find_slots(Host((GPU,), TOOLS), INFO, ("ref",), "h")] == ["ref"]
    assert [each.kind for each in find_slots(Host((), TOOLS), INFO, (), "h")] == ["ref"]
    with pytest.raises(NoWorkerError, match="0 GPUs"):
        find_slots(Host((), TOOLS), INFO, ("gpu",), "h")
    with pytest.raises(NoWorkerError):
        find_slots(Host((GPU,), replace(TOOLS, rocm=None)), INFO, ("gpu",), "h")


def test_an_unknown_version_is_an_error_at_the_start() -> None:
    unknown = replace(INFO, migraphx=None)
    assert find_slots(Host((GPU,), TOOLS), unknown, (), "h")[0].can.toolchain.migraphx == "2.15.0"
    with pytest.raises(NoWorkerError, match="version"):
        find_slots(Host((GPU,), replace(TOOLS, migraphx=None)), unknown, (), "h")


def test_a_compile_sees_only_its_own_gpu() -> None:
    other = replace(GPU, node=2, unique_id="b" * 16)
    second = find_slots(Host((GPU, other), TOOLS), INFO, ("gpu",), "h")[1]
    base = Interpreter(Path("/python"), {"PATH": "/bin"})
    assert second.interpreter(base, 0, 2).environ["HIP_VISIBLE_DEVICES"] == "1"
    chosen = replace(base, environ={"HIP_VISIBLE_DEVICES": "4,6"})
    assert second.interpreter(chosen, 0, 2).environ["HIP_VISIBLE_DEVICES"] == "6"
    assert second.interpreter(chosen, 0, 1) is chosen


def test_a_tuning_cache_belongs_to_one_device_and_toolchain(tmp_path: Path) -> None:
    slots = [
        find_slots(Host((gpu,), tools), INFO, (), "h")
        for gpu, tools in ((GPU, TOOLS), (PART, TOOLS), (GPU, replace(TOOLS, rocm="7.2.2")))
    ]
    assert len({each[0].problem_cache(tmp_path, 0) for each in slots}) == 3
    same = find_slots(Host((replace(GPU, node=5, unique_id="c" * 16),), TOOLS), INFO, (), "h")
    assert same[0].problem_cache(tmp_path, 0) == slots[0][0].problem_cache(tmp_path, 0)
    assert slots[0][1].problem_cache(tmp_path, 0) is None


def test_the_version_of_the_module_overrides_that_of_the_host() -> None:
    found = toolchain_of(Host((), TOOLS), replace(INFO, migraphx="2.16.0", build="2.16.0.dev+def"))
    assert (found.migraphx, found.migraphx_build, found.rocm) == ("2.16.0", "def", "7.2.1")
    assert toolchain_of(Host((), TOOLS), INFO) == TOOLS
    assert toolchain_of(Host((), TOOLS), replace(INFO, migraphx=None)) == TOOLS


def test_only_one_process_can_lock_a_slot(tmp_path: Path) -> None:
    with locked(tmp_path / "slot") as first, locked(tmp_path / "slot") as second:
        assert (first, second) == (True, False)
    with locked(tmp_path / "slot") as again:
        assert again


def test_settings_are_read_from_options_and_environment() -> None:
    environ = {"HOME": "/home/x", "MXR_REGISTRY": "http://r:1", "MXR_WORKER_SECONDS": "90", "MXR_WORKER_NAME": "n"}
    found = read_settings(
        environ, {"worker.kinds": ("ref",), "worker.python": "/opt/python", "registry": None, "token": None}
    )
    assert (found.registry.registry, found.name, found.kinds) == ("http://r:1", "n", ("ref",))
    assert (found.limits("default").seconds, found.limits("exhaustive").seconds) == (90.0, 48 * 3600.0)
    assert (found.spool, found.python) == (Path("/home/x/.cache/mxr-worker"), Path("/opt/python"))
    assert found.memory > 1 << 28
    with pytest.raises(UsageError, match="MXR_WORKER_GRACE"):
        read_settings({**environ, "MXR_WORKER_GRACE": "soon"}, {})
