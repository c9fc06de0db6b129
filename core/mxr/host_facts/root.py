"""Reading files below a root folder so that nothing there stops a detection: absent, denied, huge or garbage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from mxr.util.frozen import dataclass

Run = Callable[[Sequence[str], float], str | None]
"""Runs a tool: its words and a timeout in seconds; its output, or None when it failed."""

SYSFS_LIMIT = 64 * 1024
"""Bytes. sysfs hands out at most one page per attribute."""


@dataclass(frozen=True, slots=True)
class Root:
    """The file system as seen from `top`; paths are written absolute and looked up below it."""

    top: Path

    def at(self, path: str) -> Path:
        """The real place of `path`."""
        return self.top / path.lstrip("/")

    def read(self, path: str, limit: int = SYSFS_LIMIT) -> str | None:
        """The text of a file, at most `limit` bytes; None when it cannot be read. Bytes that are no text change."""
        try:
            # Without O_NONBLOCK a FIFO in the place of a file would hang the whole detection.
            number = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(number, "rb") as file:
                return (file.read(limit) or b"").decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def line(self, path: str) -> str | None:
        """The first line of a file without white space around it; None when empty or unreadable."""
        text = self.read(path)
        first = text.strip().split("\n", 1)[0].strip() if text else ""
        return first if first and first.isprintable() else None

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when it cannot be read."""
        try:
            return sorted(entry.name for entry in self.at(path).iterdir())
        except (OSError, ValueError):
            return []

    def numbered(self, path: str) -> list[int]:
        """The names in a folder that are plain numbers, in numeric order."""
        return sorted(int(name) for name in self.names(path) if re.fullmatch(r"[0-9]{1,9}", name))

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return os.path.lexists(self.at(path))

    def usable(self, path: str) -> bool:
        """Whether this process may open it for reading and writing."""
        return os.access(self.at(path), os.R_OK | os.W_OK)

    def link(self, path: str) -> str | None:
        """What a symbolic link says, or None."""
        try:
            return str(self.at(path).readlink())
        except (OSError, ValueError):
            return None


def properties(text: str) -> dict[str, int]:
    """`key value` lines as the kernel's topology files have them; lines of another form are passed over.

    Values are unsigned decimals of up to 64 bits.
    """
    found = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 2 and re.fullmatch(r"[0-9]{1,20}", parts[1]) and int(parts[1]) < 2**64:
            found[parts[0]] = int(parts[1])
    return found
