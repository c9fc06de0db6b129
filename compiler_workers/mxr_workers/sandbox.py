"""Running one child: in a folder, session and environment of its own, under limits, with nothing left behind."""

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
from io import FileIO
from pathlib import Path
from typing import Any

from mxr_workers import guardian

from .child_log import ChildLog

LOOK = 0.25
"""Seconds between two questions whether the child should stop."""
LONGEST_LINE = 16 << 20
"""Bytes of a line that a child may report."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """`seconds` that the child may live, and bytes of `memory` that it and all it starts may use together."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class ChildObserver:
    """What the worker wants to hear, while it happens: phases and log, and whether it wants the child to stop.

    Called in the thread that runs the child, which waits meanwhile: they must be quick.
    """

    phase: Callable[[str], None] = lambda _: None
    log: Callable[[bytes], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended.

    `why`: `exited` by itself, at its `deadline`, for its `memory`, `stopped` by the worker, or `lost` with its
    guardian. `result` and `failed` are the child's own last words, if there are any. Memory in bytes; `peak_vram` is
    None where it is not known. `oom_kills`: how often the kernel killed in our cgroup. `stuck`: processes that could
    not be killed, as when a GPU hangs.
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
        """Did the child do what it was asked?"""
        return self.why == "exited" and self.code == 0 and self.result is not None


@dataclass(slots=True)
class _Told:
    """What came through the pipes so far."""

    watch: ChildObserver
    log: ChildLog
    verdict: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def on_log(self, data: bytes) -> None:
        self.log.add(data)
        self.watch.log(data)

    def on_report(self, row: dict[str, Any]) -> None:
        if isinstance(row.get("warning"), str):
            self.warnings.append(row["warning"])
        self.rows |= row
        if isinstance(row.get("phase"), str):
            self.watch.phase(row["phase"])

    def on_verdict(self, row: dict[str, Any]) -> None:
        self.verdict = row


class _Lines:
    """JSON lines out of a pipe. A line that a dying child broke off is dropped."""

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take, self._rest = take, b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        for line in lines:
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    self._take(row)


def run_child(
    argv: list[str],
    order: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
    limits: ChildLimits,
    *,
    log: ChildLog | None = None,
    watch: ChildObserver | None = None,
) -> ChildResult:
    """Run `argv` with the number of its report pipe as last word and `order` on its standard input, to its end.

    When this returns, or raises what a callback of `watch` raised, no process is left of it, but those in `stuck`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stdin = folder / "order.json"
    stdin.write_text(json.dumps(order))
    told = _Told(watch or ChildObserver(), log if log is not None else ChildLog())
    with contextlib.ExitStack() as stack:
        logged, log_in = _pipe(stack)
        reported, report_in = _pipe(stack)
        guarded = stack.enter_context(_start_guardian(log_in.fileno(), report_in.fileno()))
        spec = {"argv": [*argv, str(report_in.fileno())], "stdin": str(stdin), "folder": str(folder)}
        limited = {"seconds": limits.seconds, "memory": limits.memory, "environment": dict(environment)}
        log_in.close()
        report_in.close()
        stack.callback(_let_go, guarded, told, folder)
        with contextlib.suppress(BrokenPipeError):
            assert guarded.stdin is not None
            guarded.stdin.write(json.dumps(spec | limited).encode() + b"\n")
        _listen(guarded, {logged: told.on_log, reported: _Lines(told.on_report)}, told)
    return _ending(told)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    out, into = os.pipe()
    return stack.enter_context(FileIO(out, "rb")), stack.enter_context(FileIO(into, "wb"))


def _start_guardian(log: int, report: int) -> subprocess.Popen[bytes]:
    # Without site-packages and without the environment: what starts a thousand compiles starts fast and alone.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=[report],
        start_new_session=True,
        bufsize=0,
        env={},
    )


def _listen(guarded: subprocess.Popen[bytes], pipes: dict[Any, Callable[[bytes], None]], told: _Told) -> None:
    """Until the guardian ends. Then what is still in the pipes, for whose ends nobody needs to be waited for."""
    assert guarded.stdin is not None and guarded.stdout is not None
    with selectors.DefaultSelector() as selector:
        for pipe, take in pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, take)
        selector.register(guarded.stdout, selectors.EVENT_READ, _Lines(told.on_verdict))
        listening = True
        while listening:
            for ready, _ in selector.select(LOOK):
                data = os.read(ready.fd, _CHUNK)
                ready.data(data)
                if not data:
                    selector.unregister(ready.fileobj)
                    listening = listening and ready.fileobj is not guarded.stdout
            if not guarded.stdin.closed and told.watch.stop():
                guarded.stdin.close()
    for pipe, take in pipes.items():
        with contextlib.suppress(BlockingIOError):
            while data := os.read(pipe.fileno(), _CHUNK):
                take(data)


def _let_go(guarded: subprocess.Popen[bytes], told: _Told, folder: Path) -> None:
    """End the guardian, who ends the rest; if it was killed, end the rest in its place."""
    assert guarded.stdin is not None
    guarded.stdin.close()
    guarded.wait()
    if not told.verdict:
        kill_strays(folder)


def kill_strays(folder: Path) -> list[int]:
    """Kill every process of ours whose home is `folder` or lies in it, as that of a child does; their numbers.

    For the case that worker and guardian were killed at one moment: a worker calls it for its own folder at its start.
    """
    home, found = str(folder).rstrip("/"), []
    for pid, *_ in guardian.processes():
        with contextlib.suppress(OSError):
            if _home_of(pid).startswith(home + "/") or _home_of(pid) == home:
                os.kill(pid, signal.SIGKILL)
                found.append(pid)
    return found


def _home_of(pid: int) -> str:
    rows = (guardian.PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return next((os.fsdecode(row[5:]) for row in rows if row.startswith(b"HOME=")), "")


def _ending(told: _Told) -> ChildResult:
    rows, verdict = told.rows, told.verdict or {"why": "lost"}
    phase = rows.get("phase")
    return ChildResult(
        **{**verdict, "stuck": tuple(verdict.get("stuck", ()))},
        result=rows.get("result") if isinstance(rows.get("result"), dict) else None,
        failed=rows.get("failed") if isinstance(rows.get("failed"), dict) else None,
        phase=phase if isinstance(phase, str) else "start",
        warnings=tuple(told.warnings),
    )
