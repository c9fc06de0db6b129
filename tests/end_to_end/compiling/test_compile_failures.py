"""Failures of compiles with real processes: hangs, memory, wrong programs and clocks; crowds and two registries."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from end_to_end.stack import Host, Registry, finish
from harness.scale import crowd as crowd_size

from .conftest import GPU, PATIENCE, REF, RULES, Worker, crowd, eventually, running, running_job

PROCESSES, THREADS = 4, crowd_size(200) // 4


@pytest.mark.on("embedded")
@pytest.mark.parametrize(
    ("marks", "env", "name"),
    [
        ({"compile": "hang"}, {"MXR_WORKER_SECONDS": "4"}, "deadline"),
        ({"compile": "eat"}, {"MXR_WORKER_MEMORY": str(300 << 20)}, "memory"),
        # The double cuts the file where the reader does not look: its trial run is what finds it.
        ({"save": "truncate"}, {}, "unknown"),
    ],
)
def test_a_bad_compile_is_tried_again_and_given_up(
    mxr: Host,
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    convnet: Path,
    marks: dict[str, str],
    env: dict[str, str],
    name: str,
) -> None:
    """Three attempts, then exit 5 with the reason; nothing is published, and the worker does the next job."""
    one = worker("one", env=env).ready()
    done = mxr("fetch", marked(**marks), *REF, "--on-miss", "wait", "--json", expect=5)
    detail = done.error["context"]
    assert (detail["kind"], detail["name"]) == ("transient", name)
    assert mxr("jobs", detail["job"], "--json").json["attempts"] == 3
    assert one.process.poll() is None
    assert mxr("fetch", convnet, *REF, "--on-miss", "wait=60s", "--json").json["source"] == "compiled"


@pytest.mark.on("embedded")
def test_an_uncaught_exception_in_a_pool_thread_is_a_refusal(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path]
) -> None:
    """MIGraphX aborts with the words of its exception: what it refuses there is permanent at once."""
    worker("one").ready()
    words = "  what():  /src/src/targets/gpu/lowering.cpp:12: apply: Unsupported convolution"
    done = mxr("fetch", marked(compile=f"abort:{words}"), *REF, "--on-miss", "wait", "--json", expect=5)
    assert done.error["context"]["kind"] == "permanent"
    assert mxr("jobs", done.error["context"]["job"], "--json").json["attempts"] == 1


@pytest.mark.on("embedded")
def test_a_program_for_another_arch_is_never_published(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path]
) -> None:
    """The compile succeeds, and made something else than the key says."""
    worker("one", kind="gpu").ready()
    model = marked(save="arch:gfx908:sramecc+:xnack-")
    done = mxr("fetch", model, *GPU, "--on-miss", "wait", "--json", expect=5)
    assert done.error["context"]["name"] == "other-program"
    assert mxr("ls", "--model", model, "--json").json["artifacts"] == []


def test_askers_with_different_constraints_share_a_compile(
    host: Callable[..., Host], worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path
) -> None:
    """One takes any CU count; one wants the worker's, and comes while it runs; one wants another, which nobody has."""
    worker("one", kind="gpu").ready()
    model = marked(compile=f"wait:{gate}")
    first, second, third = host("a"), host("b"), host("c")
    waiting = [first.start("fetch", model, *GPU, "--on-miss", "wait", "--json")]
    job = first.get(f"/v1/jobs/{running_job(first)}")
    waiting.append(second.start("fetch", model, *GPU, "--num-cu", 104, "--on-miss", "wait=60s", "--json"))
    third("fetch", model, *GPU, "--num-cu", 110, "--on-miss", "wait", "--json", expect=8)
    gate.touch()
    done = [finish(each) for each in waiting]
    assert [each.code for each in done] == [0, 0], done
    assert len({each.json["id"] for each in done}) == 1
    jobs = [each for each in first("jobs", "--json").json["jobs"] if each["digest"] == job["digest"]]
    assert [each["attempts"] for each in jobs] == [1]
    assert done[1].json["attributes"]["num_cu"] == 104


@pytest.mark.on("embedded")
def test_a_slot_whose_gpu_no_longer_works_is_disabled(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path]
) -> None:
    """After a hang the worker tests the device; where that fails too, it claims no more jobs and exits with 75."""
    site = "import sys\nif 'probe' in sys.orig_argv:\n    sys.exit(3)\n"
    one = worker("one", env={"MXR_WORKER_SECONDS": "1.5"}, site=site).ready()
    asked = mxr("fetch", marked(compile="hang"), *REF, "--on-miss", "ask", "--json", expect=4)
    assert one.process.wait(PATIENCE) == 75
    assert one.said("is disabled")
    mxr("jobs", asked.error["context"]["job"], "--cancel")


FAULT = """
import sys
if any(word.endswith("mxr-worker") for word in sys.orig_argv):
    from mxr_workers import compilation
    right, faults = compilation.describe_program, iter(range(2))

    def describe_program(path):
        if next(faults, None) is not None:
            raise RecursionError("as a fault of the reader would")
        return right(path)

    compilation.describe_program = describe_program
"""


@pytest.mark.on("embedded")
def test_a_model_that_brings_the_worker_itself_into_trouble(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], convnet: Path
) -> None:
    """A fault of ours is told like a crash, so that it is a poison the second time; the worker does the next job."""
    one = worker("one", site=FAULT).ready()
    done = mxr("fetch", marked(), *REF, "--on-miss", "wait", "--json", expect=5)
    assert (done.error["context"]["kind"], done.error["context"]["name"]) == ("poison", "worker-fault")
    assert mxr("jobs", done.error["context"]["job"], "--json").json["attempts"] == 2
    assert mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json["source"] == "compiled"
    assert one.said("RecursionError")


