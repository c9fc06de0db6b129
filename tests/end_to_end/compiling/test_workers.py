"""Workers that die, freeze, refuse and stop, with a job in their hands."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from end_to_end.stack import Host, Registry, finish
from harness.workers import lease_of, registered

from .conftest import GPU_HOST, PATIENCE, REF, Worker, asked, closed, eventually, running

ON = ("embedded",)


def test_a_worker_killed_in_the_middle(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """kill -9: nothing of its compile stays, and another worker does the job."""
    first = worker("first").ready()
    model = marked(compile=f"wait:{gate}")
    waiting = mxr.start("fetch", model, *REF, "--on-miss", "wait", "-v", "--json")
    assert waiting.stderr is not None
    line = next(line for line in waiting.stderr if line.startswith("waiting "))
    child = int(line.split()[1])
    first.end(signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{child}").exists())
    gate.touch()
    worker("second").ready()
    done = finish(waiting)
    assert done.code == 0, done
    shown = mxr("show", done.json["id"], "--json").json
    assert (shown["provenance"]["worker"], shown["provenance"]["attempt"]) == ("second/ref", 2)


def test_a_frozen_worker_cannot_finish_over_its_successor(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """Stopped for longer than its lease, it comes back with a program: refused, and it goes on with other jobs."""
    first = worker("first").ready()
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    eventually(lambda: running(mxr, job))
    first.send(signal.SIGSTOP)
    worker("second").ready()
    eventually(lambda: mxr.get(f"/v1/jobs/{job}")["worker"] == "second/ref")
    gate.touch()
    found = closed(mxr, job)
    assert (found["state"], found["attempts"]) == ("done", 2)
    first.send(signal.SIGCONT)
    eventually(lambda: first.said("the lease is lost"))
    assert mxr("show", found["artifact"], "--json").json["provenance"]["worker"] == "second/ref"
    assert mxr("jobs", job, "--json").json["artifact"] == found["artifact"]
    assert first.process.poll() is None


def test_a_stale_finish_is_refused(mxr: Host, registry: Registry, convnet: Path) -> None:
    """The registry itself: the secret of an earlier lease neither publishes nor fails nor keeps."""
    job = asked(mxr, convnet)
    can = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.15.0"}}
    ids = [registered(partial(_said, registry), name, can) for name in ("a", "b")]
    old = lease_of(partial(_said, registry), ids[0], job=job)
    _said(registry, "POST", f"/v1/jobs/{job}/handback", {"lease": old["secret"]})
    assert lease_of(partial(_said, registry), ids[1], job=job)["job"] == old["job"]
    artifact = {"key": old["key"], "manifest": old["model"]}
    failure = {"kind": "permanent", "message": "no"}
    for verb, body in (("finish", {"artifact": artifact}), ("fail", {"failure": failure}), ("heartbeat", {})):
        reply = registry.ask("POST", f"/v1/jobs/{job}/{verb}", {"lease": old["secret"], **body})
        assert (reply.status, reply.json()["code"]) == (409, "conflict"), verb
    assert mxr("jobs", job, "--json").json["state"] == "running"
    mxr("jobs", job, "--cancel")


def _said(registry: Registry, method: str, path: str, body: Any) -> Any:
    reply = registry.ask(method, path, body)
    assert reply.status < 300, reply.data
    return reply.json()


def test_a_refusal_is_remembered(mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path]) -> None:
    """What MIGraphX refuses is exit 5, and is not compiled again until someone says --retry."""
    worker("one").ready()
    words = "/src/src/onnx/onnx_parser.cpp:398: parse_graph: PARSE_GRAPH: Unknown operator: Foo"
    model = marked(parse=f"refuse:{words}")
    first = mxr("fetch", model, *REF, "--on-miss", "wait", "--json", expect=5)
    assert first.error["context"]["kind"] == "permanent"
    assert "Unknown operator: Foo" in first.error["detail"]
    assert any("Unknown operator" in line for line in first.error["context"]["log"])
    again = mxr("fetch", model, *REF, "--on-miss", "wait", "--json", expect=5)
    assert mxr("jobs", again.error["context"]["job"], "--json").json["attempts"] == 0
    retried = mxr("fetch", model, *REF, "--on-miss", "wait", "--retry", "--json", expect=5)
    assert mxr("jobs", retried.error["context"]["job"], "--json").json["attempts"] == 1


def test_a_crash_is_tried_again_and_then_a_poison(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], convnet: Path
) -> None:
    """A compile that takes its process down twice is quarantined; the worker lives on and does the next job."""
    worker("one").ready()
    done = mxr("fetch", marked(compile="crash:SIGSEGV"), *REF, "--on-miss", "wait", "--json", expect=5)
    assert done.error["context"]["kind"] == "poison"
    assert mxr("jobs", done.error["context"]["job"], "--json").json["attempts"] == 2
    assert mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json["source"] == "compiled"


def test_a_cancelled_job_stops(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """The worker stops the compile of a job that somebody cancelled, and is free again."""
    worker("one").ready()
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    eventually(lambda: running(mxr, job))
    mxr("jobs", job, "--cancel")
    assert closed(mxr, job)["state"] == "cancelled"
    states = [each["state"] for each in mxr("workers", "--json").json["workers"] if each["name"] == "one/ref"]
    assert states == ["idle"]


def test_a_worker_told_to_stop_hands_back(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """After its grace it stops the compile and gives the job back, which counts as no attempt; it exits 0."""
    one = worker("one").ready()
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    eventually(lambda: running(mxr, job))
    assert one.end(signal.SIGTERM) == 0, one.log.read_text()
    found = mxr("jobs", job, "--json").json
    assert (found["state"], found["attempts"]) == ("queued", 0)
    gate.touch()
    assert worker("two", "--once").process.wait(PATIENCE) == 0
    assert closed(mxr, job)["state"] == "done"


def test_drain_ends_when_nothing_is_left(mxr: Host, worker: Callable[..., Worker], convnet: Path) -> None:
    """For batch schedulers: what is queued is compiled, then it ends by itself."""
    job = asked(mxr, convnet)
    assert worker("one", "--drain").process.wait(PATIENCE) == 0
    assert mxr("jobs", job, "--json").json["state"] == "done"
    assert "one/ref" not in listed(mxr)


def listed(mxr: Host) -> set[str]:
    """The names of the workers that the registry counts."""
    return {each["name"] for each in mxr("workers", "--json").json["workers"]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_signs_off(mxr: Host, worker: Callable[..., Worker], number: int) -> None:
    """Idle in its long poll: it is gone from the list at once, not when it counts as lost."""
    one = worker("leaving").ready()
    assert "leaving/ref" in listed(mxr)
    assert one.end(number) == 0, one.log.read_text()
    assert "leaving/ref" not in listed(mxr)


def test_a_registry_that_is_frozen_does_not_hold_a_worker_up(
    mxr: Host, worker: Callable[..., Worker], registry: Registry
) -> None:
    """Signing off is tried for a moment; afterwards the worker counts as lost, as one that died."""
    one = worker("leaving").ready()
    with registry.frozen():
        assert one.end() == 0, one.log.read_text()


def test_a_host_without_a_gpu_fills_the_cache(
    mxr: Host, worker: Callable[..., Worker], convnet: Path, tmp_path: Path
) -> None:
    words = ("--arch", "gfx1100", "--rocm", "7.2", "--migraphx", "2.15", "--num-cu", "42", "--chiplets", "1")
    ask = ("fetch", convnet, *words, "--batch", "3", "--for", "python", "--on-miss", "wait", "--json")
    home = tmp_path / "workers" / "build"
    (home / "site").mkdir(parents=True)
    (home / "nothing.json").write_text(json.dumps({**GPU_HOST, "targets": []}))
    env = {"MXR_HOST": str(home / "nothing.json")}
    refused = worker("build", "--cross", "gfx1100,gfx942", kind="gpu", env=env)
    assert refused.process.wait(60) == 8 and "compiles only for the GPUs of its own host" in refused.log.read_text()
    (home / "site" / "migraphx_double.json").write_text('{"cross": true}')
    worker("build", "--cross", "gfx1100,gfx942", kind="gpu", env=env).ready()
    assert "cross gfx1100, gfx942" in mxr("workers").out
    assert mxr(*ask, expect=8).error["code"] == "no_worker"
    matrix = tmp_path / "matrix.yaml"
    target = 'arch: gfx1100, rocm: "7.2", migraphx: "2.15", num_cu: 42, chiplets: 1'
    matrix.write_text(
        f"version: 1\nmodels: [{{path: {convnet.name}, batch: [3], for: python}}]\ntargets:\n  - {{{target}}}\n"
    )
    plan = mxr("plan", matrix, expect=8)
    assert "no worker" in plan.out and "with allow: cross" in plan.out
    assert "`allow: cross` in the matrix would have 1 of them compiled without the GPU" in plan.err
    matrix.write_text(matrix.read_text().replace("chiplets: 1", "chiplets: 1, allow: [cross]"))
    (cell,) = mxr("plan", matrix, "--json").json["cells"]
    assert (cell["state"], cell["crossable"]) == ("compile", False)
    answer = mxr(*ask, "--allow", "cross")
    found, told = answer.json, "cross, never run: it was compiled for gfx1100 with 42 CUs and 1 chiplet"
    assert told in answer.err and told in mxr("show", found["id"]).out
    shown = mxr("show", found["id"], "--json").json
    assert (shown["attributes"]["tuning"], shown["attributes"]["num_cu"]) == ("cross", 42)
    assert (shown["provenance"]["worker"], shown["provenance"]["verified"]) == ("build/cross", None)
    assert mxr("inspect", found["path"], "--json").json["archs"] == ["gfx1100"]
    placed = tmp_path / "placed" / "model.mxr"
    mxr(*ask[:-1], "--allow", "cross", "-o", placed)
    where = ("--arch", "gfx1100", "--rocm", "7.2", "--migraphx", "2.15", "--num-cu", "42")
    for path in (placed, placed.parent):
        assert "cross, never run" in mxr("check", path, *where).out


def test_a_cross_compile(mxr: Host, worker: Callable[..., Worker], convnet: Path, tmp_path: Path) -> None:
    """For a GPU that nobody has: only where the library can, only when allowed, and marked as such."""
    words = ("--arch", "gfx1100", "--rocm", "7.2", "--migraphx", "2.15", "--num-cu", "48", "--chiplets", "1")
    ask = ("fetch", convnet, *words, "--batch", "4", "--for", "python", "--on-miss", "wait", "--json")
    home = tmp_path / "workers" / "across"
    (home / "site").mkdir(parents=True)
    worker("plain", kind="gpu").ready()
    assert mxr(*ask, "--allow", "cross", expect=8).error["code"] == "no_worker"
    (home / "site" / "migraphx_double.json").write_text('{"cross": true}')
    across = worker("across", kind="gpu").ready()
    assert mxr(*ask, expect=8).error["code"] == "no_worker"
    found = mxr(*ask, "--allow", "cross").json
    assert found["source"] == "compiled" and found["match"]["relaxed"] == ["tuning"]
    shown = mxr("show", found["id"], "--json").json
    assert (shown["attributes"]["tuning"], shown["attributes"]["num_cu"]) == ("cross", 48)
    assert shown["provenance"]["worker"].startswith(f"{across.name}/") and shown["provenance"]["gpu"] is None
    assert mxr("inspect", found["path"], "--json").json["archs"] == ["gfx1100"]
    mxr(*ask[:-3], "--json", expect=3)
