"""The supervisor process between a worker and its compile child: it enforces limits and leaves no process behind.

    python -I -S supervisor.py  < one line of JSON, then a pipe that stays open  > one line of JSON: the result

A compile starts processes that may leave its process group and session. The supervisor is therefore their subreaper
(the kernel makes it the parent of orphaned descendants) and finds all of them by walking /proc from its own process. It
starts one child in a new session and watches the clock and the memory of the whole process tree. When the child exits,
a limit is reached, or standard input ends (the worker closed it, or died), it kills every remaining process. If the
supervisor itself is killed, the kernel kills the child (PR_SET_PDEATHSIG) and the worker kills the rest. This is a
process of its own because running code between fork and exec is unsafe in a worker that has threads.

Memory is measured, not limited by the kernel. RLIMIT_AS and RLIMIT_DATA count address space, of which GPU runtimes
reserve terabytes, and exceeding them raises bad_alloc in some thread, which looks like an error of the model. A cgroup
would be the right means, but containers rarely may create one. Only anonymous and shared memory count, because mapped
files are not exclusive to this process tree. The child is also the first choice of the kernel's out-of-memory killer.

The space of the disk is measured as well: that of the child's folder, and of the files that it has open and removed. A
child that hides others from this process is ended, as all are, when nearly nothing of the disk is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import stat
import time
from io import FileIO
from pathlib import Path
from typing import Any

PROC = Path("/proc")
MEASURE_INTERVAL = 0.1
"""Seconds between two memory measurements; longer on hosts where walking /proc is slow."""
MAX_PROCESSES = 1_000
"""Processes of one compile: compilers of kernels run one for each core."""
MAX_FILES = 100_000
"""Files and folders of one compile. More would take long to count."""
MAX_DEPTH = 64
"""Folders of one compile within each other."""
LEAST_FREE = 256 << 20
"""Bytes of a disk, or a twentieth of a small one, below which no compile goes on."""
KILL_TIMEOUT = 10.0
"""Seconds after which a killed process counts as stuck: a process that waits in a driver for a hung GPU cannot be
killed."""

SIGNALLED = 128
"""bubblewrap ends with this and the number of the signal that ended its child. Source: bwrap(1)."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
"""Source: Linux, include/uapi/linux/prctl.h."""