def test_a_worker_whose_clock_is_an_hour_off(mxr: Host, worker: Callable[..., Worker], convnet: Path) -> None:
    """Leases are the database's time: a worker's clock says nothing."""
    site = "import time\nright = time.time\ntime.time = lambda: right() - 3600\n"
    worker("one", site=site).ready()
    assert mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json["source"] == "compiled"


def test_the_placeholder_package_is_recognised(tmp_path: Path, worker: Callable[..., Worker]) -> None:
    """The package `migraphx` of the public index is empty: the worker says so and ends."""
    (tmp_path / "empty" / "migraphx").mkdir(parents=True)
    (tmp_path / "empty" / "migraphx" / "__init__.py").touch()
    one = worker("one", env={"PYTHONPATH": str(tmp_path / "empty")})
    assert one.process.wait(PATIENCE) == 2
    assert one.said("placeholder")


def test_a_model_without_its_external_data(mxr: Host, external: Path) -> None:
    """Nothing is queued for a model that is not whole."""
    external.with_name("mlp_ext.onnx.data").unlink()
    done = mxr("fetch", external, *REF, "--on-miss", "wait", "--json", expect=65)
    assert "mlp_ext.onnx.data" in done.error["detail"]


def test_external_data_goes_with_the_model(mxr: Host, worker: Callable[..., Worker], external: Path) -> None:
    """What a model keeps in other files is uploaded, and stands beside it where it is compiled."""
    worker("one").ready()
    assert mxr("fetch", external, *REF, "--on-miss", "wait", "--json").json["source"] == "compiled"


@pytest.fixture
def second_registry(tmp_path: Path, registry: Registry) -> Iterator[Registry]:
    """Another registry process on the same database and store."""
    (tmp_path / "rules.toml").write_text(RULES)
    through = ("env", f"MXR_REGISTRY_CONFIG={tmp_path / 'rules.toml'}")
    found = Registry(tmp_path / "second", registry.stack, through=through, like=registry)
    yield found
    found.kill9()


def test_two_registries_on_one_database(
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    second_registry: Registry,
) -> None:
    """Asked here, compiled by a worker of the other registry, waited for at both: one job, one compile."""
    worker("one", url=second_registry.url).ready()
    model = marked(compile=f"wait:{gate}")
    here, there = host("here"), host("there", second_registry.url)
    waiting = [each.start("fetch", model, *REF, "--on-miss", "wait", "--json") for each in (here, there)]
    job = running_job(here)
    eventually(lambda: running(there, job))
    gate.touch()
    done = [finish(each) for each in waiting]
    assert [each.code for each in done] == [0, 0], done
    assert len({each.json["sha256"] for each in done}) == 1
    assert here("jobs", job, "--json").json["attempts"] == 1


def test_many_fetches_of_one_missing_program(
    worker: Callable[..., Worker], convnet: Path, tmp_path: Path, own_registry: Callable[..., Registry]
) -> None:
    """From several processes at one moment, at two registries: one job, one compile, the same bytes for all.

    The leases are the usual ones: on a machine that the crowd alone keeps busy those of two seconds run out.
    """
    one = own_registry()
    two = own_registry(like=one)
    worker("one", url=one.url).ready()
    hosts = [Host(tmp_path / "hosts" / each.url.rpartition(":")[2], each.url) for each in (one, two)]
    mxr = hosts[0]
    started = [crowd(hosts[number % 2], convnet, tmp_path / f"crowd-{number}", THREADS) for number in range(PROCESSES)]
    lines = [line for each in started for line in each.communicate(timeout=PATIENCE)[0].split("\n") if line]
    assert len(lines) == PROCESSES * THREADS
    assert len(set(lines)) == 1 and len(lines[0]) == 64, set(lines)
    document = mxr("fetch", convnet, *REF, "--json").json
    assert document["sha256"] == lines[0]
    jobs = [each for each in mxr("jobs", "--json").json["jobs"] if each["digest"] == document["digest"]]
    assert [(each["state"], each["attempts"]) for each in jobs] == [("done", 1)]


def test_a_crowd_outlives_the_death_of_its_worker_and_its_registry(
    worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path, tmp_path: Path, registry: Registry
) -> None:
    """24 clients on one miss, kill -9 of both in the middle: each gets the same bytes, of one compile that ended."""
    mxr = Host(tmp_path / "hosts" / "looks", registry.url)
    first, model = worker("first").ready(), marked(compile=f"wait:{gate}")
    started = [crowd(mxr, model, tmp_path / f"crowd-{number}", 6) for number in range(4)]
    job = running_job(mxr)
    eventually(lambda: running(mxr, job))
    first.end(signal.SIGKILL)
    registry.kill9()
    registry.start()
    gate.touch()
    worker("second").ready()
    lines = [line for each in started for line in each.communicate(timeout=PATIENCE)[0].split("\n") if line]
    assert len(lines) == 24 and len(set(lines)) == 1 and len(lines[0]) == 64, set(lines)
    found = mxr("jobs", job, "--json").json
    assert (found["state"], found["attempts"]) == ("done", 2)
    assert mxr("show", found["artifact"], "--json").json["provenance"]["worker"] == "second/ref"
    jobs = [each for each in mxr("jobs", "--json").json["jobs"] if each["digest"] == found["digest"]]
    assert [each["id"] for each in jobs] == [job]
