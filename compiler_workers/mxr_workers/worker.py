"""The worker process: one thread for each slot. It never imports migraphx; only its children do.

A slot claims a job, runs it and claims the next, until the worker stops or the target no longer works.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from mxr.client.registry import Client
from mxr.client.retry import Attempts, until
from mxr.client.worker import HeldLease, WorkerClient
from mxr.configuration.config_file import home_dir, user_config_dir
from mxr.errors import (
    ConflictError,
    MxrError,
    NotFoundError,
    NoWorkerError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
    UsageError,
)
from mxr.host_facts import Host
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.sandbox.policy import SYSTEM

from .failures import HOST_FAULTS, CompileFailure
from .interpreter import Interpreter, InterpreterInfo, describe_interpreter, open_walls, probe, with_walls
from .ort_recording import with_runtime
from .run_job import SlotContext, report_kept, run_job
from .sandbox import kill_strays
from .settings import EVERYBODY, WorkerSettings
from .slots import CompileSlot, find_slots, locked
from .spool import Spool, new_secret

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


EXIT_SECONDS = 15.0
"""Seconds after the grace period in which a stopped compile is killed and its job returned to the queue."""

_log = logging.getLogger("mxr-worker")


@dataclass(frozen=True, slots=True)
class WallReport:
    """What the walls around compiles hold. `open`: `{"property","what"}` that a child could do; `failed`: why none are.

    `way`: what made them; empty where nothing did. A report without `open` and `failed` is that of a host where all
    walls hold.
    """

    way: str = ""
    failed: str = ""
    open: tuple[Mapping[str, str], ...] = ()

    @property
    def problem(self) -> str:
        """What is open, in a sentence; empty where nothing is."""
        if not self.open:
            return self.failed
        named = ", ".join(each["what"] for each in self.open[:3])
        rest = f", and {len(self.open) - 3} more" if len(self.open) > 3 else ""
        return f"The walls around compiles are not whole: a model can {named}{rest}."


class WorkerProcess:
    """All slots of one process. `stop` tells them to stop, for example from a signal handler."""

    def __init__(self, settings: WorkerSettings, host: Host) -> None:
        self.stop = StopSignal()
        self._settings, self._host = settings, host
        self._interpreter = Interpreter(settings.python, settings.environ)
        self._spool = Spool(settings.spool)
        self._client = Client(settings.registry)
        self._problems: list[MxrError] = []
        self._walled = False

    def describe_interpreter(self) -> InterpreterInfo:
        """What the interpreter supports. Raises `UsageError` where it has no usable migraphx."""
        folder, kinds = self._about, self._settings.kinds
        found = describe_interpreter(self._interpreter, folder)
        uses_gpu = "gpu" in found.targets and "gpu" in (kinds or ("gpu",)) and self._host.targets
        return with_runtime(found, self._interpreter, folder) if uses_gpu else found

    @property
    def _about(self) -> Path:
        return self._spool.folder / "about" / self._settings.name.replace("/", "-")

    def close_walls(self, info: InterpreterInfo) -> WallReport:
        """Have all further children run behind walls, as the settings say, and return what they hold.

        Raises `UsageError` where all are required and one is open.
        """
        mode = self._settings.sandbox
        if mode == "off":
            return WallReport(failed="Compiles run without a sandbox: a hostile model has all rights of this worker.")
        program = shutil.which("bwrap", path=self._settings.environ.get("PATH", os.defpath))
        report = self._close(info, program) if program else WallReport()
        if program and report.problem:
            _log.info("bubblewrap is not used: %s", report.problem)
        if not program or report.problem:
            report = self._close(info, "")
        if mode == "require" and report.problem:
            raise UsageError(
                f"{report.problem} The setting worker.sandbox requires all walls.",
                hint="docs/compiling.md tells what each kernel has; `auto` runs with those that this host has.",
            )
        return report

    def _close(self, info: InterpreterInfo, bubblewrap: str) -> WallReport:
        protected = self._protected()
        walled = with_walls(self._interpreter, info, protected, self._settings.memory, bubblewrap)
        try:
            report = WallReport(walled.way or "", open=tuple(open_walls(walled, self._about, protected)))
        except UsageError as problem:
            return WallReport(failed=problem.message)
        self._interpreter, self._walled = walled, not report.open
        return report

    def _protected(self) -> list[Path]:
        """What no child may read: the files of this user and this worker."""
        environ, registry = self._settings.environ, self._settings.registry
        own = [self._spool.folder, *(self._spool.folder / name for name in ("credentials", "models", "slots"))]
        named = [Path(each).absolute() for each in (user_config_dir(environ), registry.token_file) if each]
        home = home_dir(environ)
        # That of a service is often a folder of the system, which is no secret.
        private = home is not None and not any(home.is_relative_to(each) for each in SYSTEM)
        return [*own, *named, *([home] if home is not None and private else [])]

    def slots(self, info: InterpreterInfo) -> tuple[CompileSlot, ...]:
        """The slots to serve. Raises `NoWorkerError`."""
        slots = find_slots(self._host, info, self._settings.kinds, self._settings.name, self._settings.cross)
        trusts = None if self._walled or EVERYBODY in self._settings.trust else self._settings.trust
        found = tuple(replace(slot, can=replace(slot.can, walls=self._walled, trusts=trusts)) for slot in slots)
        return found if self._settings.job is None else self._slot_for(found, self._settings.job)

    def _slot_for(self, slots: Sequence[CompileSlot], job: str) -> tuple[CompileSlot, ...]:
        """The slot that can run one job, preferably without a cross-compile."""
        request = self._client.job(job).request
        candidates = [(slot, found) for slot in slots if (found := capabilities.able(slot.can, request)) is not None]
        if candidates:
            return (min(candidates, key=lambda each: each[1].cross)[0],)
        raise NoWorkerError(
            f"This host cannot compile job {job[:12]}.",
            hint="`mxr-worker host` shows what this host can compile; the job stays queued for another worker.",
        )

    def run(self) -> None:
        """Serve all slots until the worker is told to stop or its task is done. Raises the first error of a slot."""
        running, info = {}, self.describe_interpreter()
        walls = self.close_walls(info)
        if walls.problem:
            _log.warning("%s %s", walls.problem, self._taken())
        if "onnxruntime" in info.refusals:
            _log.warning("ONNX Runtime cannot be used for recordings: %s", info.refusals["onnxruntime"])
        for slot in self.slots(info):
            loop = SlotLoop(self._context(slot), self.stop)
            thread = threading.Thread(target=self._serve, args=(slot, loop), name=slot.name, daemon=True)
            thread.start()
            running[thread] = loop
        while any(thread.is_alive() for thread in running) and not self._may_exit(running):
            for thread in running:
                thread.join(0.1)
        unregister_all(loop for thread, loop in running.items() if thread.is_alive())
        if self._problems:
            raise self._problems[0]

    def _taken(self) -> str:
        """Whose jobs are taken while a wall is open, in a sentence."""
        trust = self._settings.trust
        if self._settings.job is not None:
            return "It runs the one job that it was told to run."
        if EVERYBODY in trust:
            return "It takes the jobs of everybody, as --trust says."
        return f"It takes only jobs of {', '.join(['its own principal', *trust])}; --trust names others."

    def _context(self, slot: CompileSlot) -> SlotContext:
        client, gpus = WorkerClient(self._client), len(self._host.targets)
        return SlotContext(slot, self._settings, client, self._interpreter, self._spool, gpus, self.stop.expired)

    def _may_exit(self, running: dict[threading.Thread, SlotLoop]) -> bool:
        """Whether to exit while threads run: idle slots only poll the registry, busy ones get their grace period."""
        if not self.stop.requested.is_set():
            return False
        busy = any(thread.is_alive() and loop.busy for thread, loop in running.items())
        return not busy or time.monotonic() > self.stop.deadline + EXIT_SECONDS

    def _serve(self, slot: CompileSlot, loop: SlotLoop) -> None:
        try:
            loop.run()
        except MxrError as problem:
            _log.error("%s: %s", slot.name, problem.traced)
            self._problems.append(problem)
        except Exception as problem:
            _log.exception("%s: internal error of mxr-worker", slot.name)
            self._problems.append(MxrError(f"{type(problem).__name__}: {problem}"))
