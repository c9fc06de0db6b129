"""Folders that tests read, wherever the test itself lies."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
DATA = TESTS / "data"
DOUBLES = TESTS / "doubles"
