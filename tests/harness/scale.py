"""How large crowds are: small ones in `make test`, the full size under `make soak` (MXR_TEST_SOAK=1)."""

from __future__ import annotations

import os

SOAK = bool(os.environ.get("MXR_TEST_SOAK"))


def crowd(full: int, small: int = 20) -> int:
    """The size of a crowd: `full` in a soak run, else `small`."""
    return full if SOAK else small
