"""Keep a lease: a thread reports phase and log to the registry and learns whether the work may continue."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable
from types import TracebackType

from mxr.artifact.limits import MAX_LOG_BYTES
from mxr.client.worker import HeldLease, WorkerClient
from mxr.errors import ConflictError, MxrError, NotFoundError
from mxr.protocol.jobs import Heartbeat
from mxr_workers.sandbox import ChildObserver

MIN_INTERVAL = 0.2
"""The least seconds between two heartbeats: phases can follow each other quickly."""

AFTER_FAILURE = 2.0
"""The most seconds until the next heartbeat while the registry does not answer."""

MAX_PENDING_LOG = 4 * MAX_LOG_BYTES
"""The most characters of log kept while the registry is unreachable; beyond that, the middle is dropped."""

LOG_GAP = "\n[the registry was unreachable; a part of the log is omitted here]\n"


class LeaseHeartbeat:
    """Keeps a lease while the block runs. `stop` is why the work must end: `lost` or `cancelled`; None otherwise.

    Only an answer of the registry ends a lease. While the registry is unreachable the work continues, because no other
    worker can claim the job meanwhile.
    """

    def __init__(self, client: WorkerClient, lease: HeldLease) -> None:
        self.stop: str | None = None
        self._client, self._lease = client, lease
        self._phase, self._log = "claimed", ""
        # Chunks from a pipe can end within a multi-byte character.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._guard, self._wake, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{lease.job[:8]}", daemon=True)

    def __enter__(self) -> LeaseHeartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> str:
        """Stop the heartbeats. Returns the log that has not been reported yet."""
        self._ended.set()
        self._wake.set()
        self._thread.join()
        with self._guard:
            rest, self._log = self._log[-MAX_LOG_BYTES:], ""
        return rest

    def phase(self, name: str) -> None:
        """Report a phase, where it is a new one."""
        if name[:40] != self._phase:
            self._phase = name[:40]
            self._wake.set()

    def add_log(self, data: bytes) -> None:
        """Append to the log that the next heartbeat reports."""
        text = self._decode(data).replace("\0", "?")
        with self._guard:
            self._log += text
            if len(self._log) > MAX_PENDING_LOG:
                self._log = self._log[: MAX_PENDING_LOG // 4] + LOG_GAP + self._log[-MAX_PENDING_LOG // 2 :]

    def observer(self, stop_requested: Callable[[], bool]) -> ChildObserver:
        """The observer of a child: it stops if the lease is lost, the job is cancelled, or `stop_requested` is true."""
        return ChildObserver(self.phase, self.add_log, lambda: self.stop is not None or stop_requested())

    def _run(self) -> None:
        pause = self._lease.seconds / 3
        while not self._ended.is_set():
            self._wake.clear()
            pause = self._beat(pause)
            if self._ended.is_set():
                return
            if self._wake.wait(pause):
                self._ended.wait(MIN_INTERVAL)

    def _beat(self, pause: float) -> float:
        """Send one heartbeat. Returns the seconds until the next."""
        with self._guard:
            text, self._log = self._log[:MAX_LOG_BYTES], self._log[MAX_LOG_BYTES:]
        try:
            beat = self._client.heartbeat(self._lease.job, Heartbeat(self._lease.secret, self._phase, text))
        except (ConflictError, NotFoundError):
            self.stop = "lost"
            self._ended.set()
            return pause
        except MxrError:
            with self._guard:
                self._log = text + self._log
            return min(pause, AFTER_FAILURE)
        if beat.cancelled:
            self.stop = "cancelled"
        return MIN_INTERVAL if self._log else beat.seconds / 3
