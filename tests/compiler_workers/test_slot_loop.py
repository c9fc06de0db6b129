"""The loop of a slot: which errors of the registry it survives, and how it stops."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxr.errors import ConflictError, MxrError, NotAllowedError, NotFoundError, TemporaryError, UnreachableError
from mxr.protocol.jobs import Claim, RegisterWorker
from mxr_workers.slot_loop import SlotLoop, StopSignal
from mxr_workers.slots import locked
from mxr_workers.spool import Spool


class FakeRegistry:
    """A registry whose claims raise these errors one after the other, and then stop the worker."""

    def __init__(self, stop: StopSignal, *errors: MxrError) -> None:
        self.calls: list[str] = []
        self.names: list[str] = []
        self.secrets: list[str] = []
        self.taken: set[str] = set()
        self._stop, self._errors = stop, iter(errors)

    def register(self, message: RegisterWorker) -> None:
        self.calls.append("register")
        self.names.append(message.name)
        if message.name in self.taken:
            raise ConflictError("Another worker is registered as this, and it is live.")

    def claim(self, claim: Claim) -> None:
        self.calls.append("claim")
        self.secrets.append(claim.lease)
        problem = next(self._errors, None)
        if problem is not None:
            raise problem
        self._stop.begin(0.0)

    def leave(self, credential: str) -> None:
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


def test_a_claim_keeps_its_secret_until_it_is_answered(tmp_path: Path) -> None:
    """The registry may have given the lease of a claim whose reply was lost."""
    slot, registry = loop(tmp_path, UnreachableError(), UnreachableError(), NotFoundError("There is no worker."))
    slot.run()
    first = registry.secrets[0]
    assert registry.secrets == [first] * 4 and registry.calls[-3:] == ["register", "claim", "leave"]
    assert slot._secret != first, "the next claim is another one"


def test_a_worker_whose_name_is_taken_takes_another(tmp_path: Path) -> None:
    slot, registry = loop(tmp_path)
    registry.taken = {"h/ref"}
    slot.run()
    assert registry.names[0] == "h/ref" and registry.names[1].startswith("h/ref~") and len(registry.names) == 2
    again, later = loop(tmp_path)
    later.taken = {"h/ref"}
    again.run()
    assert later.names == registry.names, "the same one after a restart"


def test_the_credential_of_a_slot_is_its_own_and_private(tmp_path: Path) -> None:
    first, second = Spool(tmp_path).credential("h/gpu0"), Spool(tmp_path).credential("h/gpu1")
    assert first != second and Spool(tmp_path).credential("h/gpu0") == first
    file = tmp_path / "credentials" / "h-gpu0"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("cut")
    assert len(Spool(tmp_path).credential("h/gpu0")) == 43


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
