"""The lines from the child to its parent, and what the child refuses by itself."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class ChildRefusal(Exception):
    """What this child will not do: `kind` is that of `mxr_workers.failures`."""

    def __init__(self, kind: str, name: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


class ChildReport:
    """The lines, one JSON document each. `seconds` has how long each ended phase took."""

    def __init__(self, descriptor: int) -> None:
        # A compiler that MIGraphX starts, and that outlives this process, must not hold the pipe.
        os.set_inheritable(descriptor, False)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self._phase, self._since = "start", time.monotonic()
        self.seconds: dict[str, float] = {}

    def tell(self, **row: Any) -> None:
        """Write one line."""
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def phase(self, name: str) -> None:
        """A new phase begins."""
        now = time.monotonic()
        self.seconds[self._phase] = round(now - self._since, 3)
        self._phase, self._since = name, now
        self.tell(phase=name)

    def failed(self, kind: str | None, name: str | None, error: Exception) -> None:
        """The last line of a failure; without a kind it is for the parent to judge."""
        row = {"kind": kind, "name": name, "type": type(error).__name__, "message": str(error), "phase": self._phase}
        self.tell(failed=row)
