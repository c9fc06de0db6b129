"""Models with one unusual feature each, which test one rule of the file names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, LONG = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64

Maker = Callable[[], onnx.ModelProto]
ODD: dict[str, Maker] = {}


def odd(function: Maker) -> Maker:
    """Registers a model under the name of its function."""
    ODD[function.__name__] = function
    return function


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str] | None],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    *,
    kind: int = FLOAT,
    opset: int = 17,
    declare_weights: bool = False,
    shapes: bool = False,
) -> onnx.ModelProto:
    """A small model; outputs have no shape, as some exporters write them."""
    tensors = [numpy_helper.from_array(values, name) for name, values in (weights or {}).items()]
    declared = [helper.make_tensor_value_info(name, kind, dims) for name, dims in inputs.items()]
    if declare_weights:
        declared += [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in tensors]
    graph = helper.make_graph(
        nodes, "g", declared, [helper.make_tensor_value_info(each, kind, None) for each in outputs], tensors
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return onnx.shape_inference.infer_shapes(made) if shapes else made


def weight(*dims: int) -> np.ndarray:
    return np.full(dims, 0.5, np.float32)


def node(op: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


CONVOLUTION = [node("Conv", ["x", "W"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "y")]


@odd
def conv_static() -> onnx.ModelProto:
    return model(CONVOLUTION, {"x": [1, 3, 224, 224]}, ["y"], {"W": weight(4, 3, 3, 3)})


@odd
def mm_static() -> onnx.ModelProto:
    return model([node("MatMul", ["a", "b"], "y")], {"a": [2, 3, 4], "b": [2, 4, 5]}, ["y"])


@odd
def ord() -> onnx.ModelProto:
    return model([node("MatMul", ["q", "p"], "m")], {"p": [4, 300], "q": [7, 4]}, ["m"])


@odd
def conv_dyn() -> onnx.ModelProto:
    return model(CONVOLUTION, {"x": ["N", 3, "H", "W"]}, ["y"], {"W": weight(4, 3, 3, 3)})


@odd
def open_batch() -> onnx.ModelProto:
    return model(CONVOLUTION, {"x": ["N", 3, 8, 8]}, ["y"], {"W": weight(4, 3, 3, 3)})


@odd
def no_shape() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y")], {"x": None}, ["y"])


@odd
def scalar_input() -> onnx.ModelProto:
    return model([node("Mul", ["x", "s"], "y")], {"x": [2, 3], "s": []}, ["y"])


@odd
def unused_input() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y")], {"a": [5, 6], "x": [2, 3], "z": [7, 8]}, ["y"])


@odd
def weights_declared() -> onnx.ModelProto:
    return model(CONVOLUTION, {"x": [1, 3, 8, 8]}, ["y"], {"W": weight(4, 3, 3, 3)}, declare_weights=True)


@odd
def unused_weight() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y")], {"x": [2, 3]}, ["y"], {"lost": weight(4)})


@odd
def value_infos() -> onnx.ModelProto:
    return model(CONVOLUTION, {"x": [1, 3, 8, 8]}, ["y"], {"W": weight(4, 3, 3, 3)}, shapes=True)


@odd
def optional_inputs() -> onnx.ModelProto:
    nodes = [node("Clip", ["x", "", "most"], "c"), node("Add", ["c", "x"], "y")]
    return model(nodes, {"x": [2, 3]}, ["y"], {"most": np.array(3, np.float32)})


@odd
def output_read_on() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y"), node("Exp", ["y"], "z")], {"x": [2, 3]}, ["y", "z"])


@odd
def input_used_late() -> onnx.ModelProto:
    nodes = [node("Add", ["a", "b"], "s"), node("Mul", ["s", "c"], "t"), node("Sub", ["t", "a"], "y")]
    return model(nodes, {"a": [3, 4], "b": [3, 4], "c": [3, 4]}, ["y"])


@odd
def layer_norm() -> onnx.ModelProto:
    nodes = [node("LayerNormalization", ["x", "g", "b"], "n"), node("Relu", ["n"], "y")]
    return model(nodes, {"x": [2, 5, 8]}, ["y"], {"g": weight(8), "b": weight(8)})


@odd
def gelu() -> onnx.ModelProto:
    return model([node("Gelu", ["x"], "y")], {"x": [2, 5]}, ["y"], opset=20)


@odd
def contrib_gelu() -> onnx.ModelProto:
    return model([node("Gelu", ["x"], "y", domain="com.microsoft")], {"x": [2, 5]}, ["y"])


@odd
def erf_gelu() -> onnx.ModelProto:
    nodes = [
        node("Div", ["x", "root"], "d"),
        node("Erf", ["d"], "e"),
        node("Add", ["e", "one"], "a"),
        node("Mul", ["x", "a"], "m"),
        node("Mul", ["m", "half"], "y"),
    ]
    numbers = {
        "root": np.array(1.4142135, np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }
    return model(nodes, {"x": [2, 5]}, ["y"], numbers)


@odd
def attention_as_exported() -> onnx.ModelProto:
    nodes = []
    for word in "qkv":
        nodes += [
            node("MatMul", ["x", f"W{word}"], f"{word}1"),
            node("Add", [f"{word}1", f"B{word}"], f"{word}2"),
            node("Reshape", [f"{word}2", "heads"], f"{word}3"),
            node("Transpose", [f"{word}3"], f"{word}4", perm=[0, 2, 3, 1] if word == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q4", "k4"], "s1"),
        node("Div", ["s1", "scale"], "s2"),
        node("Softmax", ["s2"], "s3", axis=-1),
        node("MatMul", ["s3", "v4"], "o1"),
        node("Transpose", ["o1"], "o2", perm=[0, 2, 1, 3]),
        node("Reshape", ["o2", "flat"], "y"),
    ]
    weights = {f"W{word}": weight(16, 16) for word in "qkv"} | {f"B{word}": weight(16) for word in "qkv"}
    weights |= {"heads": np.array([1, 6, 4, 4]), "flat": np.array([1, 6, 16]), "scale": np.array(2, np.float32)}
    return model(nodes, {"x": [1, 6, 16]}, ["y"], weights)


@odd
def same_pads() -> onnx.ModelProto:
    nodes = [node("Pad", ["x", "pads"], "p"), node("Conv", ["p", "W"], "y")]
    weights = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "W": weight(4, 3, 3, 3)}
    return model(nodes, {"x": [1, 3, 8, 8]}, ["y"], weights)


@odd
def old_opset() -> onnx.ModelProto:
    nodes = [node("Unsqueeze", ["x"], "u", axes=[0]), node("Squeeze", ["u"], "y", axes=[0])]
    return model([*nodes, node("Relu", ["y"], "z")], {"x": [2, 5]}, ["z"], opset=11)


@odd
def new_opset() -> onnx.ModelProto:
    return model([node("ReduceMean", ["x", "axes"], "y")], {"x": [2, 5]}, ["y"], {"axes": np.array([1])}, opset=21)


@odd
def resize() -> onnx.ModelProto:
    nodes = [node("Resize", ["x", "", "scales"], "y", mode="nearest")]
    return model(nodes, {"x": [1, 3, 4, 4]}, ["y"], {"scales": np.array([1, 1, 2, 2], np.float32)})


@odd
def top_k() -> onnx.ModelProto:
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"])]
    return model(nodes, {"x": [2, 9]}, ["v"], {"k": np.array([3])})


@odd
def shape_computed() -> onnx.ModelProto:
    """The shape is the value of an input, so it is unknown before the run."""
    made = model([node("Reshape", ["x", "s"], "y")], {"x": [2, 6]}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("s", LONG, [2]))
    return made


@odd
def unsupported() -> onnx.ModelProto:
    nodes = [node("Relu", ["x"], "a"), node("Hardmax", ["a"], "b"), node("Exp", ["b"], "y")]
    return model(nodes, {"x": [2, 5]}, ["y"])


@odd
def only_unsupported() -> onnx.ModelProto:
    return model([node("Hardmax", ["x"], "y")], {"x": [2, 5]}, ["y"])


@odd
def branches() -> onnx.ModelProto:
    def branch(op: str) -> onnx.GraphProto:
        end = helper.make_tensor_value_info(f"{op}_out", FLOAT, [2, 5])
        return helper.make_graph([node(op, ["x"], f"{op}_out")], op, [], [end])

    made = model([node("If", ["c"], "y", then_branch=branch("Relu"), else_branch=branch("Exp"))], {"x": [2, 5]}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return made


@odd
def all_constant() -> onnx.ModelProto:
    return model([node("Relu", ["w"], "y")], {}, ["y"], {"w": weight(2, 2)})


@odd
def local_function() -> onnx.ModelProto:
    made = model([node("Twice", ["x"], "y", domain="here")], {"x": [2, 5]}, ["y"])
    made.functions.append(
        helper.make_function(
            "here", "Twice", ["i"], ["o"], [node("Add", ["i", "i"], "o")], [helper.make_opsetid("", 17)]
        )
    )
    made.opset_import.append(helper.make_opsetid("here", 1))
    return made


@odd
def quantized() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("DequantizeLinear", ["W", "s", "z"], "w"),
        node("MatMul", ["d", "w"], "y"),
    ]
    weights = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8), "W": np.ones((5, 4), np.int8)}
    return model(nodes, {"x": [2, 5]}, ["y"], weights)


@odd
def half_constants() -> onnx.ModelProto:
    """Two weights, whose product ONNX Runtime folds if it can compute half precision."""
    halves = {name: np.full((5,), 0.5, np.float16) for name in ("u", "v")}
    nodes = [node("Mul", ["u", "v"], "w"), node("Add", ["x", "w"], "y")]
    return model(nodes, {"x": [2, 5]}, ["y"], halves, kind=HALF)


@odd
def bfloat16() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y")], {"x": [2, 5]}, ["y"], kind=TensorProto.BFLOAT16)


@odd
def double() -> onnx.ModelProto:
    return model([node("Relu", ["x"], "y")], {"x": [2, 5]}, ["y"], kind=TensorProto.DOUBLE)


@odd
def embedding() -> onnx.ModelProto:
    nodes = [node("Gather", ["table", "x"], "e"), node("Relu", ["e"], "y")]
    made = model(nodes, {"x": [1, 7]}, ["y"], {"table": weight(100, 16)}, kind=LONG)
    made.graph.output[0].type.tensor_type.elem_type = FLOAT
    return made


@odd
def names_not_ascii() -> onnx.ModelProto:
    return model([node("Relu", ["entrée/été"], "größe")], {"entrée/été": [2, 5]}, ["größe"])
