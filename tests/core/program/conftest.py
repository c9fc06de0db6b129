"""Adds this folder to the import path, because the tests of the reader share `program_maker`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
