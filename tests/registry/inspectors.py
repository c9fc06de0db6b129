"""The processes in which a registry inspects files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from harness.waiting import PendingRequest, until
from registry.registry_client import RegistryUnderTest


def children(pid: int) -> list[int]:
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(each) for each in text.split()]


class StoppedInspectors:
    """Stops each inspector process of a registry, so that what waits for it goes on waiting."""

    def __init__(self, pid: int, count: int) -> None:
        self._pid, self._count = pid, count
        self.stopped: list[int] = []

    def __enter__(self) -> StoppedInspectors:
        until(self._stop, pause=0.001)
        return self

    def _stop(self) -> bool:
        for each in children(self._pid):
            if each not in self.stopped:
                os.kill(each, signal.SIGSTOP)
                self.stopped.append(each)
        return len(self.stopped) == self._count

    def __exit__(self, *_: object) -> None:
        for each in self.stopped:
            os.kill(each, signal.SIGCONT)


def fill(server: RegistryUnderTest, send: Callable[[int], PendingRequest], waiting: list[PendingRequest]) -> None:
    """Add requests to those that wait for stopped inspectors, until the registry refuses one.

    On a busy machine, an inspector may end before it is stopped: its request no longer waits. `send`: sends a request
    with this number.
    """
    while True:
        each = send(len(waiting))
        server.handled(each)
        if each.answered:
            assert each.reply()[0] == 429
            return
        waiting.append(each)
