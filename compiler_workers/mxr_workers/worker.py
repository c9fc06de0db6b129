"""The worker: all slots of one process, each in a thread of its own. It never imports migraphx; its children do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from mxr.client.registry import Client
from mxr.client.worker import WorkerClient
from mxr.errors import MxrError, NoWorker
from mxr.host_facts import Host
from mxr.protocol import capabilities
from mxr_workers.interpreter import Interpreter, InterpreterInfo, ask
from mxr_workers.settings import WorkerSettings
from mxr_workers.slots import CompileSlot, find_slots
from mxr_workers.spool import Spool

from .ort_recording import with_runtime
from .run_job import SlotContext
from .slot_loop import SlotLoop, StopSignal, sign_off

LAST_WORDS = 15.0
"""Seconds beyond the grace in which a stopped compile is killed and its job handed back."""

_log = logging.getLogger("mxr-worker")


class WorkerProcess:
    """All slots of one process. `stopping` tells it to stop, from a signal's handler say."""

    def __init__(self, settings: WorkerSettings, host: Host) -> None:
        self.stopping = StopSignal()
        self._settings, self._host = settings, host
        self._interpreter = Interpreter(settings.python, settings.outer)
        self._spool = Spool(settings.spool)
        self._client = Client(settings.registry)
        self._problems: list[MxrError] = []

    def about(self) -> InterpreterInfo:
        """What the interpreter offers. Raises `Usage` where it has no usable migraphx."""
        folder, kinds = self._spool.folder / "about" / self._settings.name.replace("/", "-"), self._settings.kinds
        found = ask(self._interpreter, folder)
        on_gpu = "gpu" in found.targets and "gpu" in (kinds or ("gpu",)) and self._host.targets
        return with_runtime(found, self._interpreter, folder) if on_gpu else found

    def slots(self, about: InterpreterInfo) -> tuple[CompileSlot, ...]:
        """The slots to serve. Raises `NoWorker`."""
        found = find_slots(self._host, about, self._settings.kinds, self._settings.name)
        return found if self._settings.job is None else self._for_job(found, self._settings.job)

    def _for_job(self, slots: Sequence[CompileSlot], job: str) -> tuple[CompileSlot, ...]:
        request = self._client.job(job).request
        ways = [(slot, way) for slot in slots if (way := capabilities.able(slot.can, request)) is not None]
        if ways:
            return (min(ways, key=lambda each: each[1].cross)[0],)
        raise NoWorker(
            f"This host cannot compile job {job[:12]}.",
            hint="`mxr-worker host` shows what it can; the job stays queued for another worker.",
        )

    def run(self) -> None:
        """Serve until told to stop, or what was asked is done. Raises the first problem of a slot, if any."""
        serving, about = {}, self.about()
        if "onnxruntime" in about.refusals:
            _log.warning("ONNX Runtime here records nothing: %s", about.refusals["onnxruntime"])
        for slot in self.slots(about):
            each = SlotLoop(self._post(slot), self.stopping)
            thread = threading.Thread(target=self._guarded, args=(slot, each), name=slot.name, daemon=True)
            thread.start()
            serving[thread] = each
        while any(thread.is_alive() for thread in serving) and not self._may_leave(serving):
            for thread in serving:
                thread.join(0.1)
        sign_off(each for thread, each in serving.items() if thread.is_alive())
        if self._problems:
            raise self._problems[0]

    def _post(self, slot: CompileSlot) -> SlotContext:
        client, gpus = WorkerClient(self._client), len(self._host.targets)
        return SlotContext(slot, self._settings, client, self._interpreter, self._spool, gpus, self.stopping.now)

    def _may_leave(self, serving: dict[threading.Thread, SlotLoop]) -> bool:
        """Idle slots wait for the registry, and are not waited for; a busy one gets its grace, and a little more."""
        if not self.stopping.asked.is_set():
            return False
        busy = any(thread.is_alive() and each.busy for thread, each in serving.items())
        return not busy or time.monotonic() > self.stopping.until + LAST_WORDS

    def _guarded(self, slot: CompileSlot, each: SlotLoop) -> None:
        try:
            each.run()
        except MxrError as problem:
            _log.error("%s: %s", slot.name, problem.message)
            self._problems.append(problem)
        except Exception as problem:
            _log.exception("%s: a fault of mxr-worker", slot.name)
            self._problems.append(MxrError(f"{type(problem).__name__}: {problem}"))
