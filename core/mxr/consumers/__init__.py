"""The consumers: programs that load .mxr files, with the compile flags that each needs and the files that it reads."""

from __future__ import annotations

from mxr.display.text import did_you_mean
from mxr.errors import UsageError

from .amdinfer import AMDINFER, AMDINFER_REPO
from .consumer import Consumer
from .driver import DRIVER
from .epcontext import EPCONTEXT
from .kserve import KSERVE
from .layout import Delivery, Layout, LayoutFile
from .ort import ORT
from .python import PYTHON
from .triton import TRITON

CONSUMERS = {
    consumer.name: consumer for consumer in (PYTHON, DRIVER, AMDINFER, AMDINFER_REPO, ORT, EPCONTEXT, TRITON, KSERVE)
}
DEFAULT = PYTHON

__all__ = ["CONSUMERS", "DEFAULT", "Consumer", "Delivery", "Layout", "LayoutFile", "find_consumer"]


def find_consumer(name: str) -> Consumer:
    """The consumer of this name. Raises `UsageError`."""
    if name not in CONSUMERS:
        raise UsageError(
            f"There is no consumer {name!r}.{did_you_mean(name, CONSUMERS)}",
            hint="Use one of: " + ", ".join(CONSUMERS) + " (`mxr consumers`).",
        )
    return CONSUMERS[name]
