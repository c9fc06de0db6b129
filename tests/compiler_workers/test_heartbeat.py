"""Lease heartbeats: what they report, what they keep while the registry is unreachable, and when the work must stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from harness.workers import secret_of

from mxr.artifact.attributes import Constraints
from mxr.artifact.key import Key
from mxr.artifact.manifest import File, Manifest
from mxr.client.worker import HeldLease
from mxr.errors import ConflictError, UnreachableError
from mxr.protocol import jobs as job_protocol
from mxr_workers import heartbeat as module
from mxr_workers.heartbeat import LeaseHeartbeat

SECRET = secret_of("a lease")
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def lease(**more: Any) -> HeldLease:
    key = Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (1, 3)),))
    model = Manifest((File("model.onnx", 0, EMPTY, ()),))
    return HeldLease("ab" * 16, 0.3, key, Constraints(), model, "model.onnx", **more, secret=SECRET)


class FakeRegistry:
    """Records heartbeats. `answer` gets their number and may raise."""

    def __init__(self, answer: Callable[[int], job_protocol.HeartbeatReply]) -> None:
        self.beats: list[job_protocol.Heartbeat] = []
        self._answer, self._arrived = answer, threading.Condition()

    def heartbeat(self, job: str, beat: job_protocol.Heartbeat) -> job_protocol.HeartbeatReply:
        with self._arrived:
            self.beats.append(beat)
            self._arrived.notify_all()
        return self._answer(len(self.beats))

    def wait_for(self, count: int) -> None:
        """Wait for this many heartbeats."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.beats) >= count, 20)


def accept(number: int) -> job_protocol.HeartbeatReply:
    return job_protocol.HeartbeatReply(0.3)


def test_phase_and_log_are_reported_once_and_close_returns_the_rest() -> None:
    registry = FakeRegistry(accept)
    with LeaseHeartbeat(registry, lease()) as heartbeat:
        heartbeat.phase("compile")
        heartbeat.add_log(b"one\n")
        registry.wait_for(4)
        heartbeat._ended.set()
        heartbeat._thread.join()
        heartbeat.add_log(b"two\0\n")
        assert heartbeat.close() == "two?\n"
    assert {beat.lease for beat in registry.beats} == {SECRET}
    assert "".join(beat.log for beat in registry.beats) == "one\n"
    assert registry.beats[-1].phase == "compile"


def test_a_lost_lease_stops_the_work() -> None:
    def lost(number: int) -> job_protocol.HeartbeatReply:
        raise ConflictError()

    with LeaseHeartbeat(FakeRegistry(lost), lease()) as heartbeat:
        heartbeat._thread.join(20)
        assert heartbeat.stop == "lost" and heartbeat.observer(lambda: False).stop()


def test_a_cancelled_job_stops_the_work_and_so_does_the_worker() -> None:
    registry = FakeRegistry(lambda number: job_protocol.HeartbeatReply(0.3, cancelled=True))
    with LeaseHeartbeat(registry, lease()) as heartbeat:
        registry.wait_for(2)
        assert heartbeat.stop == "cancelled"
    with LeaseHeartbeat(FakeRegistry(accept), lease()) as heartbeat:
        assert heartbeat.observer(lambda: True).stop() and not heartbeat.observer(lambda: False).stop()


def test_work_continues_and_the_log_is_kept_while_the_registry_is_unreachable() -> None:
    def unreachable(number: int) -> job_protocol.HeartbeatReply:
        if number < 3:
            raise UnreachableError()
        return job_protocol.HeartbeatReply(0.3)

    registry = FakeRegistry(unreachable)
    with LeaseHeartbeat(registry, lease()) as heartbeat:
        heartbeat.add_log(b"kept\n")
        registry.wait_for(4)
        assert heartbeat.stop is None
        heartbeat.close()
    assert "".join(beat.log for beat in registry.beats[2:]) == "kept\n"


def test_a_character_that_arrives_in_two_chunks_stays_whole() -> None:
    heartbeat = LeaseHeartbeat(FakeRegistry(accept), lease())
    for byte in "Größe\n".encode():
        heartbeat.add_log(bytes([byte]))
    assert heartbeat._log == "Größe\n"


def test_a_log_that_cannot_be_reported_is_bounded() -> None:
    heartbeat = LeaseHeartbeat(FakeRegistry(accept), lease())
    for _ in range(40):
        heartbeat.add_log(b"x" * (module.MAX_PENDING_LOG // 8))
    assert len(heartbeat._log) <= module.MAX_PENDING_LOG and module.LOG_GAP in heartbeat._log
