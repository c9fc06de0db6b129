"""Starts `mxr`, `mxr-registry` and `mxr-worker` as processes without the cost of an interpreter and its imports.

The suite starts these programs hundreds of times, and an interpreter with its imports costs more than most of what they
do. This process imports everything once and forks: each program is a process of its own, with its own environment,
working directory, file descriptors, exit code and signals. What depends on a fresh interpreter (imports, start-up cost,
PYTHON* variables) is tested by tests that run the installed commands instead (`MXR_TEST_EXEC=1` does so for all).

Protocol, on a Unix stream socket, one connection for each program: the client sends one line of JSON with three file
descriptors (SCM_RIGHTS); the server answers with the line `{"pid": N}`, and when the program has ended with
`{"status": N}`, the status of waitpid(2).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# `python -c CODE` runs in an interpreter that has everything imported already.
PROGRAMS = {"mxr": "mxr_cli.main", "mxr-registry": "mxr_registry.main", "mxr-worker": "mxr_workers.main"}

PRELOADED = (
    "alembic.command",
    "alembic.context",
    "alembic.op",
    "anyio._backends._asyncio",
    "boto3.session",
    "botocore.httpsession",
    "ctypes.util",
    "encodings.idna",
    "httptools",
    "importlib.metadata",
    "mxr_migrations",
    "psycopg",
    "psycopg_binary",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlite3",
    "tomllib",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "xxhash",
    "yaml",
    "zstandard",
)
PACKAGES = ("mxr", "mxr_cli", "mxr_registry", "mxr_workers")
NOT_LOADED = (
    "__main__",
    "mxr_workers.compiler",
    "mxr_registry.artifacts.inspector",
    "mxr.consumers.ort.prediction.child",
)
"""Modules that run as programs of their own, in a child's interpreter."""

MAX_BYTES = 1 << 20
PDEATHSIG = 1
"""Source: Linux, include/uapi/linux/prctl.h, PR_SET_PDEATHSIG."""


def main() -> int:
    """Serves until the test process has gone; in each forked child, runs a program."""
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):
        return 0
    preload()
    program = serve(sys.argv[1])
    if program is not None:
        leave(program)
    return 0


def leave(program: Callable[[], int]) -> None:
    """Runs the program and ends as an interpreter does, apart from freeing memory that the kernel frees anyway."""
    try:
        code = program()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = 120
    os._exit(code)


def preload() -> None:
    """Imports all that a program could need, so that a forked one imports nothing."""
    for name in (*PRELOADED, *modules()):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def modules() -> list[str]:
    """The modules of the project, apart from those that run in an interpreter of their own."""
    found = []
    for package in PACKAGES:
        root = Path(str(importlib.import_module(package).__file__)).parent
        for path in sorted(root.rglob("*.py")):
            name = ".".join((package, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            if not any(part in name for part in NOT_LOADED):
                found.append(name)
    return found


def serve(address: str) -> Callable[[], int] | None:
    """Accepts requests; returns in a forked child only, with what it has to run."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(256)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                request, descriptors = receive(client)
                if request is None:
                    client.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    return lambda: run(request, descriptors)
                for each in descriptors:
                    os.close(each)
                handle = os.pidfd_open(pid)
                running[handle] = (pid, client)
                waiting.register(handle, selectors.EVENT_READ)
                send(client, {"pid": pid})
            else:
                handle = key.fd
                waiting.unregister(handle)
                pid, client = running.pop(handle)
                _, status = os.waitpid(pid, 0)
                os.close(handle)
                send(client, {"status": status})
                client.close()


def receive(client: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """One request and its file descriptors; None where the client went away."""
    data, descriptors, _, _ = socket.recv_fds(client, MAX_BYTES, 3)
    while data and not data.endswith(b"\n"):
        more = client.recv(MAX_BYTES)
        if not more:
            return None, descriptors
        data += more
    return (json.loads(data), descriptors) if data else (None, descriptors)


def send(client: socket.socket, document: dict[str, int]) -> None:
    """Answers, unless the client has gone."""
    try:
        client.sendall(json.dumps(document).encode() + b"\n")
    except OSError:
        return


def run(request: dict[str, Any], descriptors: list[int]) -> int:
    """Makes this process what the request asks for, and runs the program; its exit number."""
    for number, own in enumerate(descriptors):
        os.dup2(own, number)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))
    if request["session"]:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    ctypes.CDLL(None).prctl(PDEATHSIG, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    random.seed()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _output(1, "strict")
    sys.stderr = _output(2, "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = list(request["words"])
    sys.orig_argv = [sys.executable, *sys.argv]
    extra = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[1:1] = extra
    for entry in extra:
        site = Path(entry, "sitecustomize.py")
        if site.exists() and site.stat().st_size:
            runpy.run_path(str(site), run_name="sitecustomize")
    if sys.argv[0] == "python":
        _, option, code, *words = sys.argv
        assert option == "-c"
        sys.argv = ["-c", *words]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        return 0
    importlib.import_module(PROGRAMS[sys.argv[0]]).main()
    return 0


def _output(number: int, errors: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=line_buffering or raw.isatty()
    )


if __name__ == "__main__":
    sys.exit(main())
