"""Remembers which files could not be read, so that sending them again costs nothing.

Reading a hostile file can take an inspector up to its limits of time. The result depends on the bytes only.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from mxr.errors import DamagedError, from_json

T = TypeVar("T")

SECONDS = 3600.0
"""How long a refusal is remembered. A newer registry may read what an older one could not."""

SECONDS_AFTER_TIMEOUT = 300.0
"""The same where the time on the clock was the reason: the registry may have been busy with something else."""

TIMED_OUT = "timed_out"
"""The field in the details of such a refusal."""

MAX_REFUSALS = 1_000


class RefusalMemory:
    """Refusals by the sha256 of the refused files. Can be used from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: OrderedDict[str, tuple[float, dict[str, object]]] = OrderedDict()
        self._guard = threading.Lock()

    def run(self, name: str, read: Callable[[], T]) -> T:
        """Return what `read` returns for the files that `name` identifies.

        Raises a remembered `DamagedError` at once.
        """
        with self._guard:
            until, error = self._found.get(name, (0.0, {}))
        if self._clock() < until:
            raise from_json(error)
        try:
            return read()
        except DamagedError as problem:
            # Not its subclasses: the bytes in the store can be damaged, and then sent again.
            if type(problem) is DamagedError:
                with self._guard:
                    seconds = SECONDS_AFTER_TIMEOUT if TIMED_OUT in problem.context else SECONDS
                    self._found[name] = (self._clock() + seconds, problem.to_json())
                    while len(self._found) > MAX_REFUSALS:
                        self._found.popitem(last=False)
            raise
