"""Small ONNX graphs, one for each kind of operator, with the dims of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
OPSET = 17


@dataclass(frozen=True)
class Graph:
    """A model. `batched`: the first dim of every input is the symbol N. `tolerance`: for float32 outputs."""

    name: str
    make: Callable[[], onnx.ModelProto]
    batched: bool = True
    inputs: dict[str, list[int]] = field(default_factory=dict)
    tolerance: float = 1e-4

    def write(self, folder: Path, marks: dict[str, str] | None = None) -> Path:
        """Write the file, with `marks` in its metadata: the faults of the MIGraphX double."""
        model = self.make()
        helper.set_model_props(model, marks or {})
        path = folder / f"{self.name}.onnx"
        external = self.name == "external_data"
        size = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0} if external else {}
        onnx.save(model, str(path), **size)
        return path

    def dims(self, batch: int) -> dict[str, list[int]]:
        """The dims of every input for this batch size."""
        return {name: [batch, *dims] if self.batched else dims for name, dims in self.inputs.items()}


GRAPHS: dict[str, Graph] = {}


def _weight(name: str, *dims: int, scale: float = 0.5) -> onnx.TensorProto:
    random = np.random.default_rng(sum(name.encode()) + len(dims))
    return numpy_helper.from_array((random.standard_normal(dims) * scale).astype("float32"), name)


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype="int64"), name)


def _floats(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype="float32"), name)


def _scalar(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.float32(value), name)


def _add(name, nodes, inputs, weights=(), outputs=("y",), *, kinds=None, batched=True, opset=OPSET, tolerance=1e-4):
    """Register a graph. `inputs`: dims without the batch. `outputs`: names or (name, type) pairs."""
    kinds = kinds or {}

    def make() -> onnx.ModelProto:
        ins = [
            helper.make_tensor_value_info(each, kinds.get(each, FLOAT), ["N", *dims] if batched else dims)
            for each, dims in inputs.items()
        ]
        outs = [each if isinstance(each, tuple) else (each, FLOAT) for each in outputs]
        ends = [helper.make_tensor_value_info(each, kind, None) for each, kind in outs]
        graph = helper.make_graph(nodes, name, ins, ends, list(weights))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    GRAPHS[name] = Graph(name, make, batched, inputs, tolerance)


def _n(op, ins, outs="y", **attributes):
    return helper.make_node(op, ins.split(), outs.split(), **attributes)


IMAGE = {"x": [3, 8, 8]}
ROWS = {"x": [16]}

_add("relu", [_n("Relu", "x")], IMAGE)
_add("sigmoid_tanh", [_n("Sigmoid", "x", "s"), _n("Tanh", "s")], ROWS)
_add("conv", [_n("Conv", "x w b", pads=[1, 1, 1, 1])], IMAGE, [_weight("w", 4, 3, 3, 3), _weight("b", 4)])
_add("conv_stride_group", [_n("Conv", "x w", group=3, strides=[2, 2])], IMAGE, [_weight("w", 6, 1, 3, 3)])
_add("conv_transpose", [_n("ConvTranspose", "x w", strides=[2, 2])], IMAGE, [_weight("w", 3, 2, 2, 2)])
_add(
    "conv_bn_relu",
    [_n("Conv", "x w", "c"), _n("BatchNormalization", "c s b m v", "n"), _n("Relu", "n")],
    IMAGE,
    [_weight("w", 4, 3, 3, 3), *(_floats(n, 0.5, 1.0, 1.5, 2.0) for n in "sbmv")],
)
_add("gemm", [_n("Gemm", "x w b", transB=1)], ROWS, [_weight("w", 5, 16), _weight("b", 5)])
_add("matmul", [_n("MatMul", "x w")], {"x": [4, 16]}, [_weight("w", 16, 5)])
_add("matmul_two_inputs", [_n("MatMul", "x z")], {"x": [4, 6], "z": [6, 5]})
_add("softmax", [_n("Softmax", "x", axis=-1)], ROWS)
_add("log_softmax", [_n("LogSoftmax", "x", axis=1)], ROWS)
_add("max_pool", [_n("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])], IMAGE)
_add("average_pool", [_n("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], IMAGE)
_add("global_average_pool", [_n("GlobalAveragePool", "x")], IMAGE)
_add("concat", [_n("Concat", "x z", axis=1)], {"x": [3, 4], "z": [2, 4]})
_add("slice", [_n("Slice", "x a b c")], ROWS, [_ints("a", 2), _ints("b", 10), _ints("c", 1)])
_add("transpose", [_n("Transpose", "x", perm=[0, 2, 3, 1])], IMAGE)
_add("reshape", [_n("Reshape", "x s")], IMAGE, [_ints("s", 0, -1)])
_add("flatten", [_n("Flatten", "x")], IMAGE)
_add("squeeze", [_n("Unsqueeze", "x a", "u"), _n("Squeeze", "u a", "q"), _n("Neg", "q")], ROWS, [_ints("a", 1)])
_add("reduce_mean", [_n("ReduceMean", "x", axes=[2, 3], keepdims=0)], IMAGE)
_add("reduce_sum", [_n("ReduceSum", "x a", keepdims=1)], IMAGE, [_ints("a", 1)])
_add("reduce_max", [_n("ReduceMax", "x", axes=[1])], IMAGE)
_add(
    "layer_norm",
    [_n("LayerNormalization", "x s b", axis=-1)],
    {"x": [4, 16]},
    [_weight("s", 16), _weight("b", 16)],
    tolerance=1e-3,
)
_add("instance_norm", [_n("InstanceNormalization", "x s b")], IMAGE, [_weight("s", 3), _weight("b", 3)], tolerance=1e-3)
_add("gather", [_n("Gather", "x i", axis=1)], ROWS, [_ints("i", 0, 3, 5)])
_add("embedding", [_n("Gather", "w x")], {"x": [6]}, [_weight("w", 8, 4)], kinds={"x": INT64})
_add("split", [_n("Split", "x p", "a b", axis=1)], ROWS, [_ints("p", 6, 10)], outputs=("a", "b"))
_add("clip", [_n("Clip", "x a b")], ROWS, [_scalar("a", 0.25), _scalar("b", 0.75)])
_add("erf", [_n("Erf", "x")], ROWS)
_add("elu_leaky", [_n("Elu", "x", "e"), _n("LeakyRelu", "e", alpha=0.2)], ROWS)
_add("hard_sigmoid", [_n("HardSigmoid", "x")], ROWS)
_add("pad", [_n("Pad", "x p")], {"x": [4, 4]}, [_ints("p", 0, 1, 1, 0, 1, 1)])
_add("where", [_n("Greater", "x z", "g"), _n("Where", "g x z")], {"x": [16], "z": [16]})
_add("cast", [_n("Cast", "x", "c", to=INT64), _n("Cast", "c", to=FLOAT)], ROWS)
_add("argmax", [_n("ArgMax", "x", axis=1)], ROWS, outputs=(("y", INT64),))
_add("topk", [_n("TopK", "x k", "v i", axis=1)], ROWS, [_ints("k", 3)], outputs=("v", ("i", INT64)))
_add("depth_to_space", [_n("DepthToSpace", "x", blocksize=2)], {"x": [4, 4, 4]})
_add("bool_input", [_n("Where", "c x z")], {"x": [8], "c": [8], "z": [8]}, kinds={"c": BOOL})
_add("not_equal", [_n("Equal", "x z", "e"), _n("Not", "e")], {"x": [8], "z": [8]}, outputs=(("y", BOOL),))
_add("no_batch", [_n("Sqrt", "x", "s"), _n("Log", "s", "l"), _n("Exp", "l")], {"x": [4, 4]}, batched=False)
_add("scalar_input", [_n("Mul", "x s")], {"x": [4], "s": []}, batched=False)
_add("external_data", [_n("MatMul", "x w", "m"), _n("Add", "m b")], ROWS, [_weight("w", 16, 8), _weight("b", 8)])
_add(
    "resize",
    [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric")],
    IMAGE,
    [_floats("s", 1, 1, 2, 2)],
)  # fmt: skip
_add(
    "gelu",
    [_n("Div", "x r", "d"), _n("Erf", "d", "e"), _n("Add", "e o", "a"), _n("Mul", "x a", "m"), _n("Mul", "m h")],
    ROWS,
    [_floats("r", 2**0.5), _floats("o", 1.0), _floats("h", 0.5)],
)
_add(
    "attention",
    [
        _n("MatMul", "x q", "a"),
        _n("MatMul", "x k", "b"),
        _n("Transpose", "b", "t", perm=[0, 2, 1]),
        _n("MatMul", "a t", "s"),
        _n("Softmax", "s", "p", axis=-1),
        _n("MatMul", "p x"),
    ],
    {"x": [4, 8]},
    [_weight("q", 8, 8), _weight("k", 8, 8)],
)
_add(
    "lstm",
    [_n("LSTM", "x w r", "o h", hidden_size=4)],
    {"x": [2, 2, 3]},
    [_weight("w", 1, 16, 3), _weight("r", 1, 16, 4)],
    outputs=("h",),
    batched=False,
)


def _branch(name: str, op: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(f"{name}_y", FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], [f"{name}_y"])], name, [], [out])


_add(
    "if",
    [
        _n("ReduceSum", "x", "s", keepdims=0),
        _n("Greater", "s t", "c"),
        helper.make_node("If", ["c"], ["y"], then_branch=_branch("then", "Relu"), else_branch=_branch("else", "Neg")),
    ],
    ROWS,
    [_scalar("t", 1.0)],
)
