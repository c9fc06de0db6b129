"""Predicts the name of the file that ONNX Runtime's provider will request, or says why it cannot be predicted.

ONNX Runtime 1.23 to 1.27 uses file names of four hashed fields. Source: microsoft/onnxruntime, onnxruntime/core,
providers/migraphx/migraphx_execution_provider.cc (GetUnsupportedNodeIndices, IsUnsupportedOpMode and IsTypeSupported
decide what the provider takes) and framework/execution_provider.cc; and provider 1.27.1 itself, which the tests run.
Where the provider examines more than this module reads, a node counts as not taken: no name is better than a wrong one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import pack

from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.hashes import Chain, hashed
from mxr.consumers.ort.options import LEVELS
from mxr.consumers.ort.requirements import FREEZE
from mxr.onnxfile import read_model
from mxr.onnxfile.protobuf import MalformedProtobuf

from .graph import Graph, GraphNode, last_use, read_graph
from .name_fields import (
    Deployment,
    PredictedName,
    PredictionRefused,
    Unpredictable,
    hash_file_name,
    inputs_text,
    known_dims,
    name_of,
)
from .optimizer import OptimizedGraph, Optimizer, optimized_graph, started


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """The model, how it will be opened, and the naming contract.

    `file_name` is the name of the ONNX file on the host that serves it; None for a session that is created from bytes.
    `arch` is HIP's full gcnArchName. `level` is the optimization level of the session, one of `LEVELS`.
    """

    model: Path
    contract: Contract
    arch: str
    file_name: str | None
    level: str = "all"
    python: str = sys.executable


def predict(request: PredictionRequest) -> PredictedName | Unpredictable:
    """Predict one name. Raises `UsageError` or `DamagedError` if the model cannot be read."""
    try:
        check_predictable(request)
        with started(request.python) as optimizer:
            return predict_with(optimizer, request)
    except PredictionRefused as refused:
        return refused.answer


def unknown_names(contract: Contract) -> Unpredictable | None:
    """Return why no name of a generation can be predicted, whatever the model; None for A and B."""
    if contract.generation in ("A", "B"):
        return None
    return Unpredictable(
        f"the names of generation {contract.generation} of ONNX Runtime's provider are known to that provider only",
        "Use the files that the provider itself writes: add --on-miss wait, so that a worker records them "
        "(generation C), or publish them from a host that ran the model: mxr import --ort-cache DIR.",
    )


def check_predictable(request: PredictionRequest) -> None:
    """Raise `PredictionRefused` for the reasons that do not depend on the graph."""
    if request.contract.generation == "A":
        raise PredictionRefused("this ONNX Runtime hashes nothing: it loads the path that it is given")
    if unknown := unknown_names(request.contract):
        raise PredictionRefused(unknown.reason, unknown.hint)
    if request.contract.provider is None:
        raise PredictionRefused(
            "the MIGraphX version that the provider was built with is unknown", "Add --ort-migraphx 2.15.0."
        )
    if request.level not in LEVELS:
        raise PredictionRefused(
            f"{request.level!r} is not an optimization level", f"Use one of these levels: {', '.join(LEVELS)}."
        )


def predict_with(optimizer: Optimizer, request: PredictionRequest) -> PredictedName:
    """Predict a name with an optimizer that is already running. Raises `PredictionRefused`."""
    wanted = request.contract.version
    if wanted is not None and _short(optimizer.version) != _short(wanted):
        raise PredictionRefused(
            f"{request.python} has ONNX Runtime {optimizer.version}, but {wanted} will serve the model",
            f"Name an interpreter that has {wanted}: --ort-python PATH.",
        )
    seen, types = read_optimized(request.model, optimizer, request.level)
    if reason := obstacle(seen.graph, types):
        raise PredictionRefused(reason)
    provider = request.contract.provider or ""
    return name_1_23(seen.graph, Deployment(request.file_name, provider, request.arch))


def read_optimized(model: Path, optimizer: Optimizer, level: str) -> tuple[OptimizedGraph, frozenset[str]]:
    """The graph of the ONNX file as a provider receives it, and its element types. Raises `PredictionRefused`."""
    read = read_model(model)
    try:
        original = read_graph(model)
        types = read.types or frozenset()
        if any(attribute.graph for node in original.nodes for attribute in node.attributes.values()):
            raise PredictionRefused("it has graphs within nodes (If, Loop, Scan), which the provider does not take")
        return optimized_graph(model, original, types, optimizer, level), types
    except MalformedProtobuf as broken:
        raise PredictionRefused(f"{model.name}: {broken}") from None


def _short(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:3])


_OPEN = "input {} has open dims, for which this ONNX Runtime uses one name for all shapes"
_SCALAR = "input {} is a scalar, which this ONNX Runtime treats like an input with open dims"


def name_1_23(graph: Graph, deployment: Deployment) -> PredictedName:
    """The name that the provider requests when a session is created. Raises `PredictionRefused` for open dims."""
    sizes = list[int]()
    for name in graph.real_inputs:
        dims = known_dims(graph.shapes.get(name))
        if dims is None:
            # Such a model has one file name for all shapes, and the provider loads the file without a check.
            raise PredictionRefused(_OPEN.format(name), FREEZE)
        if not dims:
            raise PredictionRefused(_SCALAR.format(name))
        sizes += dims[1:]
    return name_of(
        deployment, graph_field(graph, deployment), shape_field(sizes), inputs_text(graph, graph.real_inputs)
    )


def shape_field(sizes: list[int]) -> int:
    """The shape field, of the dims as in memory: the provider hashes one byte for each, not all eight."""
    return hashed(pack(f"<{len(sizes)}q", *sizes)[: len(sizes)])


def graph_field(graph: Graph, deployment: Deployment) -> int:
    """The graph field: file name, inputs, and for each node its outputs, its inputs and their dims."""
    chain = Chain()
    hash_file_name(chain, deployment.file_name)
    for each in last_use(graph.nodes, graph.constants):
        chain.update(each)
    for node in graph.nodes:
        for each in filter(None, node.outputs):
            chain.update(each)
        for each in filter(None, node.inputs):
            chain.update(each)
            for size in graph.shapes.get(each) or ():
                chain.update(str(size or 0))
    chain.update(deployment.system)
    return chain.value


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
