"""Failing compiles in real child processes: how each failure is classified, and that no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import DATA, ROOT

from mxr.errors import UsageError
from mxr_workers import compilation, supervisor
from mxr_workers.compilation import CompileAttemptFailed, CompileTask
from mxr_workers.interpreter import Interpreter, describe_interpreter, probe
from mxr_workers.sandbox import ChildLimits, ChildObserver, kill_strays

from .conftest import GraphCompiler, Target, exited, pids, stop_after
from .graphs import GRAPHS

pytestmark = pytest.mark.timeout(120)

THROWN = (
    "terminate called after throwing an instance of 'migraphx::version_2_15_0::exception'\n"
    "  what():  /src/src/targets/gpu/mlir.cpp:1010: run_backend_pipeline: MLIR backend compilation failed"
)
HANG = "HW Exception by GPU node-1 (Agent handle: 0x5581) reason :GPU Hang"
UNKNOWN = "/src/src/onnx/onnx_parser.cpp:398: parse_graph: Unknown operator: Wibble"


def fail(compiler: GraphCompiler, marks: dict[str, str], **more: object) -> CompileAttemptFailed:
    """The failure of a compile."""
    with pytest.raises(CompileAttemptFailed) as caught:
        compiler.compile(marks=marks, **more)
    return caught.value


@pytest.mark.parametrize(
    ("marks", "kind", "name"),
    [
        ({"double.compile": "crash:SIGSEGV"}, "poison", "crashed"),
        ({"double.compile": "crash:SIGKILL"}, "transient", "killed"),
        ({"double.compile": f"abort:{THROWN}"}, "permanent", "mlir"),
        ({"double.compile": f"refuse:{HANG}"}, "hang", "gpu-hang"),
        ({"double.parse": f"refuse:{UNKNOWN}"}, "permanent", "refused"),
        ({"double.compile": "memory"}, "transient", "host-memory"),
        ({"double.compile": "exit:3"}, "transient", "unknown"),
        ({"double.compile": "exit:0"}, "transient", "no-result"),
        ({"double.save": "truncate"}, "transient", "damaged-program"),
        ({"double.save": "arch:gfx942:sramecc+:xnack-"}, "transient", "other-program"),
        ({"double.save": "arch:gfx90a:sramecc+:xnack+"}, "transient", "other-program"),
        ({"double.load": "crash:SIGSEGV"}, "poison", "crashed"),
        ({"double.load": f"refuse:{UNKNOWN}"}, "transient", "refused"),
        ({"double.run": f"abort:{HANG}"}, "hang", "gpu-hang"),
    ],
    ids=lambda value: "-".join(value.values())[:30] if isinstance(value, dict) else None,
)
def test_a_failure_is_classified(gpu_compiler: GraphCompiler, marks: dict[str, str], kind: str, name: str) -> None:
    """The ways in which a child can end; test_failures.py has the texts and signals."""
    found = fail(gpu_compiler, marks)
    assert (found.failure.kind, found.failure.name) == (kind, name), found.failure
    assert "\n" not in found.failure.message and found.context["kind"] == kind
    assert found.exit == 5


def test_a_hang_ends_at_the_deadline_with_all_its_processes(gpu_compiler: GraphCompiler) -> None:
    found = fail(gpu_compiler, {"double.compile": "hang"}, limits=ChildLimits(seconds=3, memory=2 << 30))
    assert (found.failure.kind, found.failure.name) == ("hang", "deadline")
    numbers = pids(found.log.kept)
    assert len(numbers) == 3
    assert all(exited(pid, 0) for pid in numbers)
    assert found.ending.phase == "compile" and found.ending.seconds >= 3


def test_the_memory_limit_is_for_the_sum_of_all_processes(gpu_compiler: GraphCompiler) -> None:
    found = fail(gpu_compiler, {"double.compile": "eat"}, limits=ChildLimits(seconds=60, memory=300 << 20))
    assert (found.failure.kind, found.failure.name) == ("transient", "memory")
    assert "0.3 GiB" in found.failure.message
    assert 300 << 20 < found.ending.peak_memory < 600 << 20


def test_processes_that_a_successful_compile_leaves_are_killed(gpu_compiler: GraphCompiler) -> None:
    compiled = gpu_compiler.compile(marks={"double.compile": "leave"})
    (pid,) = pids(compiled.log.kept)
    assert exited(pid, 0)


def test_the_worker_can_stop_a_child(gpu_compiler: GraphCompiler) -> None:
    observer, numbers = stop_after(3)
    found = fail(gpu_compiler, {"double.compile": "hang"}, observer=observer)
    assert (found.failure.kind, found.failure.name) == ("transient", "stopped")
    assert len(numbers()) == 3 and all(exited(pid, 0) for pid in numbers())


def test_an_exception_in_an_observer_leaves_no_process(gpu_compiler: GraphCompiler) -> None:
    found: list[int] = []

    def log(data: bytes) -> None:
        found.extend(pids(data))
        if found:
            raise OSError("the registry is gone")

    with pytest.raises(OSError, match="registry"):
        gpu_compiler.compile(marks={"double.compile": "hang"}, observer=ChildObserver(log=log))
    assert found and all(exited(pid, 0) for pid in found)


WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from typing import Any
from mxr_workers.interpreter import Interpreter
from mxr_workers.sandbox import ChildLimits, ChildObserver
import os, json
folder = Path(sys.argv[2])
interpreter = Interpreter(Path(sys.executable), {"PATH": os.environ["PATH"], "PYTHONPATH": sys.argv[3]})
request = json.loads((folder / "request.json").read_text())
def log(data):
    os.write(1, data)
limits = ChildLimits(600, 4 << 30)
interpreter.run("compile", request, folder / "work", limits, observer=ChildObserver(log=log))
"""


