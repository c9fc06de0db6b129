"""Run one child process in a folder, session and environment of its own, under limits, and leave no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any

from mxr.sandbox import walls as walls_module
from mxr.sandbox.bubblewrap import command_before
from mxr.sandbox.policy import SandboxPolicy

from . import supervisor

HEAD, TAIL = 1 << 20, 3 << 20
"""Bytes kept of the beginning, which shows the context, and of the end, which shows the error."""


class ChildLog:
    """Accepts output of any size and keeps at most `head` + `tail` bytes of it (up to twice `tail` in memory)."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._max_head, self._max_tail = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._digest = sha256()
        self.size = 0
        """Bytes of the whole output."""

    def add(self, data: bytes) -> None:
        """Append output."""
        self.size += len(data)
        self._digest.update(data)
        free = max(0, self._max_head - len(self._head))
        self._head += data[:free]
        self._tail += data[free:]
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]

    @property
    def sha256(self) -> str:
        """The digest of the whole output, including what was dropped."""
        return self._digest.copy().hexdigest()

    @property
    def tail(self) -> bytes:
        """The last bytes, for error classification."""
        missing = max(0, self._max_tail - len(self._tail))
        return bytes(self._head[-missing:] if missing else b"") + bytes(self._tail[-self._max_tail :])

    @property
    def kept(self) -> bytes:
        """The beginning and the end, with a line between them that counts the dropped bytes, if any."""
        tail = bytes(self._tail[-self._max_tail :])
        missing = self.size - len(self._head) - len(tail)
        gap = f"\n[{missing} bytes omitted]\n".encode() if missing else b""
        return bytes(self._head) + gap + tail


STOP_CHECK_INTERVAL = 0.25
"""Seconds between two calls of `ChildObserver.stop`."""
MAX_LINE = 16 << 20
"""The longest line that a child may report, in bytes."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """The most `seconds` that the child may run, and the most bytes of `memory` and `disk` for all its descendants.

    `disk`: of its folder; 0 is nine tenths of what is free at its start.
    """

    seconds: float
    memory: int
    disk: int = 0


@dataclass(frozen=True, slots=True)
class ChildObserver:
    """The worker's callbacks while a child runs: `phase` and `log` receive its output, `stop` says whether to end it.

    They are called in the thread that runs the child and block it: they must return quickly.
    """

    phase: Callable[[str], None] = lambda _: None
    log: Callable[[bytes], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended.

    `why`: `exited` by itself, at its `deadline`, over its limit of `memory`, `processes` or `disk`, on a disk that is
    `full`, `stopped` by the worker, or `lost` together with its supervisor. `result` and `failed` are the last line
    that the child reported, if any. Memory is in bytes; `peak_vram` is None where it is unknown. `oom_kills`: processes
    that the kernel killed in this cgroup meanwhile. `stuck`: processes that could not be killed, as when a GPU hangs.
    """

    why: str
    code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    peak_memory: int = 0
    peak_vram: int | None = None
    oom_kills: int = 0
    stuck: tuple[int, ...] = ()
    result: Mapping[str, Any] | None = None
    failed: Mapping[str, Any] | None = None
    phase: str = "start"
    warnings: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the child completed its request."""
        return self.why == "exited" and self.code == 0 and self.result is not None


@dataclass(slots=True)
class _ChildOutput:
    """What the pipes have delivered so far."""

    observer: ChildObserver
    log: ChildLog
    supervisor_result: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def on_log(self, data: bytes) -> None:
        self.log.add(data)
        self.observer.log(data)

    def on_report(self, row: dict[str, Any]) -> None:
        if isinstance(row.get("warning"), str):
            self.warnings.append(row["warning"])
        self.report |= row
        if isinstance(row.get("phase"), str):
            self.observer.phase(row["phase"])

    def on_supervisor_result(self, row: dict[str, Any]) -> None:
        self.supervisor_result = row


class _JsonLines:
    """Parses JSON lines from a pipe. Drops an incomplete last line, as a child that crashes leaves it."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take, self._rest = take, b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-MAX_LINE:]
        for line in lines:
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    self._take(row)


