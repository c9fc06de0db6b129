"""Where pytest keeps the folders of tests: in memory where there is room for them."""

from __future__ import annotations

import os
import re
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 12 << 30
"""Bytes of memory that must be free: a run writes 4 GB, though not at once, and its programs need as much again."""


def in_memory() -> bool:
    """Whether the folders can be in memory: programs can be run from there, and memory is not short."""
    try:
        found = os.statvfs(MEMORY)
        available = int(re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[0]) << 10
    except (OSError, IndexError):
        return False
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        limit = available
    return not found.f_flag & os.ST_NOEXEC and min(found.f_bavail * found.f_frsize, available, limit) >= ROOM
