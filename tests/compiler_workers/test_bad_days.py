"""Bad days of a compile, with real processes: what dies, what is left (nothing), and what it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from mxr.errors import Usage
from mxr_workers.compilation import CompileTask, Uncompiled
from mxr_workers.interpreter import Interpreter, ask, probe
from mxr_workers.sandbox import ChildLimits, ChildObserver, kill_strays

from .conftest import SECONDS, Bench, Trade, gone, pids, until
from .graphs import GRAPHS

pytestmark = pytest.mark.timeout(120)

POOL = "terminate called recursively\nterminate called after throwing an instance of 'std::system_error'"
THROWN = (
    "terminate called after throwing an instance of 'migraphx::version_2_15_0::exception'\n"
    "  what():  /src/src/targets/gpu/mlir.cpp:1010: run_backend_pipeline: MLIR backend compilation failed"
)
HANG = "HW Exception by GPU node-1 (Agent handle: 0x5581) reason :GPU Hang"
BROKEN = "free(): invalid pointer"
TUNED = "/src/src/targets/gpu/compile_ops.cpp:288: benchmark: No valid tuned compilation for gpu::mlir_op with conv"
VRAM = "/src/src/targets/gpu/hip.cpp:120: allocate_gpu: Memory not available to allocate buffer: 1073741824"
UNKNOWN = "/src/src/onnx/onnx_parser.cpp:398: parse_graph: Unknown operator: Wibble"
ODD = "something that nobody has seen before"


def fail(trade: Trade, marks: dict[str, str], **more: object) -> Uncompiled:
    """The failure of a compile."""
    with pytest.raises(Uncompiled) as caught:
        trade.compile(marks=marks, **more)
    return caught.value


@pytest.mark.parametrize(
    ("marks", "kind", "name"),
    [
        ({"double.compile": "crash:SIGSEGV"}, "poison-suspect", "crashed"),
        ({"double.parse": "crash:SIGBUS"}, "poison-suspect", "crashed"),
        ({"double.compile": "crash:SIGKILL"}, "transient", "killed"),
        ({"double.compile": "crash:SIGTERM"}, "transient", "killed"),
        ({"double.compile": f"abort:{POOL}"}, "permanent", "pool-thread"),
        ({"double.compile": f"abort:{THROWN}"}, "permanent", "mlir"),
        ({"double.compile": f"abort:{BROKEN}"}, "poison-suspect", "aborted"),
        ({"double.compile": f"abort:{HANG}"}, "hang", "gpu-hang"),
        ({"double.compile": f"refuse:{HANG}"}, "hang", "gpu-hang"),
        ({"double.compile": f"refuse:{TUNED}"}, "permanent", "no-tuned-kernel"),
        ({"double.compile": f"refuse:{VRAM}"}, "transient", "gpu-memory"),
        ({"double.parse": f"refuse:{UNKNOWN}"}, "permanent", "refused"),
        ({"double.compile": f"refuse:{ODD}"}, "transient", "unknown"),
        ({"double.compile": "memory"}, "transient", "host-memory"),
        ({"double.compile": "exit:3"}, "transient", "unknown"),
        ({"double.compile": "exit:0"}, "transient", "no-result"),
        ({"double.save": "truncate"}, "transient", "damaged-program"),
        ({"double.save": "arch:gfx942:sramecc+:xnack-"}, "transient", "other-program"),
        ({"double.save": "arch:gfx90a:sramecc+:xnack+"}, "transient", "other-program"),
        ({"double.load": "crash:SIGSEGV"}, "poison-suspect", "crashed"),
        ({"double.load": f"refuse:{UNKNOWN}"}, "transient", "refused"),
        ({"double.run": f"abort:{HANG}"}, "hang", "gpu-hang"),
    ],
    ids=lambda value: "-".join(value.values())[:30] if isinstance(value, dict) else None,
)
def test_what_a_failure_means(trade: Trade, marks: dict[str, str], kind: str, name: str) -> None:
    found = fail(trade, marks)
    assert (found.failure.kind, found.failure.name) == (kind, name), found.failure
    assert "\n" not in found.failure.message and found.detail["kind"] == kind
    assert found.exit == 5


def test_a_hang_ends_at_its_deadline_with_all_that_it_started(trade: Trade) -> None:
    found = fail(trade, {"double.compile": "hang"}, limits=ChildLimits(seconds=4, memory=2 << 30))
    assert (found.failure.kind, found.failure.name) == ("hang", "deadline")
    numbers = pids(found.log.kept)
    assert len(numbers) == 3
    assert all(gone(pid, 0) for pid in numbers)
    assert found.ending.phase == "compile" and 4 <= found.ending.seconds < 20


def test_a_compile_that_eats_memory_is_stopped_at_the_sum_of_its_processes(trade: Trade) -> None:
    found = fail(trade, {"double.compile": "eat"}, limits=ChildLimits(seconds=60, memory=300 << 20))
    assert (found.failure.kind, found.failure.name) == ("transient", "memory")
    assert "0.3 GiB" in found.failure.message
    assert 300 << 20 < found.ending.peak_memory < 600 << 20


def test_what_a_good_compile_leaves_running_is_killed(trade: Trade) -> None:
    made = trade.compile(marks={"double.compile": "leave"})
    (pid,) = pids(made.log.kept)
    assert gone(pid, 0)


def test_a_worker_that_changes_its_mind_stops_it(trade: Trade) -> None:
    watch, numbers = until(3)
    found = fail(trade, {"double.compile": "hang"}, watch=watch)
    assert (found.failure.kind, found.failure.name) == ("transient", "stopped")
    assert len(numbers()) == 3 and all(gone(pid, 0) for pid in numbers())


def test_a_worker_whose_listening_fails_leaves_nothing(trade: Trade) -> None:
    heard: list[int] = []

    def listen(data: bytes) -> None:
        heard.extend(pids(data))
        if heard:
            raise OSError("the registry is gone")

    with pytest.raises(OSError, match="registry"):
        trade.compile(marks={"double.compile": "hang"}, watch=ChildObserver(log=listen))
    assert heard and all(gone(pid, 0) for pid in heard)


WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mxr_workers.interpreter import Interpreter
from mxr_workers.sandbox import ChildLimits, ChildObserver, run_child
import os, json
folder = Path(sys.argv[2])
shop = Interpreter(Path(sys.executable), {"PATH": os.environ["PATH"], "PYTHONPATH": sys.argv[3]})
order = json.loads((folder / "to_do.json").read_text())
def hear(data):
    os.write(1, data)
shop.run("compile", order, folder / "work", ChildLimits(600, 4 << 30), watch=ChildObserver(log=hear))
"""


