"""Stands in for Triton's Python backend: compiles a model, loads `model.py` as Triton does, and runs requests.

Run by an interpreter that can import migraphx: `compile MODEL BATCH PROGRAM`, or `serve` with an order on standard
input: {"folder", "version", "config", "rows"}. For each request it prints the largest difference from running each row
of it alone. Source: triton-inference-server/python_backend, README (initialize's args, execute, pb_utils).
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import migraphx
import numpy as np


class Tensor:
    """A tensor with a name."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class InferenceResponse:
    """The answer to one request."""

    def __init__(self, output_tensors: list[Tensor]) -> None:
        self.tensors = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}


def compile_(model: str, batch: int, program: str) -> None:
    found = migraphx.parse_onnx(model, map_input_dims={"x": [batch, 256]})
    found.compile(migraphx.get_target("ref"))
    migraphx.save(found, program)


def alone(program: migraphx.program, array: np.ndarray) -> np.ndarray:
    # The argument points into the array: it must outlive the run.
    return np.array(program.run({"x": migraphx.argument(array)})[0])[0]


def serve(order: dict) -> list[float]:
    backend = types.ModuleType("triton_python_backend_utils")
    backend.Tensor, backend.InferenceResponse = Tensor, InferenceResponse
    backend.get_input_tensor_by_name = dict.get
    sys.modules["triton_python_backend_utils"] = backend
    home = Path(order["folder"], str(order["version"]))
    spec = importlib.util.spec_from_file_location("model", home / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps(order["config"]),
            "model_repository": order["folder"],
            "model_version": str(order["version"]),
        }
    )
    random = np.random.default_rng(7)
    arrays = [random.standard_normal((rows, 256), dtype=np.float32) for rows in order["rows"]]
    responses = model.execute([{"x": Tensor("x", array)} for array in arrays])
    program = migraphx.load(str(home / order["config"]["parameters"]["program"]["string_value"]))
    batch = program.get_parameter_shapes()["x"].lens()[0]
    worst = []
    for array, response in zip(arrays, responses, strict=True):
        got = response.tensors["y"]
        rows = [alone(program, np.repeat(row[None], batch, axis=0)) for row in array]
        worst.append(float(np.abs(got - np.stack(rows)).max()) if got.shape[0] == len(array) else float("inf"))
    return worst


if __name__ == "__main__":
    if sys.argv[1] == "compile":
        compile_(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        sys.stdout.write(json.dumps(serve(json.load(sys.stdin))))
