"""The `model.py` that mxr writes for Triton, run by a stand-in for its Python backend: each request gets its rows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import DATA, DOUBLES
from strategies import GPU

from mxr import consumers
from mxr.cache.store import Cache
from mxr.onnxfile import read_model

from . import configs
from .parts import delivery, place

pytestmark = pytest.mark.process

MODEL = DATA / "models" / "mlp_ext.onnx"


@pytest.fixture(params=["double", pytest.param("real", marks=pytest.mark.real_migraphx)])
def interpreter(request: pytest.FixtureRequest) -> tuple[list[str], dict[str, str]]:
    """An interpreter that can import migraphx, and its environment."""
    if request.param == "double":
        return [sys.executable], {**os.environ, "PYTHONPATH": str(DOUBLES)}
    command = shlex.split(os.environ.get("MXR_TEST_MIGRAPHX_PYTHON", ""))
    if not command:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter that can import migraphx")
    return command, {**os.environ, "PYTHONPATH": os.environ.get("MXR_TEST_MIGRAPHX_PATH", "")}


def run(interpreter: tuple[list[str], dict[str, str]], *words: object, order: dict[str, Any] | None = None) -> str:
    command, environ = interpreter
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("triton_server.py")), *map(str, words)],
        env=environ,
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def laid_out(interpreter: Any, tmp_path: Path, batch: int, inputs: tuple[Any, ...] | None = None) -> dict[str, Any]:
    """Compiles the model and places it. Returns the task for the server without its requests."""
    program = tmp_path / "program.mxr"
    run(interpreter, "compile", MODEL, batch, program)
    onnx, data = read_model(MODEL), program.read_bytes()
    key = replace(GPU, kind="ref", inputs=(("x", (batch, 256)),))
    made = delivery(
        tmp_path / "models",
        key,
        data,
        inputs=inputs or onnx.inputs,
        outputs=onnx.outputs,
        described_outputs=[{"dims": [batch, 64]}],
    )
    layout = place(consumers.find_consumer("triton"), Cache(tmp_path / "cache"), made, data)
    config = configs.read((made.folder / layout.pieces[-1].name).read_text())
    (version,) = config["version_policy"]["specific"]["versions"]
    return {"folder": str(made.folder / "m"), "version": version, "config": config}


def test_rows_of_several_requests_share_runs(interpreter: Any, tmp_path: Path) -> None:
    order = laid_out(interpreter, tmp_path, 4)
    assert order["config"]["max_batch_size"] == "4"
    worst = json.loads(run(interpreter, "serve", order={**order, "rows": [4, 1, 2, 1, 9]}))
    assert len(worst) == 5 and max(worst) < 1e-4


def test_a_model_of_fixed_shapes_takes_whole_requests(interpreter: Any, tmp_path: Path) -> None:
    closed = (replace(read_model(MODEL).inputs[0], dims=(2, 256)),)
    order = laid_out(interpreter, tmp_path, 2, closed)
    assert order["config"]["max_batch_size"] == "0"
    worst = json.loads(run(interpreter, "serve", order={**order, "rows": [2]}))
    assert len(worst) == 1 and max(worst) < 1e-4
