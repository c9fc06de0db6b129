"""Reads files below a root folder. Missing, unreadable, huge or invalid files never raise an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from mxr.util.frozen import dataclass

Run = Callable[[Sequence[str], float], str | None]
"""Runs a tool, given its arguments and a timeout in seconds; returns its output, or None if it failed."""

SYSFS_LIMIT = 64 * 1024
"""Maximum bytes of a file under /sys. sysfs returns at most one page per attribute."""


@dataclass(frozen=True, slots=True)
class Root:
    """The file system below `top`. Paths are absolute and are resolved relative to `top`."""

    top: Path

    def at(self, path: str) -> Path:
        """Return the real location of `path`."""
        return self.top / path.lstrip("/")

    def read(self, path: str, limit: int = SYSFS_LIMIT) -> str | None:
        """Return the text of a file, at most `limit` bytes; None if it is unreadable. Invalid UTF-8 is replaced."""
        try:
            # Without O_NONBLOCK, a FIFO in place of a file would block the detection.
            number = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(number, "rb") as file:
                return (file.read(limit) or b"").decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def line(self, path: str) -> str | None:
        """Return the first line of a file, stripped; None if it is empty or unreadable."""
        text = self.read(path)
        first = text.strip().split("\n", 1)[0].strip() if text else ""
        return first if first and first.isprintable() else None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; an empty list if it is unreadable."""
        try:
            return sorted(entry.name for entry in self.at(path).iterdir())
        except (OSError, ValueError):
            return []

    def numbered(self, path: str) -> list[int]:
        """Return the names in a folder that are plain numbers, in numeric order."""
        return sorted(int(name) for name in self.names(path) if re.fullmatch(r"[0-9]{1,9}", name))

    def exists(self, path: str) -> bool:
        """Whether the path exists, also as a broken link."""
        return os.path.lexists(self.at(path))

    def usable(self, path: str) -> bool:
        """Whether this process may open the path for reading and writing."""
        return os.access(self.at(path), os.R_OK | os.W_OK)

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, or None."""
        try:
            return str(self.at(path).readlink())
        except (OSError, ValueError):
            return None


def properties(text: str) -> dict[str, int]:
    """Parse the `key value` lines of the kernel's topology files. Other lines are ignored.

    Values are unsigned decimal numbers of up to 64 bits.
    """
    found = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 2 and re.fullmatch(r"[0-9]{1,20}", parts[1]) and int(parts[1]) < 2**64:
            found[parts[0]] = int(parts[1])
    return found
