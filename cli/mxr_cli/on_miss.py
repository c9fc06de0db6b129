"""The values of `--on-miss`: what a command does when the registry has no program for a request."""

from __future__ import annotations

import re

from mxr.errors import UsageError
from mxr.util.frozen import dataclass

ACTIONS = ("fail", "ask", "wait", "local", "continue")
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class OnMiss:
    """What to do on a miss.

    `action` is one of `ACTIONS`. `timeout` limits `wait`, in seconds; None waits without a limit. `retry` compiles
    again despite a cached failure. `verbose` shows the log of the compile.
    """

    action: str = "fail"
    timeout: float | None = None
    retry: bool = False
    verbose: bool = False

    @property
    def compiles(self) -> bool:
        """Whether a miss leads to a compile."""
        return self.action in ("ask", "wait", "local")

    @classmethod
    def parse(cls, text: str, *, retry: bool = False, verbose: bool = False) -> OnMiss:
        """Parse an action, or `wait` with a time limit such as `wait=10m`. Raises `UsageError`."""
        action, equals, limit = text.partition("=")
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)", limit)
        if action not in ACTIONS or (equals and (action != "wait" or not match)):
            raise UsageError(
                f"Invalid value for --on-miss: {text!r}.", hint="Use one of: fail, ask, wait[=10m], local, continue."
            )
        return cls(action, float(match[1]) * SECONDS[match[2]] if match else None, retry, verbose)
