"""How large crowds are: small ones in `make test`, the full size under `make soak` (MXR_TEST_SOAK=1)."""

from __future__ import annotations

import os

import pytest

SOAK = bool(os.environ.get("MXR_TEST_SOAK"))


only_in_soak = pytest.mark.skipif(not SOAK, reason="`make soak` runs it")
"""Marks a test that takes long and proves what others prove in parts."""


def crowd(full: int, small: int = 20) -> int:
    """The size of a crowd: `full` in a soak run, else `small`."""
    return full if SOAK else small
