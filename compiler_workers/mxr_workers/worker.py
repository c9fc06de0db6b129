"""The worker: a thread for each slot that claims, works and claims again; stopping, and standing aside when it is ill.

The process never imports migraphx: every word with it is in a child.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from mxr import work
from mxr.client import Client
from mxr.errors import MxrError, NotFound, NoWorker, Temporary
from mxr.host import Host
from mxr.worker_client import WorkerClient
from mxr_workers.attempt import Post, attempt
from mxr_workers.failures import UNFIT, Failure
from mxr_workers.interpreter import About, Interpreter, ask, probe
from mxr_workers.sandbox import kill_strays
from mxr_workers.settings import Settings
from mxr_workers.slots import Slot, find_slots, held
from mxr_workers.spool import Spool

LONG = 30.0
"""Seconds of one long poll for a job."""

LAST_WORDS = 15.0
"""Seconds beyond the grace in which a stopped compile is killed and its job handed back."""

_log = logging.getLogger("mxr-worker")


class Stopping:
    """Whether the worker was told to stop, and until when a running compile may go on."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.until = float("inf")

    def begin(self, grace: float) -> None:
        """Stop, after `grace` seconds at most; once more stops at once."""
        self.until = time.monotonic() + (0 if self.asked.is_set() else grace)
        self.asked.set()

    def now(self) -> bool:
        """Whether a running compile must end."""
        return time.monotonic() >= self.until


class Worker:
    """All slots of one process."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self.settings = settings
        self.stopping = Stopping()
        self._host = host
        self._interpreter = Interpreter(settings.python, settings.outer)
        self._spool = Spool(settings.spool)
        self._client = Client(settings.registry)
        self.problems: list[MxrError] = []

    def about(self) -> About:
        """What the interpreter offers. Raises `Usage` where it has no usable migraphx."""
        return ask(self._interpreter, self._spool.folder / "about" / self.settings.name.replace("/", "-"))

    def slots(self) -> tuple[Slot, ...]:
        """The slots to serve. Raises `Usage`, `NoWorker`."""
        found = find_slots(self._host, self.about(), self.settings.kinds, self.settings.name)
        return found if self.settings.job is None else self._for_job(found, self.settings.job)

    def _for_job(self, slots: Sequence[Slot], job: str) -> tuple[Slot, ...]:
        request = self._client.job(job).request
        for slot in slots:
            if work.able(slot.can, request) is not None:
                return (slot,)
        raise NoWorker(
            f"This host cannot compile job {job[:12]}.",
            hint="`mxr-worker host` shows what it can; the job stays queued for another worker.",
        )

    def run(self) -> None:
        """Serve until told to stop, or until what was asked is done. Raises the first slot's problem, if any."""
        threads = []
        for slot in self.slots():
            thread = threading.Thread(target=self._guarded, args=(slot,), name=slot.name, daemon=True)
            thread.start()
            threads.append(thread)
        while any(thread.is_alive() for thread in threads):
            if self._overdue(threads):
                break
            for thread in threads:
                thread.join(0.1 / len(threads))
        if self.problems:
            raise self.problems[0]

    def _overdue(self, threads: Sequence[threading.Thread]) -> bool:
        """Idle slots wait for the registry and need not be waited for; busy ones get their grace, and a little more."""
        if not self.stopping.asked.is_set():
            return False
        busy = [thread for thread in threads if thread.is_alive() and thread.name in self._busy]
        return not busy or time.monotonic() > self.stopping.until + LAST_WORDS

    @property
    def _busy(self) -> set[str]:
        return set(self._leases)

    _leases: dict[str, str]

    def _guarded(self, slot: Slot) -> None:
        try:
            self._serve(slot)
        except MxrError as problem:
            _log.error("%s: %s", slot.name, problem.message)
            self.problems.append(problem)
        except Exception as problem:
            _log.exception("%s: a fault of mxr-worker", slot.name)
            self.problems.append(MxrError(f"{type(problem).__name__}: {problem}"))

    def _serve(self, slot: Slot) -> None:
        folder = self._spool.slot(slot.name)
        with held(folder, blocking=self.settings.job is not None) as alone:
            if not alone:
                raise Temporary(
                    f"Another mxr-worker on this host already serves {slot.name}.",
                    hint="Stop that one, or give this one another MXR_WORKER_NAME and MXR_WORKER_SPOOL.",
                )
            strays = kill_strays(folder)
            if strays:
                _log.warning("%s: killed %d processes that an earlier worker left", slot.name, len(strays))
            Serving(self, slot).run()
