"""Probes of what a registry needs: one run at a time, and an answer within a bound, whatever hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mxr.errors import MxrError, TemporaryError

from .threads import ThreadPool

SECONDS = 2.0
"""Seconds within which a probe answers."""


class Probe:
    """One check, such as of the database. Who asks while it runs gets the same answer. Used in the event loop only."""

    def __init__(self, name: str, check: Callable[[], object]) -> None:
        self._name, self._check = name, check
        self._threads = ThreadPool(1)
        self._running: asyncio.Future[object] | None = None
        self.seconds = 0.0
        """How long the last one took that was waited for."""

    async def failure(self) -> MxrError | None:
        """Return why the check failed, None where it succeeded."""
        begun = time.monotonic()
        try:
            return await self._failure()
        finally:
            self.seconds = time.monotonic() - begun

    async def _failure(self) -> MxrError | None:
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._threads.run(self._check))
            # Its result may be read by nobody, who waited too long.
            self._running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            await asyncio.wait_for(asyncio.shield(self._running), SECONDS)
        except asyncio.TimeoutError:
            return TemporaryError(f"The {self._name} did not answer within {SECONDS:g} s.")
        except MxrError as problem:
            return problem
        return None
