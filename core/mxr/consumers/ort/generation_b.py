"""Generation B: ONNX Runtime 1.23 to 1.27, a folder of files named by four hashed fields. Proven by running 1.27.1.

Source: microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc and
onnxruntime/core/framework/execution_provider.cc.
"""

from __future__ import annotations

from .fields import Deployment, PredictedName, begin, closed, name_of, packed_sizes, shown
from .graph import Graph
from .hashes import Chain, hashed
from .order import last_use
from .prediction_refusal import PredictionRefused

FREEZE = "Freeze it first, one file per batch: mxr freeze MODEL --batch 1,4,8 -o FOLDER, and fetch for those."

_OPEN = "input {} has open dims, for which this ONNX Runtime gives every shape one name"
_SCALAR = "input {} is a scalar, which this ONNX Runtime takes for an input with open dims"


def name(graph: Graph, deployment: Deployment) -> PredictedName:
    """The one name that the provider asks for at session creation. Raises `Refused` for open dims."""
    sizes = list[int]()
    for each in graph.real_inputs:
        dims = closed(graph.shapes.get(each))
        if dims is None:
            # Such models have one file name for all their shapes, and the file is loaded without a check.
            raise PredictionRefused(_OPEN.format(each), FREEZE)
        if not dims:
            raise PredictionRefused(_SCALAR.format(each))
        sizes += dims[1:]
    shape = short_hash(sizes)
    return name_of(deployment, graph_field(graph, deployment), shape, shown(graph, graph.real_inputs))


def short_hash(sizes: list[int]) -> int:
    """The shape field: as many bytes are hashed as there are dims, not eight for each."""
    return hashed(packed_sizes(sizes)[: len(sizes)])


def graph_field(graph: Graph, deployment: Deployment) -> int:
    """The graph field: the file name, the inputs, and for each node its outputs, its inputs and their dims."""
    chain = Chain()
    begin(chain, deployment.file_name)
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
