"""A miss that is compiled: once for all who wait, through the death of workers and of the registry."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end.stack import Host, Registry, finish
from harness.scale import crowd as crowd_size
from paths import DATA

from .conftest import PATIENCE, REF, Worker, crowd, eventually, job_in, running, running_job, worker_environ

CLIENTS = 20
CROWD = crowd_size(50)


def test_one_compile_for_all_who_wait(
    host: Callable[..., Host], worker: Callable[..., Worker], convnet: Path, registry: Registry
) -> None:
    """Twenty hosts miss at one moment: one job, one compile, the same bytes for all."""
    worker("one").ready()
    hosts = [host(f"h{number}") for number in range(CLIENTS)]
    started = [each.start("fetch", convnet, *REF, "--on-miss", "wait", "--json") for each in hosts]
    done = [finish(each) for each in started]
    assert [each.code for each in done] == [0] * CLIENTS, [each.err for each in done if each.code]
    documents = [each.json for each in done]
    assert {each["source"] for each in documents} <= {"compiled", "registry"}
    assert "compiled" in {each["source"] for each in documents}
    assert len({each["id"] for each in documents}) == 1
    shas = {hashlib.sha256(Path(each["path"]).read_bytes()).hexdigest() for each in documents}
    assert shas == {documents[0]["sha256"]}
    digest = documents[0]["digest"]
    jobs = [each for each in hosts[0]("jobs", "--json").json["jobs"] if each["digest"] == digest]
    assert [(each["state"], each["attempts"]) for each in jobs] == [("done", 1)]
    assert hosts[0]("fetch", convnet, *REF, "--json").json["source"] == "cache"


def test_ask_queues_and_leaves(mxr: Host, convnet: Path) -> None:
    """`ask` exits 4 with the job; the same once more is the same job; cancelled, a wait makes another."""
    done = mxr("fetch", convnet, *REF, "--on-miss", "ask", "--json", expect=4)
    assert done.error["code"] == "not_compiled"
    job = done.error["context"]["job"]
    again = mxr("fetch", convnet, *REF, "--on-miss", "ask", "--json", expect=4)
    assert again.error["context"]["job"] == job
    shown = mxr("jobs", job[:8], "--json").json
    assert (shown["id"], shown["state"], shown["attempts"], shown["failure"]) == (job, "queued", 0, None)
    assert shown["model_name"] == convnet.name and f"({convnet.name})" in mxr("jobs", job[:8]).out
    listed = mxr("jobs", "--model", convnet.stem, "--state", "queued", "--json").json["jobs"]
    assert job in [each["id"] for each in listed]
    assert convnet.name in mxr("jobs", "--model", convnet).out
    assert mxr("jobs", "--model", "no-such-name", "--json").json["jobs"] == []
    assert mxr("jobs", job, "--cancel", "--json").json["state"] == "cancelled"
    other = mxr("fetch", convnet, *REF, "--on-miss", "ask", "--json", expect=4)
    assert other.error["context"]["job"] != job
    mxr("jobs", other.error["context"]["job"], "--cancel")


def test_without_a_worker_a_wait_is_refused(mxr: Host, convnet: Path) -> None:
    """Nothing live or declared could do it: exit 8 at once, with the worker that would be needed."""
    other = ("--kind", "ref", "--migraphx", "2.9", "--batch", "4", "--for", "python")
    done = mxr("fetch", convnet, *other, "--on-miss", "wait", "--json", expect=8)
    assert done.error["code"] == "no_worker"
    assert "ref target with MIGraphX 2.9" in done.error["detail"]


def test_a_limited_wait_ends(mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path) -> None:
    """`wait=1s` ends with exit 4 and leaves the job, which another fetch then gets."""
    worker("one").ready()
    model = marked(compile=f"wait:{gate}")
    done = mxr("fetch", model, *REF, "--on-miss", "wait=1s", "--json", expect=4)
    gate.touch()
    there = mxr("fetch", model, *REF, "--on-miss", "wait", "--json").json
    assert mxr("jobs", done.error["context"]["job"], "--json").json["artifact"] == there["id"]


def test_a_limited_wait_ends_though_the_last_worker_left(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """Its job is handed back and stays queued; who waits ends with 4, and is told which worker would be needed."""
    one = worker("one").ready()
    waiting = mxr.start("fetch", marked(compile=f"wait:{gate}"), *REF, "--on-miss", "wait=6s", "--json")
    running_job(mxr)
    assert one.end() == 0
    done = finish(waiting)
    assert done.code == 4, done
    needed = "a worker for the ref target with MIGraphX 2.15"
    detail = done.error["context"]
    assert (detail["state"], detail["waiting_for"]) == ("queued", needed)
    assert mxr("jobs", detail["job"], "--json").json["waiting_for"] == needed
    assert f"no live worker, needs {needed}" in mxr("jobs", detail["job"]).out
    mxr("jobs", detail["job"], "--cancel")


def test_an_interrupt_leaves_the_job(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """Ctrl-C says how to follow the job, which is compiled all the same; following it ends with the artifact."""
    worker("one").ready()
    model = marked(compile=f"wait:{gate}")
    waiting = mxr.start("fetch", model, *REF, "--on-miss", "wait", "-v")
    assert waiting.stderr is not None
    first = next(line for line in waiting.stderr if "waiting " in line and "job" not in line)
    assert first.strip().startswith("waiting"), "the log is streamed"
    waiting.send_signal(signal.SIGINT)
    done = finish(waiting)
    assert done.code == 130
    job = job_in(done.err[done.err.index("Interrupted") :])
    assert f"mxr jobs {job[:12]} --follow" in done.err
    following = mxr.start("jobs", job, "--follow")
    gate.touch()
    followed = finish(following)
    assert followed.code == 0, followed
    assert mxr("fetch", model, *REF, "--json").json["id"] == followed.out.strip()


def test_the_registry_is_killed_while_many_wait(
    mxr: Host,
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    registry: Registry,
    tmp_path: Path,
) -> None:
    """Power goes in the middle of a compile: clients and worker go on where they were, and all get the same bytes."""
    worker("one").ready()
    model, before = marked(compile=f"wait:{gate}"), registry.requests("POST /v1/jobs: ")
    waiting = mxr.start("fetch", model, *REF, "--on-miss", "wait", "--json")
    many = crowd(mxr, model, tmp_path / "crowd", CROWD - 1)
    job = running_job(mxr)
    eventually(lambda: running(mxr, job))
    eventually(lambda: registry.requests("POST /v1/jobs: ") >= before + CROWD)
    registry.kill9()
    registry.start()
    gate.touch()
    done = finish(waiting)
    assert done.code == 0, done
    assert set(many.communicate(timeout=PATIENCE)[0].split()) == {done.json["sha256"]}
    found = mxr("jobs", job, "--json").json
    assert (found["state"], found["artifact"]) == ("done", done.json["id"])


def test_the_registry_is_away_for_longer_than_a_lease(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path, registry: Registry
) -> None:
    """The compile goes on meanwhile, and is the one that counts, though another worker is idle all the time."""
    worker("one").ready()
    model = marked(compile=f"wait:{gate}")
    waiting = mxr.start("fetch", model, *REF, "--on-miss", "wait", "--json")
    job = running_job(mxr)
    eventually(lambda: running(mxr, job))
    worker("two").ready()
    registry.kill9()
    ((until,),) = registry.stack.databases(registry.data).execute(f"SELECT lease_until FROM jobs WHERE id = '{job}'")
    eventually(lambda: time.time() > until + 1)
    registry.start()
    gate.touch()
    done = finish(waiting)
    assert done.code == 0, done
    found = mxr("jobs", job, "--json").json
    assert (found["state"], found["attempts"], found["worker"]) == ("done", 1, "one/ref")


def test_this_host_compiles_for_all(mxr: Host, convnet: Path, tmp_path: Path, host: Callable[..., Host]) -> None:
    """`local` runs a worker for this one job here; the program is published, so that others fetch it."""
    environ = worker_environ(tmp_path / "local") | {"MXR_WORKER_NAME": "local"}
    keep = ("PYTHONPATH", "MXR_WORKER_NAME", "MXR_WORKER_MEMORY")
    env = {name: environ[name] for name in keep}
    done = mxr("fetch", convnet, *REF, "--on-miss", "local", "--json", env=env)
    assert done.json["source"] == "compiled"
    assert host("other")("fetch", convnet, *REF, "--json").json["sha256"] == done.json["sha256"]


def test_this_host_needs_a_token_that_may_ask_and_work(mxr: Host, registry: Registry, convnet: Path) -> None:
    """Before the model is uploaded."""
    _, made = registry.call("POST", "/v1/tokens", {"name": "ci", "scopes": ["fetch", "ask"]})
    words = ("fetch", convnet, *REF, "--on-miss", "local", "--json")
    begun = registry.requests("PUT /v1/blobs/")
    refused = mxr(*words, env={"MXR_TOKEN": made["secret"]}, expect=7).error
    assert "needs a token with the scopes ask and work; that of ci lacks work." in refused["detail"]
    assert registry.requests("PUT /v1/blobs/") == begun


def test_local_without_migraphx_says_so(mxr: Host, convnet: Path) -> None:
    """A host without MIGraphX cannot compile; the job stays queued for one that can."""
    done = mxr("fetch", convnet, *REF, "--on-miss", "local", "--json", expect=8)
    assert "migraphx" in done.err
    job = done.error["context"]["job"]
    assert mxr("jobs", job, "--json").json["state"] == "queued"
    mxr("jobs", job, "--cancel")


def test_calibration_data_go_along(mxr: Host, worker: Callable[..., Worker], convnet: Path, tmp_path: Path) -> None:
    """int8 needs samples: uploaded with the model, part of the key, and at hand where it is compiled."""
    np.savez(tmp_path / "samples.npz", x=np.ones((8, 3, 32, 32), dtype="float32"))
    worker("one").ready()
    words = ("--precision", "int8", "--calibration", tmp_path / "samples.npz", "--on-miss", "wait", "--json")
    found = mxr("fetch", convnet, *REF, *words).json
    assert found["source"] == "compiled" and found["warnings"] == []
    assert found["key"]["calibration"] == hashlib.sha256((tmp_path / "samples.npz").read_bytes()).hexdigest()


def test_eight_bits_without_calibration_are_said_everywhere(
    mxr: Host, worker: Callable[..., Worker], convnet: Path
) -> None:
    worker("one").ready()
    found = mxr("fetch", convnet, *REF, "--precision", "int8", "--on-miss", "wait", "--json")
    (warning,) = found.json["warnings"]
    assert warning.startswith("int8 without calibration data") and "samples (calibration)" in warning
    assert warning in mxr("fetch", convnet, *REF, "--precision", "int8").err
    other = ("--precision", "int8", "--batch", "2", "--on-miss", "ask")
    assert warning in mxr("fetch", convnet, *REF, *other, expect=4).err
    assert warning in mxr("show", found.json["id"]).out
    assert "int8 uncalibrated" in mxr("jobs").out and "int8 uncalibrated" in mxr("ls", "--model", convnet).out
    ref = DATA / "mxr_real" / "convnet_b4_int8_ref.mxr"
    pushed = mxr("push", ref, "--model", convnet, "--kind", "ref", "--precision", "int8", "--for", "python")
    assert warning in pushed.err


@pytest.mark.parametrize(
    ("arrays", "said"), [({"y": np.ones(4)}, "no input y"), ({"x": np.ones((4, 3, 32, 31), "f4")}, "input x have")]
)
def test_calibration_data_that_do_not_fit_are_not_sent(
    mxr: Host, convnet: Path, tmp_path: Path, programs: Any, arrays: dict[str, Any], said: str
) -> None:
    """Neither a job nor a publication comes of them."""
    np.savez(tmp_path / "samples.npz", **arrays)
    words = ("--precision", "int8", "--calibration", tmp_path / "samples.npz", "--json")
    assert said in mxr("fetch", convnet, *REF, *words, "--on-miss", "ask", expect=2).error["detail"]
    assert mxr("jobs", "--model", convnet, "--json").json["jobs"] == []
    ref = DATA / "mxr_real" / "convnet_b4_int8_ref.mxr"
    push = ("push", ref, "--model", convnet, "--kind", "ref", "--for", "python")
    assert said in mxr(*push, *words, expect=2).error["detail"]


def test_calibration_data_that_another_client_sent_fail_for_good(
    mxr: Host, worker: Callable[..., Worker], registry: Registry, convnet: Path, tmp_path: Path
) -> None:
    """The worker checks as well: the failure is permanent and names the input."""
    np.savez(tmp_path / "good.npz", x=np.ones((4, 3, 32, 32), "f4"))
    np.savez(tmp_path / "bad.npz", y=np.ones((4, 3, 32, 32), "f4"))
    words = ("--precision", "int8", "--calibration", tmp_path / "good.npz", "--on-miss", "ask", "--json")
    asked = mxr("fetch", convnet, *REF, *words, expect=4).error["context"]["job"]
    job = mxr("jobs", asked, "--json").json
    mxr("jobs", asked, "--cancel")
    data = (tmp_path / "bad.npz").read_bytes()
    sha = hashlib.sha256(data).hexdigest()
    registry.call("PUT", f"/v1/blobs/{sha}", data)
    request = job["request"] | {"key": job["request"]["key"] | {"calibration": sha}}
    made = registry.call("POST", "/v1/jobs", request)[1]
    worker("one").ready()
    assert "no input y" in mxr("jobs", made["id"], "--follow", "--json", expect=5).error["detail"]
    failure = mxr("jobs", made["id"], "--json").json["failure"]
    assert failure["kind"] == "permanent" and "no input y" in failure["message"]


def test_a_miss_tells_of_workers_that_could_help(mxr: Host, worker: Callable[..., Worker], convnet: Path) -> None:
    """`wait` where one can compile it, `ask` where workers are that cannot; neither where the file is not at hand."""
    worker("one").ready()
    can = mxr("fetch", convnet, *REF, "--json", expect=3).error["hint"]
    assert can.startswith("Add `--on-miss wait` ") and " Or compile the program" in can and "mxr push FILE.mxr" in can
    other = [word.replace("2.15", "2.9") for word in REF]
    assert mxr("fetch", convnet, *other, "--json", expect=3).error["hint"].startswith("Add `--on-miss ask` ")
    assert mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json["source"] == "compiled"
    known = mxr("key", convnet, *REF, "--json").json["model"]
    by_hash = mxr("fetch", known, *other, "--input", "x=4,3,32,32", "--json", expect=3).error["hint"]
    assert "--on-miss" not in by_hash


def test_a_miss_tells_nothing_of_workers_where_there_are_none(
    host: Callable[..., Host], own_registry: Callable[..., Registry], convnet: Path
) -> None:
    mxr = host("alone", own_registry().url)
    assert "--on-miss" not in mxr("fetch", convnet, *REF, "--json", expect=3).error["hint"]