class Supervisor:
    """Runs one child and tracks all of its descendants."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.started = time.monotonic()
        self.child = 0
        self.status: int | None = None
        self.peak = self.most = 0
        self.peak_vram: int | None = None
        self.folder = os.open(request["folder"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.disk: float = 0
        self.disk_limit = request["disk"] or free_of(self.folder)[0] * 9 // 10
        self.initial_oom_kills = oom_kills()

    def start(self) -> None:
        """Fork the child, which executes the program."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # No process of this user looks into it: the child has the same user.
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        supervisor = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            try:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                # Its files in /proc are its user's again, as those of every program after exec.
                libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
                if os.getppid() == supervisor:
                    execute(self.request)
            except BaseException as error:
                os.write(2, f"cannot start {self.request['argv'][0]}: {error}\n".encode())
            finally:
                os._exit(127)

    def watch(self) -> str:
        """Wait until the child exits or must end. Returns why it must."""
        pause, handles = MEASURE_INTERVAL, [0, *exit_handle(self.child)]
        while True:
            if 0 in select.select(handles, [], [], pause)[0] and not os.read(0, 4096):
                return "stopped"
            self.reap()
            if self.status is not None:
                return "exited"
            before = time.monotonic()
            self.measure()
            pause = max(MEASURE_INTERVAL, 10 * (time.monotonic() - before))
            if self.peak > self.request["memory"]:
                return "memory"
            if self.most > MAX_PROCESSES:
                return "processes"
            if self.disk > self.disk_limit:
                return "disk"
            free, whole = free_of(self.folder)
            if free < min(LEAST_FREE, whole // 20):
                return "full"
            if before - self.started > self.request["seconds"]:
                return "deadline"

    def measure(self) -> None:
        """Update the peaks with the current memory of the process tree."""
        tree = descendants(os.getpid())
        self.most = max(self.most, len(tree))
        self.peak = max(self.peak, sum(map(memory_of, tree)))
        self.disk = disk_of(self.folder) + removed_of(tree, os.fstat(self.folder).st_dev)
        vram = [size for size in map(vram_of, tree) if size is not None]
        if vram:
            self.peak_vram = max(self.peak_vram or 0, sum(vram))

    def reap(self) -> None:
        """Reap exited processes: the child, and orphans that the kernel gave to this process."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self.status = status
                    # A short-lived child may exit between two measurements; the kernel recorded its peak.
                    self.peak = max(self.peak, usage.ru_maxrss * 1024)

    def kill_all(self) -> list[int]:
        """Kill every remaining descendant. Returns those that could not be killed."""
        deadline = time.monotonic() + KILL_TIMEOUT
        while True:
            self.reap()
            remaining = descendants(os.getpid())
            if not remaining or time.monotonic() > deadline:
                return remaining
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def result(self, why: str, stuck: list[int]) -> dict[str, Any]:
        """How the child ended, as JSON."""
        status = self.status
        code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        if code is not None and SIGNALLED < code <= SIGNALLED + signal.NSIG and self.request["namespaces"]:
            number = code - SIGNALLED
            code = None
        return {
            "why": why,
            "code": code,
            "signal": number,
            "seconds": round(time.monotonic() - self.started, 3),
            "peak_memory": self.peak,
            "peak_vram": self.peak_vram,
            "oom_kills": oom_kills() - self.initial_oom_kills,
            "stuck": stuck,
        }


def execute(request: dict[str, Any]) -> None:
    """Execute the requested program in its own session and folder, with the given environment and no core file."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    source = os.open(request["stdin"], os.O_RDONLY)
    os.dup2(source, 0)
    os.dup2(2, 1)
    os.chdir(request["folder"])
    os.umask(0o077)
    if "walls" in request:
        walls_of(request).close_walls(request["walls"]["policy"])
    os.execve(request["argv"][0], request["argv"], request["environment"])


def walls_of(request: dict[str, Any]) -> Any:
    """The module `mxr.sandbox.walls`, which this interpreter without packages loads by its path."""
    spec = importlib.util.spec_from_file_location("walls", request["walls"]["file"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exit_handle(pid: int) -> list[int]:
    """A descriptor that becomes readable when a process exits, so that no time is lost; empty before Linux 5.3."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def descendants(root: int) -> list[int]:
    """The descendants of `root`, without zombies."""
    children: dict[int, list[int]] = {}
    for pid, parent, state, _ in processes():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def processes() -> list[tuple[int, int, str, int]]:
    """Every process: pid, parent's pid, state, session id."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The program's name is in parentheses and may contain any character.
                rest = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                found.append((int(folder.name), int(rest[1]), rest[0].decode(), int(rest[3])))
    return found


def memory_of(pid: int) -> int:
    """Resident anonymous and shared memory of a process, in bytes."""
    try:
        rows = (PROC / str(pid) / "status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("RssAnon:", "RssShmem:")))


def free_of(folder: int) -> tuple[int, int]:
    """Bytes of the disk of a descriptor: those that are free, and all."""
    row = os.fstatvfs(folder)
    return row.f_bavail * row.f_frsize, row.f_blocks * row.f_frsize


def disk_of(folder: int) -> float:
    """Bytes of the disk that the folder of a descriptor takes; infinite where it has too many files or levels."""
    found, left = 0, MAX_FILES

    def walk(here: int, depth: int) -> None:
        nonlocal found, left
        with os.scandir(here) as entries:
            for entry in entries:
                left -= 1
                if left < 0 or depth > MAX_DEPTH:
                    raise OverflowError
                # The child changes it meanwhile, and must not end this by what it does.
                with contextlib.suppress(OSError):
                    row = os.stat(entry.name, dir_fd=here, follow_symlinks=False)
                    found += row.st_blocks * 512
                    if stat.S_ISDIR(row.st_mode):
                        below = open_folder(entry.name, here)
                        try:
                            walk(below, depth + 1)
                        finally:
                            os.close(below)

    try:
        walk(folder, 1)
    except OverflowError:
        return float("inf")
    return found


def open_folder(name: str, above: int) -> int:
    """Open a folder, also one that a process of this user closed."""
    how = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, how | os.O_RDONLY, dir_fd=above)
    except PermissionError:
        closed = os.open(name, how | os.O_PATH, dir_fd=above)
        try:
            Path(f"/proc/self/fd/{closed}").chmod(0o700)
        finally:
            os.close(closed)
        return os.open(name, how | os.O_RDONLY, dir_fd=above)


def removed_of(tree: list[int], device: int) -> float:
    """Bytes of the files of a disk that these processes have open, and that no folder has; infinite for too many."""
    found, left = {}, MAX_FILES
    for pid in tree:
        with contextlib.suppress(OSError), os.scandir(PROC / str(pid) / "fd") as handles:
            for handle in handles:
                left -= 1
                if left < 0:
                    return float("inf")
                with contextlib.suppress(OSError):
                    row = handle.stat()
                    if stat.S_ISREG(row.st_mode) and row.st_nlink == 0 and row.st_dev == device:
                        found[row.st_ino] = row.st_blocks * 512
    return sum(found.values())


def vram_of(pid: int, root: Path = Path("/sys/class/kfd/kfd/proc")) -> int | None:
    """GPU memory of a process in bytes, as amdkfd reports it; None where it does not (as in most containers).

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c: one file vram_<gpu id> for each GPU.
    """
    try:
        sizes = [int(path.read_text()) for path in (root / str(pid)).glob("vram_*")]
    except (OSError, ValueError):
        return None
    return sum(sizes) if sizes else None


def oom_kills() -> int:
    """The number of processes that the kernel has killed in this cgroup because memory ran out.

    Source: Linux, cgroup-v2, memory.events.
    """
    try:
        group = (PROC / "self/cgroup").read_text().partition("0::/")[2].split("\n")[0]
        rows = (Path("/sys/fs/cgroup") / group / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) for row in rows if row.startswith("oom_kill "))


def main() -> None:
    """Run the request that is on standard input."""
    with FileIO(0, closefd=False) as stdin:
        # Unbuffered, so that `select` sees whatever follows the first line.
        supervisor = Supervisor(json.loads(stdin.readline()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.close(0))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    supervisor.start()
    try:
        why = supervisor.watch()
    except (OSError, ValueError):
        why = "stopped"
    stuck = supervisor.kill_all()
    write_result(supervisor.result(why, stuck))


def write_result(row: dict[str, Any]) -> None:
    """Write one line to the worker, which may have exited."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    main()
