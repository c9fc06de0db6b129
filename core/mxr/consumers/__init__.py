"""The programs that load .mxr files: the flags that each needs, and the file name that it looks for."""

from __future__ import annotations

from mxr.errors import Usage

from .amdinfer import AMDINFER
from .consumer import Consumer
from .driver import DRIVER
from .ort import ORT
from .python import PYTHON

CONSUMERS = {consumer.name: consumer for consumer in (PYTHON, DRIVER, AMDINFER, ORT)}
DEFAULT = PYTHON

__all__ = ["CONSUMERS", "DEFAULT", "Consumer", "find"]


def find(name: str) -> Consumer:
    """The consumer of this name. Raises `Usage`."""
    if name not in CONSUMERS:
        raise Usage(f"There is no consumer {name!r}.", hint="Known: " + ", ".join(CONSUMERS) + " (`mxr consumers`).")
    return CONSUMERS[name]
