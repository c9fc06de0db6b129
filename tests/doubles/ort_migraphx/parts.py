"""Small models of which ONNX Runtime's MIGraphX provider compiles several parts, one, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = {"W": (1, 16, 4), "R": (1, 16, 4)}


def node(op: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def several(path: Path, batch: int | str = 1) -> Path:
    """Two recurrent layers with a Hardmax between them, which the provider leaves to the CPU: two files.

    The provider also leaves parts without recurrent layers or large matrices to the CPU.
    """
    nodes = [
        node("LSTM", ["x", "W", "R"], "a", hidden_size=4),
        node("Squeeze", ["a", "axis"], "b"),
        node("Hardmax", ["b"], "c"),
        node("LSTM", ["c", "W", "R"], "y", hidden_size=4),
    ]
    tensors = [numpy_helper.from_array(np.full(dims, 0.5, np.float32), name) for name, dims in WEIGHTS.items()]
    return _save(path, nodes, [2, batch, 4], [*tensors, numpy_helper.from_array(np.array([1]), "axis")])


def none(path: Path) -> Path:
    """A Hardmax: the whole model runs on the CPU."""
    return _save(path, [node("Hardmax", ["x"], "y")], [4, 3], [])


def one(path: Path, batch: int | str = 4) -> Path:
    """A Relu, with a batch dim that may be open: one file."""
    return _save(path, [node("Relu", ["x"], "y")], [batch, 3], [])


def _save(path: Path, nodes: list[onnx.NodeProto], dims: list[int | str], tensors: list[onnx.TensorProto]) -> Path:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made.doc_string = str(path)  # makes the model unique to this test
    onnx.save(made, str(path))
    return path
