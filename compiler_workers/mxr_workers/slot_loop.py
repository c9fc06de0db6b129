"""One slot at work: claim, work, claim again; until it is told to stop, has done what was asked, or is ill."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from mxr.errors import MxrError, NotFound, Temporary, Unreachable
from mxr.protocol import jobs as job_protocol
from mxr_workers.failures import UNFIT, CompileFailure
from mxr_workers.interpreter import probe
from mxr_workers.sandbox import kill_strays
from mxr_workers.slots import held

from .run_job import SlotContext, attempt

T = TypeVar("T")

LONG = 30.0
"""Seconds of one long poll for a job."""

AGAIN = (1.0, 30.0)
"""Seconds between two tries to reach a registry that is away: at first, and at most."""

GOODBYE = 1.0
"""Seconds, at most, for which the end of a worker waits for the registry to hear of it."""

_log = logging.getLogger("mxr-worker")


class StopSignal:
    """Whether the worker was told to stop, and until when a running compile may go on."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.until = float("inf")

    def begin(self, grace: float) -> None:
        """Stop, after `grace` seconds at most; once more stops at once."""
        self.until = time.monotonic() + (0.0 if self.asked.is_set() else grace)
        self.asked.set()

    def now(self) -> bool:
        """Whether a running compile must end."""
        return time.monotonic() >= self.until


class SlotLoop:
    """A slot at work. `busy`: it holds a lease."""

    def __init__(self, post: SlotContext, stopping: StopSignal) -> None:
        self.busy = False
        self._post, self._stopping = post, stopping
        self._id = ""

    def run(self) -> None:
        """Serve to the end. Raises `Temporary` where another process serves this slot, or its target is ill."""
        folder = self._post.spool.slot(self._post.slot.name)
        with held(folder, blocking=self._post.settings.job is not None) as alone:
            if not alone:
                raise Temporary(
                    f"Another mxr-worker on this host already serves {self._post.slot.name}.",
                    hint="Stop that one, or give this one a MXR_WORKER_NAME and a MXR_WORKER_SPOOL of its own.",
                )
            strays = kill_strays(folder)
            if strays:
                _log.warning("%s: killed %d processes that an earlier worker left", self._post.slot.name, len(strays))
            try:
                self._serve()
            finally:
                # Before the slot is free for another process of this name, which would be signed off in its stead.
                sign_off([self])

    def leave(self) -> None:
        """Tell the registry that this slot serves no more, if it can be told: it would find out later."""
        id, self._id = self._id, ""
        if id:
            with contextlib.suppress(MxrError):
                self._post.client.leave(id)

    def _serve(self) -> None:
        settings, faults = self._post.settings, 0
        self._register()
        while not self._stopping.asked.is_set():
            lease = self._claim()
            if lease is None:
                if settings.drain or (settings.job is not None and self._closed(settings.job)):
                    return
                continue
            failure = self._work(lease)
            if settings.once:
                return
            faults = faults + 1 if failure is not None and _own(failure) else 0
            if faults:
                # A host that is at fault itself must not take job after job and spoil each.
                self._stopping.asked.wait(min(60.0, 2.0**faults))

    def _work(self, lease: job_protocol.Lease) -> CompileFailure | None:
        _log.info("job %s: attempt %d on %s", lease.job[:12], lease.attempt, self._post.slot.name)
        self.busy = True
        try:
            failure = attempt(self._post, lease)
        finally:
            self.busy = False
        if failure is not None and (failure.kind == "hang" or failure.name in UNFIT):
            self._demand_health(failure)
        return failure

    def _demand_health(self, failure: CompileFailure) -> None:
        """Raises `Temporary`, which ends this slot, where its target no longer works."""
        post = self._post
        folder = post.spool.slot(post.slot.name) / "probe"
        for target in range(len(post.slot.can.targets)):
            ill = probe(post.slot.interpreter(post.interpreter, target, post.gpus), post.slot.kind, folder)
            if ill is not None:
                raise Temporary(
                    f"{post.slot.name} stands aside: after a compile that failed ({failure.message}) a trial on it "
                    f"fails too: {ill.message}",
                    hint="Look at the GPU (dmesg, rocm-smi), reset it or restart the host, then start the worker.",
                )

    def _register(self) -> None:
        post = self._post
        worker = self._reach(lambda: post.client.register(post.slot.name, post.slot.can))
        self._id = worker.id if worker is not None else ""
        if worker is not None:
            _log.info("%s: registered", post.slot.name)

    def _claim(self) -> job_protocol.Lease | None:
        settings = self._post.settings
        wait = 0.0 if settings.drain else LONG

        def claim() -> job_protocol.Lease | None:
            try:
                return self._post.client.claim(self._id, wait=wait, job=settings.job)
            except NotFound:
                if self._stopping.asked.is_set():
                    return None
                if settings.job is not None:
                    self._post.client.client.job(settings.job)
                # The registry has a new database, or has forgotten a worker that was away for long.
                self._id = self._post.client.register(self._post.slot.name, self._post.slot.can).id
                return None

        return self._reach(claim)

    def _closed(self, job: str) -> bool:
        found = self._reach(lambda: self._post.client.client.job(job))
        return found is None or found.state not in job_protocol.OPEN

    def _reach(self, call: Callable[[], T]) -> T | None:
        """What `call` gives, called until the registry answers; None when the worker is told to stop meanwhile."""
        pause, told = AGAIN[0], False
        while not self._stopping.asked.is_set():
            try:
                return call()
            except MxrError as problem:
                if not (isinstance(problem, (Unreachable, Temporary)) or (type(problem) is MxrError and self._id)):
                    raise
                # A fault of the registry's own (500) is no reason to go, once it has known us.
                if not told:
                    _log.warning("%s: %s Trying again.", self._post.slot.name, problem.message)
                told = True
            self._stopping.asked.wait(pause)
            pause = min(pause * 1.5, AGAIN[1])
        return None


def sign_off(leaving: Iterable[SlotLoop]) -> None:
    """These slots leave, all at once, and a registry that does not answer delays that for a moment only."""
    threads = [threading.Thread(target=each.leave, daemon=True) for each in leaving]
    for thread in threads:
        thread.start()
    end = time.monotonic() + GOODBYE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _own(failure: CompileFailure) -> bool:
    """Whether a failure is this host's own."""
    return failure.name == "worker" or failure.name in UNFIT
