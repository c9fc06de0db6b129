"""Decides whether ONNX Runtime's MIGraphX provider takes the whole graph: only then is there one file to predict.

Source: microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc, where
GetUnsupportedNodeIndices, IsUnsupportedOpMode and IsTypeSupported decide, and provider 1.27.1 itself, which the tests
run. Where the provider examines more than this module reads, the node counts as not taken: no name is better than a
wrong name.
"""

from __future__ import annotations

from collections.abc import Iterator

from .graph import Graph, GraphNode

# fmt: off
OPERATORS = frozenset((
    "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
    "BatchNormalization", "BiasGelu", "Cast", "Ceil", "Celu", "Clip", "Concat", "Constant", "ConstantFill",
    "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose", "Cos", "Cosh", "CumSum", "DepthToSpace",
    "DequantizeLinear", "Div", "Dropout", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "FastGelu",
    "Flatten", "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool",
    "GlobalMaxPool", "Greater", "GreaterOrEqual", "GroupNormalization", "HardSigmoid", "HardSwish", "Identity",
    "InstanceNormalization", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "LogSoftmax", "LpNormalization", "MatMul", "MatMulInteger", "Max", "MaxPool", "Mean", "Min", "Mod", "Mul",
    "MultiHeadAttention", "Neg", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear", "QuickGelu", "RNN", "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu",
    "Reshape", "Resize", "ReverseSequence", "Round", "ScatterElements", "ScatterND", "Selu", "Shape", "Sigmoid", "Sign",
    "SimplifiedLayerNormalization", "Sin", "Sinh", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh",
    "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where", "Xor",
))
# fmt: on

TYPES = frozenset((
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "undefined",
))  # fmt: skip

CONSTANT = {
    "ConstantOfShape": 0, "Range": 0, "NonZero": 0, "Expand": 1, "OneHot": 1, "Pad": 1, "Reshape": 1, "Slice": 1,
    "Split": 1, "Squeeze": 1, "Tile": 1, "TopK": 1, "Unsqueeze": 1, "Resize": 1, "Upsample": 1, "CumSum": 1,
    "ReduceSum": 1, "ReduceMean": 1, "ReduceMax": 1, "ReduceMin": 1, "ReduceL1": 1, "ReduceL2": 1, "ReduceProd": 1,
    "ReduceLogSum": 1, "ReduceLogSumExp": 1, "ReduceSumSquare": 1,
}  # fmt: skip
"""For each operator, the index of the first input from which all inputs must be constants."""


def obstacle(graph: Graph, types: frozenset[str]) -> str | None:
    """Why the provider may not take the whole optimized graph; None if it takes it."""
    if not graph.real_inputs:
        return "it has no inputs, so ONNX Runtime computes it without a provider"
    if foreign := sorted(types - TYPES):
        return f"the provider does not support the types {', '.join(foreign)}"
    return next(_obstacles(graph), None)


def _obstacles(graph: Graph) -> Iterator[str]:
    known = _known(graph) | {""}
    for node in graph.nodes:
        shown = f"node {node.name or node.outputs[0]} ({node.op})"
        if any(attribute.graph for attribute in node.attributes.values()):
            yield f"{shown} contains a subgraph, and the provider does not take control flow"
        elif node.op not in OPERATORS:
            yield f"the provider does not take {shown}, so the graph would be partitioned"
        elif (place := CONSTANT.get(node.op)) is not None and not known.issuperset(node.inputs[place:]):
            yield f"{shown} has a computed argument, which the provider may not take"
        elif _unsupported_mode(node):
            yield f"{shown} uses a mode that the provider may not take"


def _known(graph: Graph) -> frozenset[str]:
    """The values that depend only on constants and shapes: the provider treats them as constants."""
    known = set(graph.initializers)
    for node in graph.nodes:
        if node.op == "Shape" or all(name in known for name in node.inputs):
            known |= set(node.outputs)
    return frozenset(known)


def _unsupported_mode(node: GraphNode) -> bool:
    has = node.attributes
    if node.op in ("ArgMax", "ArgMin"):
        return "select_last_index" in has and has["select_last_index"].i != 0
    if node.op in ("ConvInteger", "MatMulInteger"):
        return True
    if node.op == "MaxPool":
        dilated = any(each != 1 for each in has["dilations"].ints) if "dilations" in has else False
        return len(node.outputs) > 1 or dilated or ("storage_order" in has and has["storage_order"].i != 0)
    if node.op == "Pad":
        return "mode" in has and has["mode"].s not in ("constant", "reflect")
    return False
