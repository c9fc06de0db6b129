"""Dims of outputs that follow from the weights of a model, and outputs of which none does."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import onnx
import pytest
from paths import DATA

from mxr.onnxfile import OutputDim, read_model


def model_of(nodes: str, weights: str, more_outputs: str = "") -> Any:
    """A model with input x and output y; its weights are zeros."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[M, 99] y{more_outputs}) '
        f"<{weights}> {{{nodes}}}"
    )
    for value in model.graph.value_info:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.helper.make_tensor(value.name, 1, dims, [0.0] * prod(dims)))
    del model.graph.value_info[:]
    return model


W, B = "float[8, 5] w", "float[5] b"
C = "float[6, 3, 1, 1] c"
LAST = OutputDim(-1, 5, None)


@pytest.mark.parametrize(
    ("weights", "nodes", "dim"),
    [
        (f"{W}, {B}", "y = Gemm (x, w, b)", OutputDim(-1, 5, 2)),
        (W, "y = Gemm <transB: int = 1> (x, w)", OutputDim(-1, 8, 2)),
        (W, "y = MatMul (x, w)", LAST),
        (f"{W}, {B}", "m = MatMul (x, w) a = Add (b, m) y = Softmax (a)", LAST),
        (f"{W}, {B}", "m = MatMul (x, w) a = Mul (m, b) s = Sigmoid (a) y = Identity (s)", LAST),
        (C, "k = Conv (x, c) y = Relu (k)", OutputDim(1, 6, 4)),
        # What may change a dim, is no weight, or is of no standard operator determines nothing.
        ("float[8, 1] w", "y = MatMul (x, w)", None),
        (f"{W}, float[1, 5] b", "m = MatMul (x, w) y = Add (m, b)", None),
        (f"{W}, {B}", "m = MatMul (x, w) s = Add (b, b) y = Add (m, s)", None),
        (W, "y = MatMul (w, x)", None),
        (W, "v = Identity (w) y = MatMul (x, v)", None),
        ("float[8] w", "y = MatMul (x, w)", None),
        (W, "m = MatMul (x, w) y = Transpose (m)", None),
        (W, "m = MatMul (x, w) z, y = Dropout (m)", None),
        ("", "y = Relu (x)", None),
        ("", "y = Constant <value = float[1] {1.0}> ()", None),
    ],
)
def test_a_dim_from_weights(tmp_path: Path, weights: str, nodes: str, dim: OutputDim | None) -> None:
    made = model_of(nodes, weights)
    onnx.save(made, tmp_path / "m.onnx")
    model = read_model(tmp_path / "m.onnx", weight_dims=True)
    assert model.weight_dims == ((("y", dim),) if dim else ())
    assert model.operators == {node.op_type for node in made.graph.node}


def test_an_operator_of_another_domain_determines_nothing(tmp_path: Path) -> None:
    model = model_of("y = MatMul (x, w)", W)
    model.graph.node[0].domain = "example.org"
    onnx.save(model, tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx", weight_dims=True).weight_dims == ()


def test_outputs_that_share_a_value_and_weights_in_another_file(tmp_path: Path) -> None:
    nodes = "y = Gemm (x, w) z = Relu (y) t = Transpose (z)"
    onnx.save(model_of(nodes, W, ", float[N, 5] z, float[5, N] t"), tmp_path / "m.onnx")
    dim = OutputDim(-1, 5, 2)
    assert dict(read_model(tmp_path / "m.onnx", weight_dims=True).weight_dims) == {"y": dim, "z": dim}
    found = read_model(DATA / "models" / "mlp_ext.onnx", weight_dims=True)
    assert [name for name, _ in found.weight_dims] == [each.name for each in found.outputs]
