"""`mxr precompile` with real processes: several models on three targets, and failures of a pipeline."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import pytest
from end_to_end.conftest import unique
from end_to_end.stack import Host, Registry, Stack, finish, real_environ
from harness.scale import SOAK
from paths import DATA

from .conftest import GPU_HOST, Worker, eventually


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Registry]:
    """With leases that do not run out however busy the machine is: each compile is counted."""
    found = Registry(tmp_path_factory.mktemp("registry"), stack, environ={"MXR_WORK_LEASE": "60"})
    yield found
    found.kill9()


MATRIX = """
version: 1
defaults: {for: python, rocm: "7.2", migraphx: "2.15"}
models:
  - path: models/*.onnx
batch: [BATCHES]
targets:
  - {arch: "gfx90a:sramecc+:xnack-"}
  - {arch: "gfx908:sramecc+:xnack-"}
  - {kind: ref}
"""
BATCHES = (1, 2, 4) if SOAK else (2,)
OPEN_MODELS = ("a", "b") if SOAK else ("a",)
"""The models that need no gate; one more does."""
OPEN = 3 * len(OPEN_MODELS) * len(BATCHES)
CELLS = OPEN + 3 * len(BATCHES)


@pytest.fixture
def fleet(tmp_path: Path, worker: Callable[..., Worker]) -> Callable[[], list[Worker]]:
    """Starts a worker for each target of the matrix: two kinds of GPU and the reference target."""

    def start() -> list[Worker]:
        home = tmp_path / "workers" / "mi100"
        (home / "site").mkdir(parents=True, exist_ok=True)
        (home / "site" / "migraphx_double.json").write_text(json.dumps({"arch": "gfx908:sramecc+:xnack-"}))
        gpu = {"arch": "gfx908", "sramecc": "+", "xnack": "-", "num_cu": 120, "chiplets": 1}
        (home / "mi100.json").write_text(json.dumps(GPU_HOST | {"targets": [gpu]}))
        mi100 = worker("mi100", kind="gpu", env={"MXR_HOST": str(home / "mi100.json")})
        return [each.ready() for each in (mi100, worker("mi210", kind="gpu"), worker("cpu"))]

    return start


@pytest.fixture
def matrix(tmp_path: Path, marked: Callable[..., Path], gate: Path) -> Path:
    """Models, one of which is compiled only once the gate is open; and the matrix of all."""
    folder = tmp_path / "models"
    folder.mkdir()
    slow = marked(compile=f"wait:{gate}")
    for name in OPEN_MODELS:
        unique(DATA / "models/convnet.onnx", folder / f"{name}.onnx", f"{name}{tmp_path}")
    slow.rename(folder / "slow.onnx")
    (tmp_path / "matrix.yaml").write_text(MATRIX.replace("BATCHES", ", ".join(map(str, BATCHES))))
    return tmp_path / "matrix.yaml"


class MatrixJobs:
    """The jobs that there ever were for the models of a matrix."""

    def __init__(self, registry: Registry, mxr: Host, matrix: Path) -> None:
        self._registry, self._mxr, self._matrix = registry, mxr, matrix

    @cached_property
    def _models(self) -> set[str]:
        return {each["model"] for each in self._mxr("plan", self._matrix, "--json").json["cells"]}

    def ids(self, *states: str) -> list[str]:
        """Those in one of these states, or all."""
        found = self._mxr.get("/v1/jobs?limit=1000")["items"]
        mine = [each for each in found if each["request"]["key"]["model"] in self._models]
        return [each["id"] for each in mine if not states or each["state"] in states]

    def compiles(self) -> int:
        """How often the double compiled: it says so in the logs of the jobs."""
        logs = [self._registry.ask("GET", f"/v1/jobs/{each}/log").data.decode() for each in self.ids()]
        return sum(len(re.findall("^compile offload_copy=", log, re.MULTILINE)) for log in logs)

    def begun(self) -> None:
        """Waits until half of what needs no gate is compiled; the rest is not."""
        eventually(lambda: len(self.ids("done")) >= OPEN // 2)


@pytest.fixture
def jobs(registry: Registry, mxr: Host, matrix: Path) -> MatrixJobs:
    """Those of the matrix."""
    return MatrixJobs(registry, mxr, matrix)


def closed(mxr: Host, matrix: Path) -> int:
    """How many cells are there."""
    return sum(each["state"] == "available" for each in mxr("plan", matrix, "--json").json["cells"])


def test_a_matrix_is_compiled_once_and_then_it_is_there(
    mxr: Host, fleet: Callable[[], list[Worker]], matrix: Path, jobs: MatrixJobs, gate: Path, tmp_path: Path
) -> None:
    """All cells; a second run finds them; a fetch gets one; the plan before and after says so."""
    fleet()
    gate.touch()
    before = mxr("plan", matrix, "--json").json
    assert before["summary"]["compile"] == CELLS and before["summary"]["unknown"] == CELLS
    assert mxr.get("/v1/jobs?state=open") == {"items": [], "next": None}
    first = mxr("precompile", matrix, "--json", "--junit", tmp_path / "out.xml")
    assert first.json["summary"] | {"cells": CELLS, "compiled": CELLS} == first.json["summary"]
    assert len(re.findall(rf"^mxr: \[{CELLS}/{CELLS}\] ", first.err, re.MULTILINE)) == 1, first.err
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert suite.get("tests") == str(CELLS) and suite.get("failures") == "0" and len(suite) == CELLS
    again = mxr("precompile", matrix, "--json").json
    assert again["summary"]["available"] == CELLS
    assert [each["artifact"] for each in again["cells"]] == [each["artifact"] for each in first.json["cells"]]
    assert jobs.compiles() == CELLS
    words = ("--arch", "gfx908:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--batch", 2, "--for", "python")
    got = mxr("fetch", tmp_path / "models" / "a.onnx", *words, "--json").json
    assert got["id"] in [each["artifact"] for each in again["cells"]]
    matrix.write_text(matrix.read_text().replace("batch: [", "batch: [8, "))
    after = mxr("plan", matrix, "--json").json
    assert (after["summary"]["available"], after["summary"]["compile"], after["summary"]["unknown"]) == (
        CELLS,
        CELLS // len(BATCHES),
        0,
    )
    assert after["summary"]["minutes"] > 0


def test_a_killed_run_is_taken_up(
    mxr: Host, fleet: Callable[[], list[Worker]], matrix: Path, jobs: MatrixJobs, gate: Path
) -> None:
    """kill -9 in the middle; run again, nothing is compiled twice."""
    fleet()
    running = mxr.start("precompile", matrix)
    jobs.begun()
    running.send_signal(signal.SIGKILL)
    finish(running)
    gate.touch()
    assert mxr("precompile", matrix, "--json").json["summary"]["cells"] == CELLS
    assert closed(mxr, matrix) == CELLS
    assert jobs.compiles() == CELLS


def test_two_pipelines_at_once_share_every_compile(
    host: Callable[..., Host], fleet: Callable[[], list[Worker]], matrix: Path, jobs: MatrixJobs, gate: Path
) -> None:
    fleet()
    hosts = [host("one"), host("two")]
    both = [each.start("precompile", matrix, "--json") for each in hosts]
    jobs.begun()
    gate.touch()
    done = [finish(each) for each in both]
    assert [each.code for each in done] == [0, 0], done
    artifacts = [[cell["artifact"] for cell in each.json["cells"]] for each in done]
    assert artifacts[0] == artifacts[1] and None not in artifacts[0]
    assert jobs.compiles() == CELLS


def test_a_registry_that_goes_away_is_waited_for(
    registry: Registry, mxr: Host, fleet: Callable[[], list[Worker]], matrix: Path, jobs: MatrixJobs, gate: Path
) -> None:
    """The power goes in the middle; the run says so once, and goes on when the registry is back."""
    fleet()
    running = mxr.start("precompile", matrix)
    jobs.begun()
    registry.kill9()
    assert running.stderr is not None
    assert any("Retrying" in line for line in running.stderr)
    registry.start()
    gate.touch()
    done = finish(running)
    assert done.code == 0, done
    # Leases of two seconds run out meanwhile, so that a worker may be told to begin anew; nobody asks anew.
    assert len(jobs.ids()) == closed(mxr, matrix) == CELLS


def test_ctrl_c_leaves_the_jobs(
    mxr: Host, fleet: Callable[[], list[Worker]], matrix: Path, jobs: MatrixJobs, gate: Path
) -> None:
    """Exit 130 says how to go on; the jobs go on."""
    fleet()
    running = mxr.start("precompile", matrix)
    eventually(lambda: len(jobs.ids()) == CELLS)
    jobs.begun()
    running.send_signal(signal.SIGINT)
    done = finish(running)
    assert done.code == 130, done
    assert "jobs not finished" in done.err and "the same command again" in done.err
    gate.touch()
    eventually(lambda: len(jobs.ids("done")) == CELLS)
    assert closed(mxr, matrix) == CELLS


def test_one_bad_model_fails_alone(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], convnet: Path, tmp_path: Path
) -> None:
    """Exit 5 for the whole, with the kind of what failed; what is good is there. What nobody can do alone is 8."""
    worker("cpu").ready()
    words = "/src/src/onnx/onnx_parser.cpp:398: parse_graph: Unknown operator: Zeta<&>"
    bad = marked(compile=f"refuse:{words}")
    text = f"""
version: 1
models:
  - path: {bad.name}
  - path: {convnet.name}
batch: [2]
targets:
  - {{kind: ref, migraphx: "2.15"}}
  - {{arch: gfx1100, rocm: "7.2", migraphx: "2.15", runner: [self-hosted, gfx1100]}}
"""
    matrix = tmp_path / "m.yaml"
    matrix.write_text(text)
    summary = tmp_path / "summary.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = mxr("precompile", matrix, "--json", "--junit", tmp_path / "out.xml", env=github, expect=5)
    assert done.error["code"] == "compile_failed"
    assert [each["state"] for each in done.json["cells"]] == ["failed", "no worker", "compiled", "no worker"]
    assert done.json["cells"][0]["failure"]["kind"] == "permanent"
    assert f"::error file={matrix},line=4::" in done.err
    assert "| failed | 1 |" in summary.read_text() and "Zeta\\<\\&\\>" in summary.read_text()
    cases = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert [[each.tag for each in case] for case in cases] == [["failure"], ["error"], [], ["error"]]
    assert words in (cases[0][0].get("message") or "")
    assert cases[0][0].get("type", "").startswith("permanent:")
    plan = mxr("plan", matrix, "--json", expect=8).json
    assert [each["state"] for each in plan["cells"]] == ["failed before", "no worker", "available", "no worker"]
    jobs = mxr("plan", matrix, "--format", "github").json
    assert [(each["target"], each["runner"]) for each in jobs["include"]] == [
        ("gfx1100/rocm7.2/migraphx2.15", ["self-hosted", "gfx1100"])
    ]
    only = ("--target", "ref/migraphx2.15")
    assert "nothing to precompile" in mxr("plan", matrix, "--format", "gitlab", *only).out
    assert "precompile gfx1100/rocm7.2" in mxr("plan", matrix, "--format", "gitlab").out
    matrix.write_text(text.replace(f"  - path: {bad.name}\n", ""))
    mxr("precompile", matrix, expect=8)
    mxr("precompile", matrix, "--on-miss", "fail", expect=3)
    mxr("precompile", matrix, "--on-miss", "ask", expect=4)
    mxr("precompile", matrix, "--on-miss", "wait=1s", *only)
    for job in mxr("jobs", "--state", "open", "--json").json["jobs"]:
        mxr("jobs", job["id"], "--cancel")


def test_waiting_has_an_end(mxr: Host, fleet: Callable[[], list[Worker]], matrix: Path, gate: Path) -> None:
    """--on-miss wait=TIME ends with 4, and what came until then is there."""
    fleet()
    done = mxr("precompile", matrix, "--on-miss", "wait=5s", "--json", expect=4)
    assert done.json["error"]["retry"] is True
    assert done.json["summary"]["compiling"] + done.json["summary"]["queued"] >= CELLS - OPEN
    gate.touch()
    mxr("precompile", matrix)


def test_an_absent_registry_is_told_at_once(host: Callable[..., Host], matrix: Path) -> None:
    absent = host("alone", "http://127.0.0.1:9")
    assert absent("precompile", matrix, "--json", expect=69).error["retry"] is True
    absent("plan", matrix, expect=69)


@pytest.mark.real_migraphx
def test_a_real_migraphx_compiles_a_matrix(
    mxr: Host, worker: Callable[..., Worker], convnet: Path, tmp_path: Path
) -> None:
    """Batches and precisions on MIGraphX's own reference target."""
    one = worker("real", env=real_environ()).ready()
    cans = {each["name"]: each["can"] for each in mxr("workers", "--json").json["workers"]}
    version = cans[f"{one.name}/ref"]["toolchain"]["migraphx"].rpartition(".")[0]
    (tmp_path / "m.yaml").write_text(
        f"version: 1\nmodels: [{{path: {convnet.name}}}]\nbatch: [1, 4]\nprecision: [fp32, fp16]\n"
        f'targets: [{{kind: ref, migraphx: "${{MIGRAPHX}}"}}]\n'
    )
    found = mxr("precompile", tmp_path / "m.yaml", "--json", env={"MIGRAPHX": version}).json
    assert [each["state"] for each in found["cells"]] == ["compiled"] * 4
    assert {each["variant"] for each in found["cells"]} == {
        f"batch {batch} {precision} python" for batch in (1, 4) for precision in ("fp32", "fp16")
    }
