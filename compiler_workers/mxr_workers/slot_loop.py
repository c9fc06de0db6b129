"""The loop of a slot: it claims a job, runs it and claims the next, until the worker stops or its target fails."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TypeVar

from mxr.client.retry import Attempts, until
from mxr.client.worker import HeldLease
from mxr.errors import (
    ConflictError,
    MxrError,
    NotFoundError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
)
from mxr.protocol import jobs as job_protocol

from .failures import HOST_FAULTS, CompileFailure
from .interpreter import probe
from .run_job import SlotContext, report_kept, run_job
from .sandbox import kill_strays
from .slots import locked
from .spool import new_secret

_log = logging.getLogger("mxr-worker")

T = TypeVar("T")

CLAIM_WAIT = 30.0
"""Seconds of one long poll for a job."""

UNREGISTER_TIMEOUT = 1.0
"""The most seconds that a worker waits, when it ends, for the registry to remove its slots."""


class StopSignal:
    """Whether the worker must stop, and the deadline of a running compile."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.deadline = float("inf")

    def begin(self, grace: float) -> None:
        """Stop within `grace` seconds; a second call stops at once."""
        self.deadline = time.monotonic() + (0.0 if self.requested.is_set() else grace)
        self.requested.set()

    def expired(self) -> bool:
        """Whether a running compile must end now."""
        return time.monotonic() >= self.deadline


class SlotLoop:
    """The loop of one slot. `busy`: whether it holds a lease."""

    def __init__(self, context: SlotContext, stop: StopSignal) -> None:
        self.busy = False
        self._context, self._stop = context, stop
        self._name, self._credential, self._secret = context.slot.name, "", new_secret()
        self._registered = False

    def run(self) -> None:
        """Run jobs until the worker stops.

        Raises `TemporaryError` where another process serves this slot or its target no longer works.
        """
        folder = self._context.spool.slot(self._context.slot.name)
        with locked(folder, blocking=self._context.settings.job is not None) as acquired:
            if not acquired:
                raise TemporaryError(
                    f"Another mxr-worker on this host already serves {self._context.slot.name}.",
                    hint="Stop it, or give this worker its own MXR_WORKER_NAME and MXR_WORKER_SPOOL.",
                )
            strays = kill_strays(folder)
            if strays:
                name = self._context.slot.name
                _log.warning("%s: killed %d processes that an earlier worker left running", name, len(strays))
            try:
                self._serve()
            finally:
                # Before the lock is released: otherwise this could remove the next process with the same name.
                unregister_all([self])

    def unregister(self) -> None:
        """Remove this slot from the registry. If the registry is unreachable, it notices the missing worker later."""
        known, self._registered = self._registered, False
        if known:
            with contextlib.suppress(MxrError):
                self._context.client.leave(self._credential)

    def _serve(self) -> None:
        settings, host_faults = self._context.settings, 0
        self._credential = self._context.spool.credential(self._context.slot.name)
        self._retry(self._register)
        self._retry(lambda: report_kept(self._context))
        while not self._stop.requested.is_set():
            lease = self._claim()
            if lease is None:
                if settings.drain or (settings.job is not None and self._closed(settings.job)):
                    return
                continue
            failure = self._run(lease)
            if settings.once:
                return
            host_faults = host_faults + 1 if failure is not None and _is_host_fault(failure) else 0
            if host_faults:
                # A faulty host must not claim job after job and fail each of them.
                self._stop.requested.wait(min(60.0, 2.0**host_faults))

    def _run(self, lease: HeldLease) -> CompileFailure | None:
        _log.info("job %s: attempt %d on %s", lease.job[:12], lease.attempt, self._context.slot.name)
        self.busy = True
        try:
            failure = run_job(self._context, lease)
        finally:
            self.busy = False
        if failure is not None and (failure.kind == "hang" or failure.name in HOST_FAULTS):
            self._check_targets(failure)
        return failure

    def _check_targets(self, failure: CompileFailure) -> None:
        """Raise `TemporaryError`, which disables this slot, where one of its targets no longer works."""
        context = self._context
        folder = context.spool.slot(context.slot.name) / "probe"
        for target in range(len(context.slot.can.targets)):
            problem = probe(
                context.slot.interpreter(context.interpreter, target, context.gpus), context.slot.kind, folder
            )
            if problem is not None:
                raise TemporaryError(
                    f"The slot {context.slot.name} is disabled: a compile failed ({failure.message}), and a test of "
                    f"its target fails too: {problem.message}",
                    hint="Check the GPU (dmesg, rocm-smi), reset it or restart the host, then start the worker again.",
                )

    def _register(self) -> None:
        """Register under the name of the slot; while another worker is live under it, under one of its own."""
        client, can = self._context.client, self._context.slot.can
        try:
            client.register(job_protocol.RegisterWorker(self._name, can, self._credential))
        except ConflictError as problem:
            own = f"{self._context.slot.name[:190]}~{sha256(self._credential.encode()).hexdigest()[:8]}"
            if self._name == own:
                raise
            _log.warning("%s This one is called %s.", problem.message, own)
            self._name = own
            client.register(job_protocol.RegisterWorker(own, can, self._credential))
        self._registered = True
        _log.info("%s: registered", self._name)

    def _claim(self) -> HeldLease | None:
        settings, client = self._context.settings, self._context.client
        wait = 0.0 if settings.drain else CLAIM_WAIT

        def claim() -> HeldLease | None:
            # Until its reply comes, a claim keeps its secret: the registry may have given the lease.
            try:
                lease = client.claim(job_protocol.Claim(self._credential, self._secret, wait, settings.job))
                self._secret = new_secret()
                return lease
            except NotFoundError:
                if self._stop.requested.is_set():
                    return None
                if settings.job is not None:
                    client.client.job(settings.job)
                # The registry has a new database, or removed a worker that was unreachable for long.
                self._register()
                return None

        return self._retry(claim)

    def _closed(self, job: str) -> bool:
        found = self._retry(lambda: self._context.client.client.job(job))
        return found is None or found.state not in job_protocol.OPEN

    def _retry(self, call: Callable[[], T]) -> T | None:
        """Repeat `call` until the registry answers, and return the answer; None when the worker must stop first."""
        attempts = Attempts(until(None, longest=30.0, also=(MxrError,)))
        while not self._stop.requested.is_set():
            try:
                return attempts.run(call)
            except MxrError as problem:
                passes = isinstance(problem, (UnreachableError, TemporaryError))
                # An internal error of the registry (500) does not end a worker that is already registered, nor does a
                # token that is being renewed.
                if not (
                    passes
                    or (self._registered and (type(problem) is MxrError or isinstance(problem, UnauthenticatedError)))
                ):
                    raise
                if not attempts.failures:
                    _log.warning("%s: %s Trying again.", self._context.slot.name, problem.traced)
                pause = attempts.pause_after(problem)
            self._stop.requested.wait(pause)
        return None


def unregister_all(loops: Iterable[SlotLoop]) -> None:
    """Unregister these slots in parallel; a registry that does not answer delays this by `UNREGISTER_TIMEOUT` only."""
    threads = [threading.Thread(target=loop.unregister, daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    end = time.monotonic() + UNREGISTER_TIMEOUT
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _is_host_fault(failure: CompileFailure) -> bool:
    """Whether this host caused a failure."""
    return failure.name == "worker" or failure.name in HOST_FAULTS
