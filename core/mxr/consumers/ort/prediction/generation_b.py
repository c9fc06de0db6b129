"""Generation B: ONNX Runtime 1.23 to 1.27, file names of four hashed fields. Tested with the provider of 1.27.1.

Source: microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc and
onnxruntime/core/framework/execution_provider.cc.
"""

from __future__ import annotations

from struct import pack

from mxr.consumers.ort.hashes import Chain, hashed
from mxr.consumers.ort.requirements import FREEZE

from .graph import Graph
from .name_fields import Deployment, PredictedName, begin, closed, name_of, shown
from .order import last_use
from .refusal import PredictionRefused

_OPEN = "input {} has open dims, for which this ONNX Runtime uses one name for all shapes"
_SCALAR = "input {} is a scalar, which this ONNX Runtime treats like an input with open dims"


def name(graph: Graph, deployment: Deployment) -> PredictedName:
    """The name that the provider requests when a session is created. Raises `PredictionRefused` for open dims."""
    sizes = list[int]()
    for each in graph.real_inputs:
        dims = closed(graph.shapes.get(each))
        if dims is None:
            # Such a model has one file name for all shapes, and the provider loads the file without a check.
            raise PredictionRefused(_OPEN.format(each), FREEZE)
        if not dims:
            raise PredictionRefused(_SCALAR.format(each))
        sizes += dims[1:]
    return name_of(deployment, graph_field(graph, deployment), shape_field(sizes), shown(graph, graph.real_inputs))


def shape_field(sizes: list[int]) -> int:
    """The shape field, of the dims as in memory: the provider hashes one byte for each, not all eight."""
    return hashed(pack(f"<{len(sizes)}q", *sizes)[: len(sizes)])


def graph_field(graph: Graph, deployment: Deployment) -> int:
    """The graph field: file name, inputs, and for each node its outputs, its inputs and their dims."""
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