def start_worker(trade: Trade, tmp_path: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A worker in a process of its own, in the middle of a compile that hangs; the numbers of what it started."""
    model = GRAPHS["gemm"].write(tmp_path, {"double.compile": "hang"})
    order = CompileTask(trade.bench.key(GRAPHS["gemm"]), trade.bench.qualities(), model.name)
    (tmp_path / "to_do.json").write_text(json.dumps(order.to_compile(tmp_path, tmp_path / "work/p.mxr")))
    home = str(ROOT / "compiler_workers")
    path = trade.bench.interpreter.outer["PYTHONPATH"]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, home, str(tmp_path), path], stdout=subprocess.PIPE, bufsize=0
    )
    numbers: list[int] = []
    assert worker.stdout is not None
    while len(numbers) < 3:
        line = worker.stdout.readline()
        assert line, "the worker ended"
        numbers += pids(line)
    return worker, numbers


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_outlives_a_worker_that_is_killed(trade: Trade, tmp_path: Path) -> None:
    worker, numbers = start_worker(trade, tmp_path)
    (guardian,) = children(worker.pid)
    worker.kill()
    assert all(gone(pid) for pid in [*numbers, guardian])
    with worker:
        assert worker.wait() == -signal.SIGKILL


def test_a_killed_guardian_takes_the_rest_along(trade: Trade, tmp_path: Path) -> None:
    worker, numbers = start_worker(trade, tmp_path)
    (guardian,) = children(worker.pid)
    os.kill(guardian, signal.SIGKILL)
    assert all(gone(pid) for pid in numbers)
    with worker:
        assert worker.wait(20) == 0


def test_the_next_worker_sweeps_after_both_were_killed_at_once(trade: Trade, tmp_path: Path) -> None:
    worker, numbers = start_worker(trade, tmp_path)
    (guardian,) = children(worker.pid)
    child = children(guardian)[0]
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    worker.kill()
    with worker:
        worker.wait()
    assert child in numbers and gone(child), "the kernel kills the child with its guardian"
    kill_strays(tmp_path / "work")
    assert all(gone(pid) for pid in numbers)
    assert kill_strays(tmp_path / "work") == []


def test_the_placeholder_package_is_no_migraphx(tmp_path: Path) -> None:
    (tmp_path / "migraphx").mkdir()
    (tmp_path / "migraphx" / "__init__.py").write_text("")
    interpreter = Interpreter(Path(sys.executable), {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(Usage, match="placeholder") as caught:
        ask(interpreter, tmp_path / "about")
    assert "pip uninstall" in caught.value.hint


def test_no_migraphx_and_no_interpreter_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="No module named"):
        ask(Interpreter(Path(sys.executable), {}), tmp_path / "about")
    with pytest.raises(Usage, match="cannot start"):
        ask(Interpreter(Path("/no/such/python"), {}), tmp_path / "about")


def test_a_probe_of_a_broken_target_says_so(double: Bench, tmp_path: Path) -> None:
    failure = probe(double.interpreter, "fpga", tmp_path)
    assert failure is not None and (failure.kind, failure.name) == ("transient", "no-target-library")


def test_the_environment_is_the_allow_list_and_the_key(double: Bench, tmp_path: Path) -> None:
    seen = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "ROCM_PATH": "/opt/rocm",
        "HIP_VISIBLE_DEVICES": "0",
        "ROCR_VISIBLE_DEVICES": "1",
        "HSA_XNACK": "0",
        "MIOPEN_FIND_MODE": "2",
        "ROCBLAS_LAYER": "0",
        "HIPBLASLT_LOG_LEVEL": "0",
        "PYTHONPATH": double.interpreter.outer["PYTHONPATH"],
    }
    hidden = {"MIGRAPHX_TRACE_COMPILE": "1", "MXR_TOKEN": "secret", "HOME": "/root", "LD_PRELOAD": "", "AWS_KEY": "x"}
    trade = Trade(Bench(Interpreter(Path(sys.executable), seen | hidden), "gpu", "2.15"), tmp_path)
    made = trade.compile(marks={"double.compile": "environment"}, env=(("MIGRAPHX_DISABLE_MLIR", "1"),))
    home = str(tmp_path / "work" / "compile")
    rows = [line[4:] for line in made.log.kept.decode().splitlines() if line.startswith("env ")]
    found = dict(row.split("=", 1) for row in rows)
    # Python itself sets this one where the locale is C (PEP 538).
    found.pop("LC_CTYPE", None)
    assert found == seen | {"MIGRAPHX_DISABLE_MLIR": "1", "HOME": home, "TMPDIR": home}
    assert f"cwd {home}" in made.log.kept.decode()
    assert set(made.provenance["env"]) == set(seen) - {"PATH", "LD_LIBRARY_PATH", "ROCM_PATH", "PYTHONPATH"}


def test_a_problem_cache_is_lent_as_a_copy_and_comes_back(trade: Trade, tmp_path: Path) -> None:
    cache = tmp_path / "caches" / "gfx90a.json"
    made = trade.compile(marks={"double.compile": "environment"}, shop={"problem_cache": cache})
    assert f"env MIGRAPHX_PROBLEM_CACHE={tmp_path}/work/compile/problems.json" in made.log.kept.decode()
    assert not cache.exists()
    cache.parent.mkdir()
    cache.write_text("[]")
    trade.compile(marks={"double.compile": "tune:conv"}, shop={"problem_cache": cache})
    assert cache.read_text() == "[]conv"
    fail(trade, {"double.compile": "tune:gemm", "double.save": "truncate"}, shop={"problem_cache": cache})
    fail(trade, {"double.parse": "tune:half", "double.compile": "exit:1"}, shop={"problem_cache": cache})
    assert cache.read_text() == "[]convgemm"
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def test_a_log_keeps_its_ends_and_digests_the_whole(trade: Trade) -> None:
    made = trade.compile(marks={"double.compile": "noise:24"}, limits=SECONDS)
    assert made.log.size > 24 * 1_000_000
    assert made.log.kept.splitlines()[1] == b"the first line" and b"the last line\n" in made.log.kept
    assert b"bytes are left out here" in made.log.kept
    assert len(made.log.kept) < 4 << 20 | 1 << 10
