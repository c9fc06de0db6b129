"""A worker that the network leaves alone with its job: for longer than its lease, and for less; or lies to it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from end_to_end.relay import Relay
from end_to_end.stack import Host, Registry
from harness.scale import SOAK

from .conftest import REF, Worker, asked, closed, eventually, running

LONG = ("env", "MXR_WORK_LEASE=30")
"""A lease that no cut of these tests outlasts, on however busy a machine."""

SIGNED = False
ON = ("embedded",)


@pytest.fixture
def relay(registry: Registry) -> Iterator[Relay]:
    """The network between one worker and the registry."""
    with Relay(registry.url) as found:
        yield found


def made(worker: Worker) -> bool:
    """Whether a worker's compile has left its program."""
    return any((worker.home / "xdg-cache").glob("mxr-worker/slots/*/work/verify/request.json"))


def taken_over(mxr: Host, registry: Registry, job: str, first: Worker, second: Worker) -> None:
    """The job is the second worker's, once and for all, and the first goes on with another one."""
    shown = mxr("jobs", job, "--json").json
    assert (shown["state"], shown["attempts"], shown["worker"]) == ("done", 2, f"{second.name}/ref")
    assert mxr("show", shown["artifact"], "--json").json["provenance"]["worker"] == f"{second.name}/ref"
    assert first.process.poll() is None, first.log.read_text()
    second.end(signal.SIGKILL)
    registry.fsck()


def next_job(mxr: Host, convnet: Path) -> str:
    """Who compiled the next job."""
    done = mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json
    assert done["source"] == "compiled"
    provenance = mxr("show", done["id"], "--json").json["provenance"]
    return str(provenance["worker"])


@pytest.mark.parametrize("silent", [False, True] if SOAK else [True])
def test_cut_off_for_longer_than_the_lease(
    mxr: Host,
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    convnet: Path,
    registry: Registry,
    relay: Relay,
    silent: bool,
) -> None:
    """It made the program, comes back, and may neither publish nor finish: the job is its successor's."""
    first = worker("first", url=relay.url, env={"MXR_TIMEOUT": "3"}).ready()
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    eventually(lambda: running(mxr, job))
    relay.cut(silent=silent)
    second = worker("second").ready()
    eventually(lambda: mxr.get(f"/v1/jobs/{job}")["worker"] == "second/ref")
    gate.touch()
    assert closed(mxr, job)["state"] == "done"
    eventually(lambda: made(first))
    relay.mend()
    eventually(lambda: first.said("the lease is lost"))
    taken_over(mxr, registry, job, first, second)
    assert next_job(mxr, convnet) == "first/ref"


def test_cut_off_when_it_wants_to_finish(
    mxr: Host,
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    convnet: Path,
    registry: Registry,
    relay: Relay,
) -> None:
    """Its program is uploaded, and the call that publishes it comes too late: refused, the successor's stays."""
    relay.cut_at(b"/finish ")
    first = worker("first", url=relay.url).ready()
    job = asked(mxr, marked())
    eventually(lambda: relay.is_cut)
    second = worker("second").ready()
    found = closed(mxr, job)
    before = mxr("show", found["artifact"], "--json").json
    relay.mend()
    eventually(lambda: first.said("the lease is lost, nothing was published"))
    taken_over(mxr, registry, job, first, second)
    assert mxr("show", found["artifact"], "--json").json == before
    assert next_job(mxr, convnet) == "first/ref"


def test_killed_when_it_wants_to_finish(
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    own_registry: Callable[..., Registry],
) -> None:
    """Its program is uploaded, and the call that publishes it is not answered: the next process sends it again."""
    registry = own_registry(through=LONG)
    with Relay(registry.url) as relay:
        relay.cut_at(b"/finish ")
        first = worker("one", url=relay.url).ready()
        mxr = host("asker", registry.url)
        job = asked(mxr, marked())
        eventually(lambda: relay.is_cut)
        first.end(signal.SIGKILL)
        kept = list(first.home.rglob("unreported.json"))
        assert len(kept) == 1 and kept[0].stat().st_mode & 0o077 == 0
        relay.mend()
        second = worker("one", url=relay.url)
        found = closed(mxr, job)
    assert (found["state"], found["attempts"], found["worker"]) == ("done", 1, "one/ref"), second.log.read_text()
    eventually(lambda: not kept[0].exists())
    registry.fsck()


CUTS = [("compile", True), ("PUT /v1/blobs/", False), ("/finish ", False)]
MORE_CUTS = [("compile", False), ("PUT /v1/blobs/", True)]


@pytest.mark.parametrize(("when", "silent"), CUTS + MORE_CUTS if SOAK else CUTS)
def test_cut_off_for_less_than_the_lease(
    host: Callable[..., Host],
    own_registry: Callable[..., Registry],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    when: str,
    silent: bool,
) -> None:
    """Whatever it was doing, it goes on, and finishes its own compile: one attempt, and nobody notices."""
    registry = own_registry(through=LONG)
    mxr = host("asker", registry.url)
    with Relay(registry.url) as relay:
        # An upload that hangs is told by this; a heartbeat that hangs must be given up long before the usual minute.
        hurry = {"MXR_TIMEOUT": "2"} if when.startswith("PUT") else {}
        one = worker("one", url=relay.url, env=hurry).ready()
        if when != "compile":
            relay.cut_at(when.encode(), silent=silent)
            gate.touch()
        job = asked(mxr, marked(compile=f"wait:{gate}"))
        if when == "compile":
            eventually(lambda: running(mxr, job))
            relay.cut(silent=silent)
        most = {"compile": 1, "/finish ": 2}.get(when, 5)
        eventually(lambda: relay.met >= most)
        relay.mend()
        gate.touch()
        found = closed(mxr, job)
    assert (found["state"], found["attempts"], found["worker"]) == ("done", 1, "one/ref"), one.log.read_text()
    assert "lost" not in one.log.read_text()
    registry.fsck()


@pytest.mark.parametrize(
    ("verb", "status", "met"),
    [("/claim ", "500 Internal Server Error", 2), ("/finish ", "403 Forbidden", 1), ("/heartbeat ", "500 Oops", 2)],
    ids=["claim", "finish", "heartbeat"],
)
def test_an_odd_answer_ends_a_job_at_most_and_never_the_worker(
    mxr: Host,
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    relay: Relay,
    verb: str,
    status: str,
    met: int,
) -> None:
    """A fault of the registry, or of a proxy before it: the worker is there when that is mended, and does the job."""
    one = worker("one", url=relay.url).ready()
    relay.answer(verb.encode(), status)
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    if verb != "/heartbeat ":
        gate.touch()
    eventually(lambda: relay.met >= met)
    relay.mend()
    gate.touch()
    found = closed(mxr, job)
    assert (found["state"], found["worker"]) == ("done", "one/ref"), one.log.read_text()
    assert one.process.poll() is None
