"""The bad days of a compile: what a process does when MIGraphX hangs, eats memory, crashes or refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ORPHAN = (
    "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
)
"""Leaves its parent, its group and its session."""


CHILD = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"


def say(line: str) -> None:
    """A line of log."""
    os.write(1, line.encode() + b"\n")


def misbehave(order: str | None) -> None:
    """Do what `word:text` orders; nothing when there is no order."""
    if order:
        word, _, text = order.partition(":")
        globals()[f"do_{word}"](text)


def do_hang(text: str) -> None:
    """Never come back, with a process of the same group, and one that left it. Each prints its number."""
    subprocess.Popen([sys.executable, "-S", "-c", CHILD])
    subprocess.Popen([sys.executable, "-S", "-c", ORPHAN])
    say(f"pid {os.getpid()}")
    time.sleep(600)


def do_leave(text: str) -> None:
    """Go on, and leave a process behind that left group and session."""
    subprocess.run([sys.executable, "-S", "-c", ORPHAN], check=True)


def do_eat(text: str) -> None:
    """Use more and more memory, half of it in another process."""
    if text != "alone":
        subprocess.Popen([sys.executable, "-S", "-c", "import time; kept = b'x' * (96 << 20); time.sleep(600)"])
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))
        time.sleep(0.01)


def do_crash(text: str) -> None:
    """Die of a signal, by its name."""
    os.kill(os.getpid(), getattr(signal, text))
    time.sleep(600)


def do_abort(text: str) -> None:
    """An exception that nobody catches in a pool's thread: C++ writes its text and aborts."""

    def thread() -> None:
        os.write(2, text.encode() + b"\n")
        os.abort()

    threading.Thread(target=thread).start()
    time.sleep(600)


def do_refuse(text: str) -> None:
    """An exception that comes through to Python."""
    raise RuntimeError(text)


def do_memory(text: str) -> None:
    """What std::bad_alloc becomes in Python."""
    raise MemoryError("std::bad_alloc")


def do_exit(text: str) -> None:
    """End at once, without a word."""
    os._exit(int(text))


def do_noise(text: str) -> None:
    """Print so many MiB, then go on."""
    os.write(1, b"the first line\n")
    for _ in range(int(text)):
        say("noise " * ((1 << 20) // 6))
    say("the last line")


def do_environment(text: str) -> None:
    """Print all names of the environment, then go on."""
    for name in sorted(os.environ):
        say(f"env {name}={os.environ[name]}")
    say(f"cwd {Path.cwd()}")


def do_wait(text: str) -> None:
    """Go on when this file is there: a compile that takes as long as a test wants."""
    say(f"waiting {os.getpid()}")
    while not Path(text).exists():
        time.sleep(0.05)


def do_tune(text: str) -> None:
    """Add to the tuning record, as a compile that found something does, then go on."""
    with Path(os.environ["MIGRAPHX_PROBLEM_CACHE"]).open("a") as stream:
        stream.write(text)
