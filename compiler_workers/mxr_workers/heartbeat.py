"""Keeping a lease: a thread that tells the registry the phase and the log, and hears whether to go on."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable
from types import TracebackType

from mxr.client.worker import WorkerClient
from mxr.errors import Conflict, MxrError, NotFound
from mxr.protocol.jobs import MOST_LOG, Heartbeat, Lease
from mxr_workers.sandbox import ChildObserver

LEAST = 0.2
"""Seconds between two heartbeats, at least: phases may follow each other quickly."""

KEPT = 4 * MOST_LOG
"""Characters of log that wait for a registry that is away; of what comes then the middle is left out."""

GAP = "\n[the registry was away, some of the log is left out here]\n"


class LeaseHeartbeat:
    """A lease that is kept while the block runs. `stop` says why to stop working: `lost` or `cancelled`; else None.

    Only the registry's word ends a lease: while it is away the work goes on, as nobody else can claim the job.
    """

    def __init__(self, client: WorkerClient, lease: Lease) -> None:
        self.stop: str | None = None
        self._client, self._lease = client, lease
        self._phase, self._log = "claimed", ""
        # A pipe's chunks end anywhere, in the middle of a letter too.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._guard, self._wake, self._over = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{lease.job[:8]}", daemon=True)

    def __enter__(self) -> LeaseHeartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> str:
        """Ends the heartbeats; the log that was not told yet."""
        self._over.set()
        self._wake.set()
        self._thread.join()
        with self._guard:
            rest, self._log = self._log[-MOST_LOG:], ""
        return rest

    def phase(self, name: str) -> None:
        """What is done now."""
        self._phase = name[:40]
        self._wake.set()

    def hear(self, data: bytes) -> None:
        """What came to the log."""
        text = self._decode(data).replace("\0", "?")
        with self._guard:
            self._log += text
            if len(self._log) > KEPT:
                self._log = self._log[: KEPT // 4] + GAP + self._log[-KEPT // 2 :]

    def watch(self, told: Callable[[], bool]) -> ChildObserver:
        """For the child: it stops when the lease is lost, somebody cancelled the job, or `told` says so."""
        return ChildObserver(self.phase, self.hear, lambda: self.stop is not None or told())

    def _run(self) -> None:
        pause = self._lease.seconds / 3
        while not self._over.is_set():
            self._wake.clear()
            pause = self._beat(pause)
            if self._over.is_set():
                return
            if self._wake.wait(pause):
                self._over.wait(LEAST)

    def _beat(self, pause: float) -> float:
        """One heartbeat; the seconds to the next."""
        with self._guard:
            text, self._log = self._log[:MOST_LOG], self._log[MOST_LOG:]
        try:
            beat = self._client.heartbeat(self._lease.job, Heartbeat(self._lease.fence, self._phase, text))
        except (Conflict, NotFound):
            self.stop = "lost"
            self._over.set()
            return pause
        except MxrError:
            with self._guard:
                self._log = text + self._log
            return min(pause, 2.0)
        if beat.cancelled:
            self.stop = "cancelled"
        return LEAST if self._log else beat.seconds / 3
