"""The worker process: one thread for each slot. It never imports migraphx; only its children do."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mxr.client.registry import Client
from mxr.client.worker import WorkerClient
from mxr.configuration.config_file import home_dir, user_config_dir
from mxr.errors import (
    MxrError,
    NoWorkerError,
    UsageError,
)
from mxr.host_facts import Host
from mxr.protocol import capabilities
from mxr.sandbox.policy import SYSTEM
from mxr.trust.keys import SigningKey

from .interpreter import Interpreter, InterpreterInfo, describe_interpreter, open_walls, with_walls
from .ort_recording import with_runtime
from .run_job import SlotContext
from .settings import EVERYBODY, WorkerSettings
from .signing import find_key
from .slot_loop import SlotLoop, StopSignal, unregister_all
from .slots import CompileSlot, find_slots
from .spool import Spool

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
        self._key: SigningKey | None = None

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
        files = (user_config_dir(environ), registry.token_file, self._settings.signing_key)
        named = [Path(each).absolute() for each in files if each]
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
        self._key = find_key(self._settings.signing_key, named=self._settings.key_file is not None)
        if self._key is not None:
            _log.info("signs with the key %s", self._key.public.id)
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
        running = (client, self._interpreter, self._spool, gpus, self.stop.expired)
        return SlotContext(slot, self._settings, *running, self._key)

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
