"""What a process does when MIGraphX hangs, uses too much memory, crashes or rejects a model: the double's faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ORPHAN = """
import os, time
ready, started = os.pipe()
pid = os.fork()
if pid:
    os.read(ready, 1)
    print("pid", pid, flush=True)
    os._exit(0)
os.setsid()
os.write(started, b"x")
time.sleep(600)
"""
"""A process that has left its parent, its process group and its session by the time its pid is printed."""


CHILD = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def say(line: str) -> None:
    """Write a line to standard output, as MIGraphX's C++ code does."""
    os.write(1, line.encode() + b"\n")


def apply(fault: str | None) -> None:
    """Run the fault `name:text`, that is the function `do_name(text)` of this module. Does nothing for None."""
    if fault:
        name, _, text = fault.partition(":")
        globals()[f"do_{name}"](text)


def do_hang(text: str) -> None:
    """Never return; start one process in the same group, and one that leaves it. Each prints its pid."""
    subprocess.Popen([sys.executable, "-S", "-c", CHILD])
    subprocess.Popen([sys.executable, "-S", "-c", ORPHAN])
    say(f"pid {os.getpid()}")
    time.sleep(600)


def do_leave(text: str) -> None:
    """Leave a process running, outside of group and session; then continue."""
    subprocess.run([sys.executable, "-S", "-c", ORPHAN], check=True)


def do_eat(text: str) -> None:
    """Allocate more and more memory, half of it in another process."""
    if text != "alone":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; kept = b'x' * (96 << 20); time.sleep(600)"])
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))
        time.sleep(0.01)


def do_crash(text: str) -> None:
    """Die from the signal with this name."""
    os.kill(os.getpid(), getattr(signal, text))
    time.sleep(600)


def do_abort(text: str) -> None:
    """Raise an uncaught exception in a pool thread: C++ prints its text and aborts."""

    def thread() -> None:
        os.write(2, text.encode() + b"\n")
        os.abort()

    threading.Thread(target=thread).start()
    time.sleep(600)


def do_exploit(text: str) -> None:
    """Run the Python in the model, as code that a fault in a parser lets in."""
    exec(text, {"__name__": "exploit"})


def do_refuse(text: str) -> None:
    """Raise an exception that Python code can catch."""
    raise RuntimeError(text)


def do_memory(text: str) -> None:
    """Raise what std::bad_alloc becomes in Python."""
    raise MemoryError("std::bad_alloc")


def do_exit(text: str) -> None:
    """Exit immediately with this code and without a report."""
    os._exit(int(text))


def do_noise(text: str) -> None:
    """Print this many MiB, then continue."""
    os.write(1, b"the first line\n")
    for _ in range(int(text)):
        say("noise " * ((1 << 20) // 6))
    say("the last line")


def do_environment(text: str) -> None:
    """Print the environment variables and the working folder, then continue."""
    for name in sorted(os.environ):
        say(f"env {name}={os.environ[name]}")
    say(f"cwd {Path.cwd()}")


def do_wait(text: str) -> None:
    """Wait until this file exists, so that a test decides how long the compile takes."""
    say(f"waiting {os.getpid()}")
    while not Path(text).exists():
        time.sleep(0.05)


def do_tune(text: str) -> None:
    """Add to the tuning cache, as a compile with new tuning results does, or write this JSON; then continue."""
    path = Path(os.environ["MIGRAPHX_PROBLEM_CACHE"])
    if text.startswith("->"):
        path.unlink(missing_ok=True)
        path.symlink_to(text[2:])
    elif text.startswith("="):
        path.write_text(text[1:])
    else:
        known = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*known, text]))
