"""Runs a real MIGraphX in a child process (`real_migraphx.py`) for the tests of the reader.

`MXR_TEST_MIGRAPHX_PYTHON` is the command of an interpreter that can import migraphx. `MXR_TEST_MIGRAPHX_PATH` is its
PYTHONPATH if it needs one.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
from pathlib import Path
from typing import Any

SECONDS = 60
CHILD = Path(__file__).with_name("real_migraphx.py")


class Refused(Exception):
    """The error that the library reported."""


class Library:
    """Sends orders to the child one at a time. A child that died or hangs is restarted for the next order."""

    def __init__(self, command: list[str], folder: Path) -> None:
        # The library writes dumps of programs that it cannot compile into the temporary folder.
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        if path := os.environ.get("MXR_TEST_MIGRAPHX_PATH"):
            self._environment["PYTHONPATH"] = path
        self._command = [*command, str(CHILD)]
        self._child: subprocess.Popen[str] | None = None
        self._folder = folder

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises `Refused`."""
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
        """Kill the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def start(folder: Path) -> Library:
    """Return the library of the interpreter that MXR_TEST_MIGRAPHX_PYTHON names."""
    return Library(shlex.split(os.environ["MXR_TEST_MIGRAPHX_PYTHON"]), folder)
