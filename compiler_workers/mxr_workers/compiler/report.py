"""The lines that the child writes to its parent, and the exception for a request that the child refuses."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class ChildRefusal(Exception):
    """The child refuses the request. `kind` is a kind of `mxr_workers.failures`, `name` a short code for statistics."""

    def __init__(self, kind: str, name: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


class ChildReport:
    """Writes one JSON document per line. `seconds` maps each finished phase to its duration."""

    def __init__(self, descriptor: int) -> None:
        # A process that MIGraphX starts may outlive this one and must not keep the pipe open.
        os.set_inheritable(descriptor, False)
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self._phase, self._since = "start", time.monotonic()
        self.seconds: dict[str, float] = {}

    def close(self) -> None:
        self._stream.close()

    def write(self, **row: Any) -> None:
        """Send one line of JSON to the process that reads the report, at once."""
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def phase(self, name: str) -> None:
        """Begin a new phase."""
        now = time.monotonic()
        self.seconds[self._phase] = round(now - self._since, 3)
        self._phase, self._since = name, now
        self.write(phase=name)

    def failed(self, kind: str | None, name: str | None, error: Exception) -> None:
        """Write the last line of a failed request. With `kind` None the parent classifies the failure."""
        row = {"kind": kind, "name": name, "type": type(error).__name__, "message": str(error), "phase": self._phase}
        self.write(failed=row)
