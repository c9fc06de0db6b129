"""The guardian: a small process between a worker and the child that compiles, which lets nothing outlive the child.

    python -I -S guardian.py  < a line of JSON, then a pipe that stays open  > one line of JSON: how it ended

A compile starts processes of its own, which may leave their group and session. So this process is the subreaper of all
of them (whoever loses its parent becomes its child) and can find each by walking /proc from itself. It starts one
child in a session of its own, watches the memory of the whole tree and the clock, and at the end of the child, at a
limit, or when its standard input ends (the worker let go, or died of whatever) kills all that is left. Should the
guardian itself be killed, the kernel kills the child (PR_SET_PDEATHSIG) and the worker the rest. A
process of its own rather than code between fork and exec: that is unsafe in a worker that has threads.

Memory is watched, not limited by the kernel: RLIMIT_AS and RLIMIT_DATA count address space, of which GPU runtimes
reserve terabytes, and turn the end into a bad_alloc in some thread, which looks like a fault of the model; a cgroup
would be right, but a container may rarely make one. Counted is what only this tree uses: anonymous and shared memory,
not mapped files. And the child is the first that the kernel's own out-of-memory killer takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import time
from io import FileIO
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICK = 0.1
"""Seconds between two looks at the memory; more on a host with so many processes that looking costs time."""
PATIENCE = 10.0
"""Seconds until a killed process counts as stuck: one that waits in a driver for a hung GPU cannot be killed."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Source: Linux, include/uapi/linux/prctl.h."""


class Guardian:
    """One child and all that comes of it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.started = time.monotonic()
        self.child = 0
        self.status: int | None = None
        self.peak = 0
        self.peak_vram: int | None = None
        self.kills = oom_kills()

    def start(self) -> None:
        """Fork the child, which becomes the program."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        guardian = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            try:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == guardian:
                    become(self.order)
            except BaseException as error:
                os.write(2, f"cannot start {self.order['argv'][0]}: {error}\n".encode())
            finally:
                os._exit(127)

    def watch(self) -> str:
        """Until the child ends, or must; why it did: exited, deadline, memory or stopped."""
        pause, handles = TICK, [0, *handle_of(self.child)]
        while True:
            if 0 in select.select(handles, [], [], pause)[0] and not os.read(0, 4096):
                return "stopped"
            self.reap()
            if self.status is not None:
                return "exited"
            before = time.monotonic()
            self.measure()
            pause = max(TICK, 10 * (time.monotonic() - before))
            if self.peak > self.order["memory"]:
                return "memory"
            if before - self.started > self.order["seconds"]:
                return "deadline"

    def measure(self) -> None:
        """Add the memory of the tree, now, to the peaks."""
        tree = descendants(os.getpid())
        self.peak = max(self.peak, sum(map(memory_of, tree)))
        vram = [bytes_ for bytes_ in map(vram_of, tree) if bytes_ is not None]
        if vram:
            self.peak_vram = max(self.peak_vram or 0, sum(vram))

    def reap(self) -> None:
        """Bury whoever is dead: the child, and orphans that became ours."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self.status = status
                    # A short life may fall between two looks, and the kernel has kept its peak.
                    self.peak = max(self.peak, usage.ru_maxrss * 1024)

    def clear(self) -> list[int]:
        """Kill all that is left. Who cannot be killed is returned."""
        until = time.monotonic() + PATIENCE
        while True:
            self.reap()
            left = descendants(os.getpid())
            if not left or time.monotonic() > until:
                return left
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def verdict(self, why: str, stuck: list[int]) -> dict[str, Any]:
        """How it ended, in JSON."""
        status = self.status
        return {
            "why": why,
            "code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "seconds": round(time.monotonic() - self.started, 3),
            "peak_memory": self.peak,
            "peak_vram": self.peak_vram,
            "oom_kills": oom_kills() - self.kills,
            "stuck": stuck,
        }


def become(order: dict[str, Any]) -> None:
    """Turn this process into the program of the order: own session, own folder, given environment, no core file."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    source = os.open(order["stdin"], os.O_RDONLY)
    os.dup2(source, 0)
    os.dup2(2, 1)
    os.chdir(order["folder"])
    os.umask(0o077)
    os.execve(order["argv"][0], order["argv"], order["environment"])


def handle_of(pid: int) -> list[int]:
    """A descriptor that is ready at the end of a process, so that nobody waits for a tick; none before Linux 5.3."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def descendants(root: int) -> list[int]:
    """The processes below `root`, dead ones that nobody buried left out."""
    children: dict[int, list[int]] = {}
    for pid, parent, state, _ in processes():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found, rest = [], [root]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found


def processes() -> list[tuple[int, int, str, int]]:
    """Each process: its number, its parent's, its state, its session's."""
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The program's name stands in brackets and may hold anything.
                rest = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                found.append((int(folder.name), int(rest[1]), rest[0].decode(), int(rest[3])))
    return found


def memory_of(pid: int) -> int:
    """Bytes of anonymous and shared memory that a process has in RAM."""
    try:
        rows = (PROC / str(pid) / "status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("RssAnon:", "RssShmem:")))


def vram_of(pid: int, root: Path = Path("/sys/class/kfd/kfd/proc")) -> int | None:
    """Bytes of GPU memory that a process has, by amdkfd; None where that is not told (in most containers).

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c: one file vram_<gpu id> for each GPU.
    """
    try:
        sizes = [int(path.read_text()) for path in (root / str(pid)).glob("vram_*")]
    except (OSError, ValueError):
        return None
    return sum(sizes) if sizes else None


def oom_kills() -> int:
    """How many processes of our cgroup the kernel has killed for want of memory. Source: Linux, cgroup-v2."""
    try:
        group = (PROC / "self/cgroup").read_text().partition("0::/")[2].split("\n")[0]
        rows = (Path("/sys/fs/cgroup") / group / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(row.split()[1]) for row in rows if row.startswith("oom_kill "))


def main() -> None:
    """Guard the child of the order on standard input."""
    with FileIO(0, closefd=False) as stdin:
        # Unbuffered: what comes after the line must wake the watch.
        guardian = Guardian(json.loads(stdin.readline()))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.close(0))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    guardian.start()
    try:
        why = guardian.watch()
    except (OSError, ValueError):
        why = "stopped"
    stuck = guardian.clear()
    tell(guardian.verdict(why, stuck))


def tell(row: dict[str, Any]) -> None:
    """One line to the worker, who may be gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    main()