def start_worker(compiler: GraphCompiler, folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a worker process with a compile that hangs. Returns it with the pids of what the compile started."""
    model = GRAPHS["gemm"].write(folder, {"double.compile": "hang"})
    task = CompileTask(compiler.target.key(GRAPHS["gemm"]), compiler.target.attributes(), model.name)
    (folder / "request.json").write_text(json.dumps(task.compile_request(folder, folder / "work/p.mxr")))
    home = str(ROOT / "compiler_workers")
    path = compiler.target.interpreter.environ["PYTHONPATH"]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, home, str(folder), path], stdout=subprocess.PIPE, bufsize=0
    )
    numbers: list[int] = []
    assert worker.stdout is not None
    while len(numbers) < 3:
        line = worker.stdout.readline()
        assert line, "the worker exited"
        numbers += pids(line)
    return worker, numbers


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_process_outlives_a_killed_worker(gpu_compiler: GraphCompiler, tmp_path: Path) -> None:
    worker, numbers = start_worker(gpu_compiler, tmp_path)
    (supervisor,) = children(worker.pid)
    worker.kill()
    assert all(exited(pid) for pid in [*numbers, supervisor])
    with worker:
        assert worker.wait() == -signal.SIGKILL


def test_no_process_outlives_a_killed_supervisor(gpu_compiler: GraphCompiler, tmp_path: Path) -> None:
    worker, numbers = start_worker(gpu_compiler, tmp_path)
    (supervisor,) = children(worker.pid)
    os.kill(supervisor, signal.SIGKILL)
    assert all(exited(pid) for pid in numbers)
    with worker:
        assert worker.wait(20) == 0


def test_the_next_worker_kills_what_is_left_after_both_were_killed(gpu_compiler: GraphCompiler, tmp_path: Path) -> None:
    worker, numbers = start_worker(gpu_compiler, tmp_path)
    (supervisor,) = children(worker.pid)
    child = children(supervisor)[0]
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    worker.kill()
    with worker:
        worker.wait()
    assert child in numbers and exited(child), "the kernel kills the child with its supervisor"
    kill_strays(tmp_path / "work")
    assert all(exited(pid) for pid in numbers)
    assert kill_strays(tmp_path / "work") == []


def test_the_placeholder_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "migraphx").mkdir()
    (tmp_path / "migraphx" / "__init__.py").write_text("")
    interpreter = Interpreter(Path(sys.executable), {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(UsageError, match="placeholder") as caught:
        describe_interpreter(interpreter, tmp_path / "describe")
    assert "pip uninstall" in caught.value.hint


def test_a_missing_migraphx_and_a_missing_interpreter_differ(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No module named"):
        describe_interpreter(Interpreter(Path(sys.executable), {}), tmp_path / "describe")
    with pytest.raises(UsageError, match="cannot start"):
        describe_interpreter(Interpreter(Path("/no/such/python"), {}), tmp_path / "describe")


def test_a_probe_reports_a_target_that_does_not_work(gpu: Target, tmp_path: Path) -> None:
    failure = probe(gpu.interpreter, "fpga", tmp_path)
    assert failure is not None and (failure.kind, failure.name) == ("transient", "no-target-library")


def test_the_environment_is_the_allow_list_and_the_key(gpu: Target, tmp_path: Path) -> None:
    allowed = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "ROCM_PATH": "/opt/rocm",
        "HIP_VISIBLE_DEVICES": "0",
        "ROCR_VISIBLE_DEVICES": "1",
        "HSA_XNACK": "0",
        "MIOPEN_FIND_MODE": "2",
        "ROCBLAS_LAYER": "0",
        "HIPBLASLT_LOG_LEVEL": "0",
        "PYTHONPATH": gpu.interpreter.environ["PYTHONPATH"],
    }
    hidden = {"MIGRAPHX_TRACE_COMPILE": "1", "MXR_TOKEN": "secret", "HOME": "/root", "LD_PRELOAD": "", "AWS_KEY": "x"}
    compiler = GraphCompiler(Target(Interpreter(Path(sys.executable), allowed | hidden), "gpu", "2.15"), tmp_path)
    compiled = compiler.compile(marks={"double.compile": "environment"}, env=(("MIGRAPHX_DISABLE_MLIR", "1"),))
    home = str(tmp_path / "work" / "compile")
    rows = [line[4:] for line in compiled.log.kept.decode().splitlines() if line.startswith("env ")]
    found = dict(row.split("=", 1) for row in rows)
    # Python itself sets this one where the locale is C (PEP 538).
    found.pop("LC_CTYPE", None)
    assert found == allowed | {"MIGRAPHX_DISABLE_MLIR": "1", "HOME": home, "TMPDIR": home, "OPENBLAS_NUM_THREADS": "1"}
    assert f"cwd {home}" in compiled.log.kept.decode()
    assert set(compiled.provenance["env"]) == set(allowed) - {"PATH", "LD_LIBRARY_PATH", "ROCM_PATH", "PYTHONPATH"}


def test_a_compile_gets_a_copy_of_the_tuning_cache_and_updates_it_after_its_program_ran(
    gpu_compiler: GraphCompiler, tmp_path: Path
) -> None:
    cache = tmp_path / "caches" / "gfx90a.json"
    environment = {"problem_cache": cache}
    found = fail(gpu_compiler, {"double.compile": "environment", "double.save": "truncate"}, environment=environment)
    assert f"env MIGRAPHX_PROBLEM_CACHE={tmp_path}/work/compile/problems.json" in found.log.kept.decode()
    assert not cache.exists()
    for kernel in ("conv", "gemm"):
        gpu_compiler.compile(marks={"double.compile": f"tune:{kernel}"}, environment=environment)
    assert cache.read_text() == '["conv", "gemm"]'
    fail(gpu_compiler, {"double.compile": "tune:untried", "double.save": "truncate"}, environment=environment)
    fail(gpu_compiler, {"double.parse": "tune:half", "double.compile": "exit:1"}, environment=environment)
    assert cache.read_text() == '["conv", "gemm"]'
    assert {path.name for path in cache.parent.iterdir()} == {cache.name, "lock"}


def test_slots_of_one_device_keep_their_tuning_records_together(gpu_compiler: GraphCompiler, tmp_path: Path) -> None:
    cache = tmp_path / "gfx90a.json"
    device = "gfx90a:sramecc+:xnack-"

    def record(problem: str, solution: str) -> list[object]:
        return [{"name": "gpu::mlir_op", "problem": f"{device} {problem}"}, solution]

    known = [record("conv", "v1"), record("dot", "v1")]
    cache.write_text(json.dumps(known))
    # The compile began before the other slot kept its records.
    made = json.dumps([record("dot", "v2"), record("gemm", "v1")])
    gpu_compiler.compile(marks={"double.compile": f"tune:={made}"}, environment={"problem_cache": cache})
    assert json.loads(cache.read_text()) == [record("conv", "v1"), record("dot", "v2"), record("gemm", "v1")]


@pytest.mark.parametrize(
    "left",
    [
        '=["cut"',
        '=[["conv", null]]',
        '=[["gfx942:xnack- conv", "v1"]]',
        "=null",
        '="text"',
        "=" + "[" * 5_000,
        "->/etc/passwd",
    ],
)
def test_what_is_no_tuning_cache_is_not_kept(gpu_compiler: GraphCompiler, tmp_path: Path, left: str) -> None:
    """A compile writes it: also one that a hostile model made its own."""
    cache = tmp_path / "gfx90a.json"
    cache.write_text("[]")
    gpu_compiler.compile(marks={"double.compile": f"tune:{left}"}, environment={"problem_cache": cache})
    assert cache.read_text() == "[]" and not cache.is_symlink()


def test_a_tuning_cache_has_a_limit(gpu_compiler: GraphCompiler, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(compilation, "MAX_PROBLEMS", 5)
    cache = tmp_path / "gfx90a.json"
    gpu_compiler.compile(marks={"double.compile": "tune:long"}, environment={"problem_cache": cache})
    assert not cache.exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "HARD"])
def test_a_link_in_place_of_a_program_is_refused(gpu_compiler: GraphCompiler, tmp_path: Path, target: str) -> None:
    theirs = tmp_path / "theirs.mxr"
    theirs.write_bytes((DATA / "mxr_real" / "convnet_b4_fp16_ref.mxr").read_bytes())
    how = f"os.symlink({target!r}, 'program.mxr')" if target != "HARD" else f"os.link({str(theirs)!r}, 'program.mxr')"
    code = f"""
import migraphx, os
migraphx.save = lambda *_, **__: {how}
"""
    found = fail(gpu_compiler, {"double.parse": f"exploit:{code}"})
    assert found.failure.name == "damaged-program" and "no regular file" in found.failure.message


def test_a_compile_without_end_of_processes_is_ended(gpu_compiler: GraphCompiler) -> None:
    code = """
import subprocess, time
for _ in range(1_100):
    subprocess.Popen(["/bin/sleep", "600"])
time.sleep(600)
"""
    found = fail(gpu_compiler, {"double.parse": f"exploit:{code}"})
    assert (found.failure.kind, found.failure.name) == ("poison", "processes")
    assert not found.ending.stuck


@pytest.mark.parametrize(
    "code",
    [
        "open('large', 'wb').write(bytes(60 << 20))",
        "for number in range(100_001): open(str(number), 'w').close()",
        "for number in range(70): os.mkdir('deep'); os.chdir('deep')",
        """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
each = min(hard, 10_000)
resource.setrlimit(resource.RLIMIT_NOFILE, (each, hard))
for number in range(100_000 // (each - 50) + 1):
    if os.fork() == 0:
        for number in range(each - 50): os.dup(0)
        time.sleep(600)""",
        "os.mkdir('closed'); open('closed/large', 'wb').write(bytes(60 << 20)); os.chmod('closed', 0)",
    ],
)
def test_a_compile_that_fills_the_disk_is_ended(gpu_compiler: GraphCompiler, code: str) -> None:
    limits = ChildLimits(seconds=60, memory=2 << 30, disk=50 << 20)
    code = f"import os, time\n{code}\ntime.sleep(600)"
    found = fail(gpu_compiler, {"double.parse": f"exploit:{code}"}, limits=limits)
    assert (found.failure.kind, found.failure.name) == ("transient", "disk")
    assert "its space on the disk" in found.failure.message and "worker.disk" in found.failure.message


def test_no_compile_goes_on_on_a_full_disk(gpu_compiler: GraphCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    small = supervisor.__file__, "LEAST_FREE = 256 << 20", "LEAST_FREE = 1 << 62"
    changed = gpu_compiler.folder / "supervisor.py"
    changed.write_text(Path(small[0]).read_text().replace(*small[1:]).replace("whole // 20", "whole"))
    monkeypatch.setattr(supervisor, "__file__", str(changed))
    found = fail(gpu_compiler, {"double.compile": "hang"})
    assert (found.failure.kind, found.failure.name) == ("transient", "worker")
    assert "full" in found.failure.message


def test_a_large_log_keeps_its_beginning_and_end(gpu_compiler: GraphCompiler) -> None:
    log = fail(gpu_compiler, {"double.compile": "noise:24", "double.save": "truncate"}).log
    assert log.size > 24 * 1_000_000
    assert log.kept.splitlines()[1] == b"the first line" and b"the last line\n" in log.kept
    assert b"bytes omitted" in log.kept
    assert len(log.kept) < 4 << 20 | 1 << 10