def run_child(
    argv: list[str],
    request: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
    limits: ChildLimits,
    *,
    log: ChildLog | None = None,
    observer: ChildObserver | None = None,
    walls: SandboxPolicy | None = None,
) -> ChildResult:
    """Run `argv` to its end, with the descriptor of its report pipe as last argument and `request` on standard input.

    `walls`: what the child and all that it starts may read and write; None: what this user may.

    When this returns, or raises what a callback of `observer` raised, no process of the child is left except those in
    `stuck`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stdin = folder / "request.json"
    stdin.write_text(json.dumps(request))
    output = _ChildOutput(observer or ChildObserver(), log if log is not None else ChildLog())
    with contextlib.ExitStack() as stack:
        log_out, log_in = _pipe(stack)
        report_out, report_in = _pipe(stack)
        process = stack.enter_context(_start_supervisor(log_in.fileno(), report_in.fileno()))
        spec = {"argv": [*argv, str(report_in.fileno())], "stdin": str(stdin), "folder": str(folder)}
        limited: dict[str, Any] = {"seconds": limits.seconds, "memory": limits.memory, "disk": limits.disk}
        limited["environment"] = dict(environment)
        limited["namespaces"] = walls is not None and bool(walls.bubblewrap)
        if walls is not None and walls.bubblewrap:
            spec["argv"] = [*command_before(walls, str(folder)), *spec["argv"]]
        elif walls is not None:
            limited["walls"] = {"file": walls_module.__file__, "policy": walls.to_json()}
        log_in.close()
        report_in.close()
        stack.callback(_end_supervisor, process, output, folder)
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(json.dumps(spec | limited).encode() + b"\n")
        _listen(process, {log_out: output.on_log, report_out: _JsonLines(output.on_report)}, output)
    return _child_result(output)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    out, into = os.pipe()
    return stack.enter_context(FileIO(out, "rb")), stack.enter_context(FileIO(into, "wb"))


def _start_supervisor(log: int, report: int) -> subprocess.Popen[bytes]:
    # Without site-packages and environment: it starts faster, and nothing of the host can change its behaviour.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=[report],
        start_new_session=True,
        bufsize=0,
        env={},
    )


def _listen(process: subprocess.Popen[bytes], pipes: dict[Any, Callable[[bytes], None]], output: _ChildOutput) -> None:
    """Read the pipes until the supervisor exits, then what they still contain.

    It does not wait for the end of the pipes: a stuck process could hold them open.
    """
    assert process.stdin is not None and process.stdout is not None
    with selectors.DefaultSelector() as selector:
        for pipe, take in pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, take)
        selector.register(process.stdout, selectors.EVENT_READ, _JsonLines(output.on_supervisor_result))
        listening = True
        while listening:
            for ready, _ in selector.select(STOP_CHECK_INTERVAL):
                data = os.read(ready.fd, _CHUNK)
                ready.data(data)
                if not data:
                    selector.unregister(ready.fileobj)
                    listening = listening and ready.fileobj is not process.stdout
            if not process.stdin.closed and output.observer.stop():
                process.stdin.close()
    for pipe, take in pipes.items():
        with contextlib.suppress(BlockingIOError):
            while data := os.read(pipe.fileno(), _CHUNK):
                take(data)


def _end_supervisor(process: subprocess.Popen[bytes], output: _ChildOutput, folder: Path) -> None:
    """End the supervisor, which kills its descendants; where it was killed itself, kill them from here."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    if not output.supervisor_result:
        kill_strays(folder)


def kill_strays(folder: Path) -> list[int]:
    """Kill every process of this user whose HOME is `folder` or a folder below it; return the pids.

    The HOME of every child is its own folder. A worker calls this for its slot folder when it starts, because an
    earlier worker and its supervisor may have been killed at the same time.
    """
    home, found = str(folder).rstrip("/"), []
    for pid, *_ in supervisor.processes():
        with contextlib.suppress(OSError):
            if _home_of(pid).startswith(home + "/") or _home_of(pid) == home:
                os.kill(pid, signal.SIGKILL)
                found.append(pid)
    return found


def _home_of(pid: int) -> str:
    rows = (supervisor.PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return next((os.fsdecode(row[5:]) for row in rows if row.startswith(b"HOME=")), "")


def _child_result(output: _ChildOutput) -> ChildResult:
    report, ending = output.report, output.supervisor_result or {"why": "lost"}
    phase = report.get("phase")
    return ChildResult(
        **{**ending, "stuck": tuple(ending.get("stuck", ()))},
        result=report.get("result") if isinstance(report.get("result"), dict) else None,
        failed=report.get("failed") if isinstance(report.get("failed"), dict) else None,
        phase=phase if isinstance(phase, str) else "start",
        warnings=tuple(output.warnings),
    )
