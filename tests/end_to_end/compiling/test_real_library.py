"""The whole way with a real MIGraphX on its CPU reference target: asked, queued, compiled, fetched, run, compared.

One registry and one worker for all; each program that a fetch brings runs in a process of its own library, and what it
computes is held against ONNX Runtime.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiler_workers.graphs import GRAPHS
from end_to_end.stack import Host, Registry, real_environ

from mxr import host_facts as hosts
from mxr.artifact.target import DynamicDim
from mxr.cache.store import Cache
from mxr.client.registry import Client
from mxr.errors import NoSuchArtifactError
from mxr.protocol import jobs as job_protocol
from mxr.request.builder import RequestOptions
from mxr.settings import load_settings
from mxr.workflows import compile as compile_workflow
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.preparation import prepare

from .conftest import Worker

if not os.environ.get("MXR_TEST_MIGRAPHX_PYTHON"):
    pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx", allow_module_level=True)

ON = ("embedded",)

pytestmark = [pytest.mark.real_migraphx, pytest.mark.timeout(300)]

runtime = importlib.import_module("onnxruntime")

BATCHES = [int(each) for each in os.environ.get("MXR_TEST_BATCHES", "1,4").split(",")]
SETS = [(name, batch) for name, graph in GRAPHS.items() for batch in (BATCHES if graph.batched else [1])]
HALVES = [(name, batch) for name, batch in SETS if batch == BATCHES[-1] or not GRAPHS[name].batched]
EIGHT_BITS = ["conv", "conv_bn_relu", "gemm", "matmul"]
"""Where int8 and fp8 have something to quantise, and one sample of calibration data tells the range of all."""

WRONG = {
    ("cast", precision): f"MIGraphX 2.16's quantize_{precision} drops a conversion to int64 and back, which rounds"
    for precision in ("fp16", "bf16")
}
"""What MIGraphX itself computes wrongly; strict, so that a release that mends it is noticed."""

TOLERANCES = {"fp16": 3e-2, "bf16": 1e-1}
OFF = {"int8": 0.05, "fp8": 0.15, "int8+fp16": 0.05}
"""Of the largest output: what eight bits may cost with calibration."""


@dataclass(frozen=True)
class Shop:
    """A registry with a real worker, and a host that asks; `version` is that of the library, MAJOR.MINOR."""

    folder: Path
    host: Host
    version: str
    runner: subprocess.Popen[str]

    def fetch(self, model: Path, calibration: Path | None = None, **said: Any) -> fetch_workflow.Fetched:
        """As `mxr fetch --on-miss wait` does, without the start of a program each time."""
        cache, client = Cache(self.host.cache), Client(load_settings(self.host.environ))
        options = RequestOptions(kind="ref", migraphx=self.version, consumer="python", calibration=calibration, **said)
        asked = prepare(options, str(model), cache, lambda: client, hosts.Host())
        with pytest.raises(NoSuchArtifactError):
            fetch_workflow.fetch(asked.request, cache, lambda: client)
        wanted = compile_workflow.CompileOrder(
            job_protocol.CompileRequest(asked.request.key, asked.request.constraints, require_worker=True),
            asked.model,
            calibration,
        )
        job = compile_workflow.request_compile(client, wanted)
        for progress in compile_workflow.follow(client, job):
            job = progress.job
        return fetch_workflow.fetch_compiled(compile_workflow.outcome(client, job), asked.request, cache, client)

    def run(self, program: Path, values: dict[str, np.ndarray]) -> list[np.ndarray]:
        """What the real library computes with a program."""
        assert self.runner.stdin is not None and self.runner.stdout is not None
        order = {"program": str(program)}
        order |= {name: str(self.folder / f"{name}.npz") for name in ("values", "outputs")}
        np.savez(order["values"], **values)
        self.runner.stdin.write(json.dumps(order) + "\n")
        self.runner.stdin.flush()
        assert self.runner.stdout.readline() == "\n"
        with np.load(order["outputs"]) as found:
            return [found[f"out{at}"] for at in range(len(found.files))]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[Shop]:
    """One worker with the real library, for all tests of this module."""
    environ, home = real_environ(), tmp_path_factory.mktemp("shop")
    host = Host(home / "asker", registry.url)
    worker = Worker(home / "real", registry.url, env=environ)
    runner = subprocess.Popen(
        [environ["MXR_WORKER_PYTHON"], str(Path(__file__).with_name("real_runs.py"))],
        env=host.environ | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        worker.ready()
        (can,) = [each["can"] for each in host("workers", "--json").json["workers"]]
        yield Shop(home, host, can["toolchain"]["migraphx"].rpartition(".")[0], runner)
        registry.fsck()
    finally:
        worker.end()
        runner.communicate()


def values_for(model: Path, dims: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Values for each input: reals in [0, 1), integers and truths that are 0 or 1."""
    random, found = np.random.default_rng(7), {}
    for each in runtime.InferenceSession(str(model)).get_inputs():
        shape = dims[each.name]
        kind = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}[each.type]
        drawn = random.random(shape) if kind == "float32" else random.integers(0, 2, shape)
        found[each.name] = np.array(drawn, dtype=kind)
    return found


def compared(shop: Shop, program: Path, model: Path, values: dict[str, np.ndarray]) -> Iterator[tuple[Any, Any]]:
    """Each output, as the program computes it and as ONNX Runtime does."""
    expected = runtime.InferenceSession(str(model)).run(None, values)
    found = shop.run(program, values)
    assert len(found) == len(expected)
    for made, want in zip(found, expected, strict=True):
        assert made.size == want.size
        yield made.reshape(want.shape), want


