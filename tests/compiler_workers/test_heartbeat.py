"""Keeping a lease: what is told, what is kept when the registry is away, and when the work must stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mxr.artifact.key import Key
from mxr.artifact.manifest import File, Manifest
from mxr.artifact.qualities import Demands
from mxr.errors import Conflict, Unreachable
from mxr.protocol import jobs as job_protocol
from mxr_workers import heartbeat as tending
from mxr_workers.failures import CompileFailure
from mxr_workers.heartbeat import LeaseHeartbeat
from mxr_workers.run_job import kind_for

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def lease(**more: Any) -> job_protocol.Lease:
    key = Key("xxh3:" + "0" * 32, "ref", "2.15", (("x", (1, 3)),))
    model = Manifest((File("model.onnx", 0, EMPTY, ()),))
    return job_protocol.Lease("ab" * 16, 7, 0.3, key, Demands(), model, "model.onnx", **more)


class Hearing:
    """A registry that hears heartbeats; `answer` may raise."""

    def __init__(self, answer: Callable[[int], job_protocol.HeartbeatReply]) -> None:
        self.beats: list[job_protocol.Heartbeat] = []
        self._answer, self._came = answer, threading.Condition()

    def heartbeat(self, job: str, beat: job_protocol.Heartbeat) -> job_protocol.HeartbeatReply:
        with self._came:
            self.beats.append(beat)
            self._came.notify_all()
        return self._answer(len(self.beats))

    def heard(self, count: int) -> None:
        """Waits for so many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.beats) >= count, 20)


def fine(number: int) -> job_protocol.HeartbeatReply:
    return job_protocol.HeartbeatReply(0.3)


def test_phase_and_log_are_told_once_and_the_rest_comes_at_the_end() -> None:
    registry = Hearing(fine)
    with LeaseHeartbeat(registry, lease()) as kept:  # type: ignore[arg-type]
        kept.phase("compile")
        kept.hear(b"one\n")
        registry.heard(4)
        kept._over.set()
        kept._thread.join()
        kept.hear(b"two\0\n")
        assert kept.close() == "two?\n"
    assert {beat.fence for beat in registry.beats} == {7}
    assert "".join(beat.log for beat in registry.beats) == "one\n"
    assert registry.beats[-1].phase == "compile"


def test_a_lost_lease_stops_the_work() -> None:
    def lost(number: int) -> job_protocol.HeartbeatReply:
        raise Conflict()

    with LeaseHeartbeat(Hearing(lost), lease()) as kept:  # type: ignore[arg-type]
        kept._thread.join(20)
        assert kept.stop == "lost" and kept.watch(lambda: False).stop()


def test_a_cancelled_job_stops_the_work_and_a_shutdown_does() -> None:
    registry = Hearing(lambda number: job_protocol.HeartbeatReply(0.3, cancelled=True))
    with LeaseHeartbeat(registry, lease()) as kept:  # type: ignore[arg-type]
        registry.heard(2)
        assert kept.stop == "cancelled"
    with LeaseHeartbeat(Hearing(fine), lease()) as kept:  # type: ignore[arg-type]
        assert kept.watch(lambda: True).stop() and not kept.watch(lambda: False).stop()


def test_while_the_registry_is_away_the_work_goes_on_and_the_log_is_kept() -> None:
    def away(number: int) -> job_protocol.HeartbeatReply:
        if number < 3:
            raise Unreachable()
        return job_protocol.HeartbeatReply(0.3)

    registry = Hearing(away)
    with LeaseHeartbeat(registry, lease()) as kept:  # type: ignore[arg-type]
        kept.hear(b"kept\n")
        registry.heard(4)
        assert kept.stop is None
        kept.close()
    assert "".join(beat.log for beat in registry.beats[2:]) == "kept\n"


def test_letters_that_come_in_two_parts_stay_whole() -> None:
    kept = LeaseHeartbeat(Hearing(fine), lease())  # type: ignore[arg-type]
    for byte in "Größe\n".encode():
        kept.hear(bytes([byte]))
    assert kept._log == "Größe\n"


def test_a_log_that_cannot_be_told_is_bounded() -> None:
    kept = LeaseHeartbeat(Hearing(fine), lease())  # type: ignore[arg-type]
    for _ in range(40):
        kept.hear(b"x" * (tending.KEPT // 8))
    assert len(kept._log) <= tending.KEPT and tending.GAP in kept._log


def test_a_second_crash_is_a_poison() -> None:
    crash = CompileFailure("poison-suspect", "crashed", "It crashed.")
    assert [kind_for(crash, lease(attempt=number)) for number in (1, 2, 3)] == ["transient", "poison", "poison"]
    assert kind_for(CompileFailure("permanent", "refused", "no"), lease()) == "permanent"
    assert kind_for(CompileFailure("hang", "deadline", "no"), lease(attempt=3)) == "transient"
