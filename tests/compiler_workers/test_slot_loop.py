"""The loop of a slot: which errors of the registry it survives, and how it stops."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mxr.errors import MxrError, NotAllowedError, TemporaryError, UnreachableError
from mxr_workers.slots import locked
from mxr_workers.spool import Spool
from mxr_workers.worker import SlotLoop, StopSignal


class FakeRegistry:
    """A registry whose claims raise these errors one after the other, and then stop the worker."""

    def __init__(self, stop: StopSignal, *errors: MxrError) -> None:
        self.calls: list[str] = []
        self._stop, self._errors = stop, iter(errors)

    def register(self, name: str, can: Any) -> Any:
        self.calls.append("register")
        return SimpleNamespace(id="w1")

    def claim(self, worker: str, *, wait: float, job: str | None) -> None:
        self.calls.append("claim")
        problem = next(self._errors, None)
        if problem is not None:
            raise problem
        self._stop.begin(0.0)

    def leave(self, worker: str) -> None:
        self.calls.append("leave")


class NoPauses(threading.Event):
    """Records pauses instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return self.is_set()


def loop(folder: Path, *errors: MxrError) -> tuple[SlotLoop, FakeRegistry]:
    """A slot with a registry that raises these errors."""
    stop = StopSignal()
    stop.requested = NoPauses()
    registry = FakeRegistry(stop, *errors)
    context = SimpleNamespace(
        slot=SimpleNamespace(name="h/ref", can=None),
        settings=SimpleNamespace(drain=False, job=None, once=False),
        client=registry,
        spool=Spool(folder),
    )
    return SlotLoop(context, stop), registry


@pytest.mark.parametrize(
    "problem", [UnreachableError(), TemporaryError(), MxrError("500")], ids=lambda each: type(each).__name__
)
def test_a_registered_worker_survives_an_error(tmp_path: Path, problem: MxrError) -> None:
    """Also an internal error of the registry, which has no code of its own."""
    slot, registry = loop(tmp_path, problem, problem)
    slot.run()
    assert registry.calls == ["register", "claim", "claim", "claim", "leave"]
    first, second = slot._stop.requested.pauses  # type: ignore[attr-defined]
    assert 0.375 <= first <= 0.5 and 0.75 <= second <= 1.0


def test_a_rejected_worker_ends(tmp_path: Path) -> None:
    slot, registry = loop(tmp_path, NotAllowedError())
    with pytest.raises(NotAllowedError):
        slot.run()
    assert registry.calls == ["register", "claim", "leave"]


def test_a_slot_that_another_process_serves_is_refused(tmp_path: Path) -> None:
    slot, registry = loop(tmp_path)
    with locked(Spool(tmp_path).slot("h/ref")), pytest.raises(TemporaryError, match="already serves"):
        slot.run()
    assert registry.calls == []
