"""Starting the project's programs as processes: `Program` is a `subprocess.Popen` of one."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
"""Where the installed commands are."""

PROGRAMS = ("mxr", "mxr-registry", "mxr-worker", "python")
START_SECONDS = 120.0


def command(name: str, *words: object, through: Sequence[str] = ()) -> list[str]:
    """The words that start a program, by way of another command if one is given."""
    first = [*through, str(BIN / name)] if through else [name]
    return [*first, *map(str, words)]


class ForkServer:
    """The process that forks programs, one for each test process; see `fork_server`."""

    _running: ForkServer | None = None

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="mxr-fork-")
        self.address = str(Path(self.folder.name, "socket"))
        script = Path(__file__).with_name("fork_server.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), self.address, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.owner = os.getpid()

    @classmethod
    def running(cls) -> ForkServer:
        """The server of this process, started when it is first needed."""
        if cls._running is None or cls._running.owner != os.getpid():
            cls._running = cls()
        return cls._running

    @classmethod
    def stop(cls) -> None:
        """Stops it; programs that still run go on."""
        if cls._running is not None and cls._running.owner == os.getpid():
            cls._running.process.kill()
            cls._running.process.wait()
            cls._running.folder.cleanup()
            cls._running = None

    def connect(self) -> socket.socket:
        """A connection for one program."""
        end = time.monotonic() + START_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self.address)
                return connection
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                assert self.process.poll() is None and time.monotonic() < end, "the fork server did not start"
                time.sleep(0.01)


class Program(subprocess.Popen):
    """A process of `mxr`, `mxr-registry` or `mxr-worker`: `Program(["mxr", "ls"], env=..., stdout=PIPE)`.

    It behaves as a `Popen` of the installed command. It is forked by the fork server, and so not a child of this
    process: its status comes over a socket. `python -c CODE` is forked as well. With MXR_TEST_EXEC=1, with LD_PRELOAD,
    or where another command comes first (`Program(["prlimit", "--fsize=1000", str(BIN / "mxr"), "ls"])`), the command
    is executed.
    """

    _connection: socket.socket | None = None
    _received = b""

    def __init__(self, words: list[str], **options: Any) -> None:
        name, *rest = map(str, words)
        known = name in PROGRAMS
        # What is preloaded is loaded by a new process only.
        anew = (
            os.environ.get("MXR_TEST_EXEC") or options.get("preexec_fn") or "LD_PRELOAD" in (options.get("env") or {})
        )
        self._forked = known and not anew
        super().__init__([str(BIN / name) if known and not self._forked else name, *rest], **options)

    def _execute_child(self, *values: Any) -> None:
        if not self._forked:
            super()._execute_child(*values)
            return
        call = inspect.signature(subprocess.Popen._execute_child).bind(self, *values).arguments  # type: ignore[attr-defined]
        environ = dict(os.environ if call["env"] is None else call["env"])
        request = {
            "words": call["args"],
            "environ": environ,
            "cwd": os.fspath(call["cwd"] or Path.cwd()),
            "session": bool(call["start_new_session"]),
        }
        ends = [call["p2cread"], call["c2pwrite"], call["errwrite"]]
        self._connection = ForkServer.running().connect()
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(
            self._connection, [data], [number if end == -1 else end for number, end in enumerate(ends)]
        )
        if sent < len(data):  # where nothing is left, the program may have ended already
            self._connection.sendall(data[sent:])
        answer = self._line(None)
        assert answer is not None
        self.pid = json.loads(answer)["pid"]
        self._child_created = True
        self._close_child_ends(call)

    def _close_child_ends(self, call: dict[str, Any]) -> None:
        devnull = getattr(self, "_devnull", None)
        mine = {
            (call["p2cread"], call["p2cwrite"]),
            (call["c2pwrite"], call["c2pread"]),
            (call["errwrite"], call["errread"]),
        }
        for end, other in mine:
            if end != -1 and other != -1 and end != devnull:
                os.close(end)
        if devnull is not None:
            os.close(devnull)
        # As in the standard library: these are closed now.
        self._closed_child_pipe_fds = True

    def _line(self, seconds: float | None) -> bytes | None:
        """The next line of the server; None when it does not come within `seconds`."""
        assert self._connection is not None
        while b"\n" not in self._received:
            if seconds is not None and not select.select([self._connection], [], [], seconds)[0]:
                return None
            more = self._connection.recv(4096)
            assert more, "the fork server is gone"
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _settle(self, line: bytes) -> None:
        self._handle_exitstatus(json.loads(line)["status"])  # type: ignore[attr-defined]
        assert self._connection is not None
        self._connection.close()

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if not self._forked:
            return super()._internal_poll(*_, **__)
        if self.returncode is None and self._connection is not None:
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None and (line := self._line(0)) is not None:
                    self._settle(line)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self._forked:
            return super()._wait(timeout)
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                line = self._line(timeout)
                if line is None:
                    assert timeout is not None
                    raise subprocess.TimeoutExpired(self.args, timeout)
                self._settle(line)
        return self.returncode

    def __del__(self, **_: Any) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()


def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; its output as texts."""
    stdin = options.pop("input", None)
    timeout = options.pop("timeout", 300.0)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["stdin"] = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with Program(words, **{**pipes, **options}) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
