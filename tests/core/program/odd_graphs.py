"""ONNX graphs with unusual types, inputs, subgraphs and sizes, for the tests of the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, INT8, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8
INT32, INT64, BOOL, DOUBLE, BF16 = (
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.DOUBLE,
    TensorProto.BFLOAT16,
)

Model = Callable[[], onnx.ModelProto]
ODD: dict[str, Model] = {}


def write(name: str, folder: Path) -> Path:
    """Write the graph to a file; return its path."""
    path = folder / f"{name}.onnx"
    onnx.save(ODD[name](), str(path))
    return path


def _n(op: str, ins: str, outs: str = "y", **attributes) -> onnx.NodeProto:
    return helper.make_node(op, ins.split(), outs.split(), **attributes)


def _tensor(name: str, values, kind: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype=kind), name)


def _random(name: str, *dims: int, kind: str = "float32") -> onnx.TensorProto:
    return _tensor(name, np.random.default_rng(sum(name.encode())).standard_normal(dims), kind)


def _value(name: str, kind: int, dims: list | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _add(name: str, nodes, inputs, outputs=(("y", FLOAT),), weights=(), *, listed=(), opset=17) -> None:
    """Register a graph. `inputs` are (name, type, dims), `outputs` too if they declare dims.

    `listed` names weights that are also listed as inputs.
    """

    def model() -> onnx.ModelProto:
        ins = [_value(*each) for each in inputs]
        ins += [_value(each.name, each.data_type, list(each.dims)) for each in weights if each.name in listed]
        ends = [_value(*each, *([None] * (3 - len(each)))) for each in outputs]
        graph = helper.make_graph(list(nodes), name, ins, ends, list(weights))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    ODD[name] = model


_ROW = ("x", FLOAT, ["N", 8])

_add("half_model", [_n("MatMul", "x w")], [("x", HALF, ["N", 8])], [("y", HALF)], [_random("w", 8, 4, kind="float16")])
_add("double_model", [_n("MatMul", "x w")], [("x", DOUBLE, ["N", 8])], [("y", DOUBLE)], [_random("w", 8, 4, kind="f8")])
_add(
    "quantised_model",
    [_n("QuantizeLinear", "x s z", "q"), _n("DequantizeLinear", "q s z", "d"), _n("MatMul", "d w")],
    [_ROW],
    weights=[_tensor("s", 0.1), _tensor("z", 3, "int8"), _random("w", 8, 4)],
)
_add(
    "quantised_unsigned",
    [_n("QuantizeLinear", "x s z", "q"), _n("DequantizeLinear", "q s z")],
    [_ROW],
    weights=[_tensor("s", 0.1), _tensor("z", 128, "uint8")],
)
_add(
    "integer_matmul",
    [_n("MatMulInteger", "x w")],
    [("x", INT8, ["N", 8])],
    [("y", INT32)],
    [_tensor("w", np.ones((8, 4)), "int8")],
)
_add("int8_only", [_n("Add", "x x")], [("x", INT8, [4])], [("y", INT8)])
_add("uint8_pixels", [_n("Cast", "x", "c", to=FLOAT), _n("Relu", "c")], [("x", UINT8, ["N", 3, 4, 4])])
_add("int32_input", [_n("Add", "x x")], [("x", INT32, ["N", 4])], [("y", INT32)])
_add("unused_input", [_n("Relu", "x")], [_ROW, ("z", FLOAT, ["N", 3])])
_add("weight_among_inputs", [_n("MatMul", "x w")], [_ROW], weights=[_random("w", 8, 4)], listed=("w",))
_add("unused_weight", [_n("Relu", "x")], [_ROW], weights=[_random("w", 64, 64)])
_add("no_inputs", [_n("Add", "a b")], [], weights=[_random("a", 4), _random("b", 4)])
_add("input_is_output", [_n("Identity", "x")], [_ROW])
_add(
    "the_same_output_twice", [_n("Relu", "x"), _n("Relu", "x", "z")], [_ROW], [("y", FLOAT), ("z", FLOAT), ("y", FLOAT)]
)
_add("scalar_output", [_n("ReduceSum", "x", keepdims=0)], [("x", FLOAT, [4, 4])])
_add("scalar_only", [_n("Mul", "x x")], [("x", FLOAT, [])])
_add("one_element", [_n("Mul", "x x")], [("x", FLOAT, [1])])
_add("many_dims", [_n("Relu", "x")], [("x", FLOAT, [1, 2, 1, 2, 1, 2, 1, 2])])
_add("two_symbols", [_n("Add", "x z")], [("x", FLOAT, ["N", "L"]), ("z", FLOAT, ["N", "L"])])
_add("nameless_dim", [_n("Relu", "x")], [("x", FLOAT, [None, 8])])
_add("batch_in_second_place", [_n("Relu", "x")], [("x", FLOAT, [5, "N", 3])])
_add("other_batch_for_each", [_n("ReduceSum", "x", "s", keepdims=0), _n("Mul", "s z")], [_ROW, ("z", FLOAT, ["M", 2])])
_add("named_like_a_buffer", [_n("Add", "output main:#output_0", "s"), _n("Add", "s scratch")],
     [("output", FLOAT, [4]), ("main:#output_0", FLOAT, [4]), ("scratch", FLOAT, [4])])  # fmt: skip
_add("odd_names", [_n("Add", "größe:0 /in/p.1", "s"), _n("Add", "s @1")],
     [("größe:0", FLOAT, [4]), ("/in/p.1", FLOAT, [4]), ("@1", FLOAT, [4])])  # fmt: skip
_add("bool_output", [_n("Less", "x t")], [_ROW], [("y", BOOL)], [_tensor("t", [0.5])])
_add("and_of_bools", [_n("And", "a b")], [("a", BOOL, ["N"]), ("b", BOOL, ["N"])], [("y", BOOL)])
_add("outputs_of_three_types", [_n("Cast", "x", "i", to=INT64), _n("Cast", "x", "h", to=HALF), _n("Neg", "x")],
     [_ROW], [("y", FLOAT), ("i", INT64), ("h", HALF)])  # fmt: skip
_add("dozen_outputs", [_n("Split", "x", " ".join(f"o{n}" for n in range(12)), axis=0)], [("x", FLOAT, [12, 2])],
     [(f"o{n}", FLOAT) for n in range(12)])  # fmt: skip
_add("zeros_of_its_shape", [_n("Shape", "x", "s"), _n("ConstantOfShape", "s", "c"), _n("Add", "x c")], [_ROW])
_add("constant_node", [_n("Constant", "", "c", value=_random("c", 8)), _n("Add", "x c")], [_ROW])
_add("large_weights", [_n("MatMul", "x w", "a"), _n("Relu", "a", "r"), _n("MatMul", "r v", "m"), _n("Add", "m b")],
     [("x", FLOAT, ["N", 160])],
     weights=[_random("w", 160, 256), _random("v", 256, 160), _random("b", 160)])  # fmt: skip
_add("gru", [_n("GRU", "x w r", "o h", hidden_size=4)], [("x", FLOAT, [2, 2, 3])], [("h", FLOAT)],
     [_random("w", 1, 12, 3), _random("r", 1, 12, 4)])  # fmt: skip
_add("nonzero", [_n("NonZero", "x")], [("x", FLOAT, [3, 3])], [("y", INT64)])
_add("scatter", [_n("ScatterElements", "x i u", axis=0)], [("x", FLOAT, [3, 3])],
     weights=[_tensor("i", [[1, 0, 2]], "int64"), _tensor("u", [[1.0, 2.0, 3.0]])])  # fmt: skip
_add("einsum", [_n("Einsum", "x z", equation="ij,jk->ik")], [("x", FLOAT, [3, 4]), ("z", FLOAT, [4, 5])])
_add("cumsum", [_n("CumSum", "x a")], [_ROW], weights=[_tensor("a", 1, "int64")])
_add("tile", [_n("Tile", "x t")], [("x", FLOAT, [2, 3])], weights=[_tensor("t", [2, 2], "int64")])
_add("expand", [_n("Expand", "x s")], [("x", FLOAT, [1, 3])], weights=[_tensor("s", [4, 3], "int64")])
_add("pow_mod", [_n("Pow", "x p", "q"), _n("Mod", "q x", fmod=1)], [_ROW], weights=[_tensor("p", 2.0)])
_add("prelu", [_n("PRelu", "x s")], [_ROW], weights=[_random("s", 8)])


def _loop_body() -> onnx.GraphProto:
    ins = [_value("i", INT64, []), _value("go", BOOL, []), _value("carried", FLOAT, [8])]
    nodes = [_n("Identity", "go", "still"), _n("Add", "carried step", "next"), _n("Identity", "next", "each")]
    ends = [_value("still", BOOL, []), _value("next", FLOAT, [8]), _value("each", FLOAT, [8])]
    return helper.make_graph(nodes, "body", ins, ends)


_add("loop", [helper.make_node("Loop", ["count", "yes", "x"], ["y", "all"], body=_loop_body())], [("x", FLOAT, [8])],
     [("y", FLOAT), ("all", FLOAT)],
     [_tensor("count", 3, "int64"), _tensor("yes", True, "bool"), _random("step", 8)])  # fmt: skip


def _branches(depth: int, name: str) -> onnx.GraphProto:
    end = _value(f"{name}_y", FLOAT, None)
    if depth == 0:
        return helper.make_graph([_n("Add", f"x w{len(name) % 2}", f"{name}_y")], name, [], [end])
    inner = {"then_branch": _branches(depth - 1, name + "a"), "else_branch": _branches(depth - 1, name + "b")}
    return helper.make_graph([helper.make_node("If", ["c"], [f"{name}_y"], **inner)], name, [], [end])


_add("if_in_if", [helper.make_node("If", ["c"], ["y"], then_branch=_branches(1, "t"), else_branch=_branches(0, "e"))],
     [("x", FLOAT, [8]), ("c", BOOL, [1])], weights=[_random("w0", 8), _random("w1", 8)])  # fmt: skip


def _product_body() -> onnx.GraphProto:
    ins = [_value("i", INT64, []), _value("go", BOOL, []), _value("carried", FLOAT, [2, 8])]
    nodes = [_n("Identity", "go", "still"), _n("MatMul", "carried w", "next")]
    return helper.make_graph(nodes, "body", ins, [_value("still", BOOL, []), _value("next", FLOAT, [2, 8])])


_add("matmul_in_loop", [helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=_product_body())],
     [("x", FLOAT, [2, 8])],
     weights=[_tensor("count", 3, "int64"), _tensor("yes", True, "bool"), _random("w", 8, 8)])  # fmt: skip
_add("matmul_of_integers", [_n("MatMul", "i k", "p"), _n("Cast", "p", "f", to=FLOAT), _n("Add", "x f")],
     [("i", INT32, [2, 8]), ("k", INT32, [8, 2]), ("x", FLOAT, [2, 2])])  # fmt: skip
_add("rnn_relu", [_n("RNN", "x w r", "o h", hidden_size=4, activations=["Relu"])], [("x", FLOAT, [2, 2, 3])],
     [("h", FLOAT)], [_random("w", 1, 4, 3), _random("r", 1, 4, 4)])  # fmt: skip

# Declared dims of outputs that MIGraphX ignores, as AMDMIGraphX's own test models have them.
DECLARED_WRONGLY = ("declared_one_dim_too_many", "declared_other_size", "declared_one_dim_too_few")
_add("declared_one_dim_too_many", [_n("ReduceMax", "x", axes=[2], keepdims=0)], [("x", FLOAT, [3, 4, 5, 6])],
     [("y", FLOAT, [3, 4, 1, 6])])  # fmt: skip
_add("declared_other_size", [_n("AveragePool", "x", kernel_shape=[2, 2], count_include_pad=1)],
     [("x", FLOAT, [2, 1, 5, 5])], [("y", FLOAT, [2, 1, 1, 1])])  # fmt: skip
_add("declared_one_dim_too_few", [_n("Gather", "x i", axis=1)], [("x", FLOAT, [3, 4, 5, 6]), ("i", INT32, [2, 3])],
     [("y", FLOAT, [3, 6, 5, 6])])  # fmt: skip

# Integer operators whose uint8 operands MIGraphX shifts in fp16.
_add("unsigned_matmul", [_n("MatMulInteger", "x w p q")], [("x", INT8, [4, 3]), ("w", UINT8, [3, 2])], [("y", INT32)],
     [_tensor("p", 1, "int8"), _tensor("q", 1, "uint8")])  # fmt: skip
_add("unsigned_convolution", [_n("ConvInteger", "x w")], [("x", UINT8, [1, 3, 8, 8]), ("w", UINT8, [1, 3, 5, 5])],
     [("y", INT32)])  # fmt: skip
