"""A real MIGraphX in a child process, for the tests of the reader: `real_migraphx.py` answers there.

`MXR_TEST_MIGRAPHX_PYTHON` is the command of an interpreter that can import migraphx, `MXR_TEST_MIGRAPHX_PATH` its
PYTHONPATH where it needs one.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

SECONDS = 60
CHILD = Path(__file__).with_name("real_migraphx.py")


class Refused(Exception):
    """What the library said instead of an answer."""


class Library:
    """Asks the child one thing at a time; a child that died or hangs is started anew for the next."""

    def __init__(self, command: list[str], folder: Path) -> None:
        # The library writes dumps of programs that it cannot compile into the folder for temporary files.
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        if path := os.environ.get("MXR_TEST_MIGRAPHX_PATH"):
            self._environment["PYTHONPATH"] = path
        self._command = [*command, str(CHILD)]
        self._child: subprocess.Popen[str] | None = None
        self._folder = folder

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises `Refused`."""
        child = self._child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        ready = select.select([child.stdout], [], [], SECONDS)[0]
        line = child.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise Refused(f"no answer to {order}: {(self._folder / 'log').read_text()[-2000:]}")
        reply = json.loads(line)
        if "error" in reply:
            raise Refused(reply["error"])
        return reply["answer"]

    def _start(self) -> subprocess.Popen[str]:
        with (self._folder / "log").open("w") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                cwd=self._folder,
            )

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def start(folder: Path) -> Library:
    """The library, or a skip that says what is missing."""
    command = shlex.split(os.environ.get("MXR_TEST_MIGRAPHX_PYTHON", ""))
    if not command:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx")
    return Library(command, folder)