def close(shop: Shop, folder: Path, name: str, batch: int, precision: str) -> None:
    """Have a graph compiled, and compare what it computes."""
    graph = GRAPHS[name]
    model = graph.write(folder)
    fetched = shop.fetch(model, batch=batch if graph.batched else None, precision=precision)
    assert fetched.source == "compiled" and fetched.answer.match.exact
    tolerance = TOLERANCES.get(precision, graph.tolerance)
    for made, want in compared(shop, fetched.path, model, values_for(model, graph.dims(batch))):
        np.testing.assert_allclose(made, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "batch"), SETS, ids=str)
def test_fp32(shop: Shop, tmp_path: Path, name: str, batch: int) -> None:
    """Every graph, at every batch."""
    close(shop, tmp_path, name, batch, "fp32")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("name", "batch"), HALVES, ids=str)
def test_half_precisions(
    shop: Shop, tmp_path: Path, request: pytest.FixtureRequest, name: str, batch: int, precision: str
) -> None:
    """Every graph at the largest batch."""
    if (name, precision) in WRONG:
        request.applymarker(pytest.mark.xfail(reason=WRONG[name, precision], raises=AssertionError, strict=True))
    close(shop, tmp_path, name, batch, precision)


@pytest.mark.parametrize("precision", list(OFF))
@pytest.mark.parametrize("name", EIGHT_BITS)
def test_eight_bits_with_calibration(shop: Shop, tmp_path: Path, name: str, precision: str) -> None:
    """The calibration data travel with the job; the outputs are off by little of their range."""
    graph = GRAPHS[name]
    model, samples = graph.write(tmp_path), tmp_path / "samples.npz"
    values = values_for(model, graph.dims(4))
    np.savez(samples, **values)
    fetched = shop.fetch(model, calibration=samples, batch=4, precision=precision)
    assert fetched.answer.artifact.key.calibration
    for made, want in compared(shop, fetched.path, model, values):
        assert np.abs(made - want).max() <= OFF[precision] * np.abs(want).max()


def test_a_dynamic_batch(shop: Shop, tmp_path: Path) -> None:
    """One program for several batches."""
    graph = GRAPHS["gemm"]
    model = graph.write(tmp_path)
    fetched = shop.fetch(model, inputs=(("x", (DynamicDim(1, 4, (1, 4)), 16)),))
    for batch in (1, 3, 4):
        for made, want in compared(shop, fetched.path, model, values_for(model, graph.dims(batch))):
            np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["attention", "external_data", "resize"])
def test_by_the_command(shop: Shop, host: Callable[..., Host], registry: Registry, tmp_path: Path, name: str) -> None:
    """`mxr fetch --on-miss wait`: compiled for the first host, in its cache then, and in the registry for the next."""
    model = GRAPHS[name].write(tmp_path)
    words = ("fetch", model, "--kind", "ref", "--migraphx", shop.version, "--batch", "2", "--for", "python", "--json")
    first, second = host("first"), host("second")
    done = first(*words, "--on-miss", "wait").json
    assert (done["source"], done["match"]["exact"]) == ("compiled", True)
    assert first(*words).json["source"] == "cache"
    other = second(*words).json
    assert (other["source"], other["sha256"]) == ("registry", done["sha256"])
    shown = first("show", done["id"], "--json").json["provenance"]
    assert shown["verified"]["ran"] and shown["verified"]["finite"] and shown["compile_seconds"] > 0
    program = first("inspect", done["path"], "--json").json
    assert (program["compiled"], program["targets"]) == (True, ["ref"])
    values = values_for(model, GRAPHS[name].dims(2))
    for made, want in compared(shop, Path(other["path"]), model, values):
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)


def test_a_refusal_of_the_library_is_permanent(shop: Shop, host: Callable[..., Host], tmp_path: Path) -> None:
    """An operator that MIGraphX does not know: exit 5 in its own words, and not compiled again."""
    import onnx

    model = onnx.load(str(GRAPHS["relu"].write(tmp_path)))
    model.graph.node[0].op_type = "Wibble"
    onnx.save(model, str(tmp_path / "odd.onnx"))
    words = ("--kind", "ref", "--migraphx", shop.version, "--batch", "2", "--for", "python", "--on-miss", "wait")
    mxr = host("asker")
    done = mxr("fetch", tmp_path / "odd.onnx", *words, "--json", expect=5)
    assert done.error["context"]["kind"] == "permanent" and "Wibble" in done.error["detail"]
    again = mxr("fetch", tmp_path / "odd.onnx", *words, "--json", expect=5)
    assert mxr("jobs", again.error["context"]["job"], "--json").json["attempts"] == 0


def test_this_host_compiles_with_its_own_library(
    shop: Shop, host: Callable[..., Host], own_registry: Callable[..., Registry], tmp_path: Path
) -> None:
    """`--on-miss local` with the real library, where no other worker is."""
    model = GRAPHS["conv"].write(tmp_path)
    words = ("--kind", "ref", "--migraphx", shop.version, "--batch", "3", "--for", "python", "--on-miss", "local")
    found = host("local", own_registry().url)("fetch", model, *words, "--json", env=real_environ()).json
    assert found["source"] == "compiled"
    for made, want in compared(shop, Path(found["path"]), model, values_for(model, GRAPHS["conv"].dims(3))):
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-4)
