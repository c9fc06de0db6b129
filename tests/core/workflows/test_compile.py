"""Waiting for a compile: how models are split, outages of the registry, what a closed job means."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob
from mxr.client.retry import OUTAGE
from mxr.errors import CompileFailedError, NotCompiledError, TemporaryError, UnreachableError
from mxr.protocol import jobs as job_protocol
from mxr.workflows import compile as compile_workflow

KEY = Key("sha256:" + "0" * 64, "ref", "2.15", (("x", (1, 3)),))


def job(state: str, version: int = 1, **more: Any) -> job_protocol.Job:
    return job_protocol.Job("ab" * 16, state, KEY.digest, Request(KEY), 1, version, 100.0, 103.0, **more)


class Scripted:
    """What a registry answers to one question after the other; an error is raised."""

    def __init__(self, *answers: Any, log: bytes = b"") -> None:
        self.answers, self.asked, self._log = list(answers), [], log

    def job(self, identity: str, *, wait: float = 0, version: int | None = None) -> job_protocol.Job:
        self.asked.append(version)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def log(self, identity: str, offset: int = 0) -> tuple[bytes, int]:
        return self._log[offset:], len(self._log)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that would have been made."""
    paused: list[float] = []
    monkeypatch.setattr(time, "sleep", paused.append)
    return paused


def test_files_are_cut_at_fixed_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_workflow, "PIECE", 2 << 20)
    data = bytes(range(256)) * (5 << 12)
    (tmp_path / "weights").write_bytes(data)
    file = compile_workflow._split(tmp_path / "weights", "w")
    parts = [data[at : at + (2 << 20)] for at in range(0, len(data), 2 << 20)]
    assert file.blobs == tuple(Blob(sha256(part).hexdigest(), len(part)) for part in parts)
    assert len(parts) == 3 and file.sha256 == sha256(data).hexdigest()
    assert len(compile_workflow._split(tmp_path / "weights", "w", whole=True).blobs) == 1
    (tmp_path / "empty").touch()
    assert compile_workflow._split(tmp_path / "empty", "e").blobs == ()


def test_following_bears_a_registry_that_restarts(quick: list[float]) -> None:
    client = Scripted(
        UnreachableError(), job("running", 2, worker="w", started_at=101.0), TemporaryError(), job("done", 3)
    )
    seen = list(compile_workflow.follow(client, job("queued")))
    assert [each.job.state for each in seen if each.away is None] == ["queued", "queued", "running", "running", "done"]
    assert sum(each.away is not None for each in seen) == 2
    assert client.asked == [1, 1, 2, 2], "a long poll waits for what comes after the version that is known"
    assert next(each.running for each in seen if each.job.state == "running") == pytest.approx(2.0, abs=0.5)


def test_following_ends_at_its_deadline() -> None:
    seen = list(compile_workflow.follow(Scripted(), job("queued"), deadline=0.0))
    assert [each.job.state for each in seen] == ["queued"]


def test_the_log_comes_once(quick: list[float]) -> None:
    client = Scripted(job("done", 2), log=b"all of it")
    assert [each.log for each in compile_workflow.follow(client, job("running"), log=True)] == ["all of it", ""]


def test_a_compile_request_survives_an_outage(quick: list[float]) -> None:
    class Restarting:
        def __init__(self) -> None:
            self.answers: list[Any] = [UnreachableError(), TemporaryError(), job("queued")]

        def request_compile(self, wanted: Any) -> job_protocol.Job:
            found = self.answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

    wanted: Any = SimpleNamespace(ask=None, model=None, calibration=None)
    client: Any = Restarting()
    assert compile_workflow.request_compile(client, wanted).state == "queued"
    assert len(quick) == 2


def test_following_ends_when_the_registry_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    client: Any = Scripted(*[UnreachableError()] * 1000)
    with pytest.raises(UnreachableError):
        list(compile_workflow.follow(client, job("queued")))
    assert now[0] == pytest.approx(OUTAGE, abs=2.0)


def test_what_a_closed_job_means() -> None:
    client: Any = Scripted(log=b"first\nlast\n")
    assert compile_workflow.outcome(client, job("done", artifact="a" * 64)) == "a" * 64
    failure = job_protocol.JobFailure("permanent", "Unknown operator: Foo", "unsupported")
    with pytest.raises(CompileFailedError, match="Unknown operator: Foo") as failed:
        compile_workflow.outcome(client, job("failed", failure=failure))
    assert failed.value.context["kind"] == "permanent"
    assert failed.value.context["log"] == ["first", "last"]
    for state in ("queued", "running", "cancelled"):
        with pytest.raises(NotCompiledError) as open_still:
            compile_workflow.outcome(client, job(state))
        assert open_still.value.context == {"job": "ab" * 16, "state": state}
