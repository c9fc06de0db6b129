"""The worker process: one thread for each slot. It never imports migraphx; only its children do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from mxr.client.registry import Client
from mxr.client.worker import WorkerClient
from mxr.errors import MxrError, NoWorkerError
from mxr.host_facts import Host
from mxr.protocol import capabilities
from mxr_workers.interpreter import Interpreter, InterpreterInfo, describe_interpreter
from mxr_workers.settings import WorkerSettings
from mxr_workers.slots import CompileSlot, find_slots
from mxr_workers.spool import Spool

from .ort_recording import with_runtime
from .run_job import SlotContext
from .slot_loop import SlotLoop, StopSignal, unregister_all

EXIT_SECONDS = 15.0
"""Seconds after the grace period in which a stopped compile is killed and its job returned to the queue."""

_log = logging.getLogger("mxr-worker")


class WorkerProcess:
    """All slots of one process. `stop` tells them to stop, for example from a signal handler."""

    def __init__(self, settings: WorkerSettings, host: Host) -> None:
        self.stop = StopSignal()
        self._settings, self._host = settings, host
        self._interpreter = Interpreter(settings.python, settings.environ)
        self._spool = Spool(settings.spool)
        self._client = Client(settings.registry)
        self._problems: list[MxrError] = []

    def describe_interpreter(self) -> InterpreterInfo:
        """What the interpreter supports. Raises `UsageError` where it has no usable migraphx."""
        folder, kinds = self._spool.folder / "about" / self._settings.name.replace("/", "-"), self._settings.kinds
        found = describe_interpreter(self._interpreter, folder)
        uses_gpu = "gpu" in found.targets and "gpu" in (kinds or ("gpu",)) and self._host.targets
        return with_runtime(found, self._interpreter, folder) if uses_gpu else found

    def slots(self, info: InterpreterInfo) -> tuple[CompileSlot, ...]:
        """The slots to serve. Raises `NoWorkerError`."""
        found = find_slots(self._host, info, self._settings.kinds, self._settings.name)
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
            _log.error("%s: %s", slot.name, problem.message)
            self._problems.append(problem)
        except Exception as problem:
            _log.exception("%s: internal error of mxr-worker", slot.name)
            self._problems.append(MxrError(f"{type(problem).__name__}: {problem}"))
