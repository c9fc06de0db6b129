"""What is harmless to print, as the tests define it."""

from __future__ import annotations

import re
import unicodedata

COMMAND = re.compile(r"^\s*::|##[\w.]*\[")


def is_harmless(line: str) -> bool:
    """Whether every character of one line is visible or a space, and no CI system takes it as a command."""
    shown = all(each.isprintable() or unicodedata.category(each) == "Zs" for each in line)
    return shown and not COMMAND.search(line)
