"""Generation D: the provider as a plugin, with counts and packed dims in its graph field.

Source: onnxruntime/onnxruntime-ep-amdgpu, main of August 2026. Its hash function was compiled and run, the provider was
not.
"""

from __future__ import annotations

from struct import pack

from .fields import Deployment, PredictedName, begin, closed, name_of, packed_sizes, shown
from .graph import Graph
from .hashes import Chain
from .order import breadth_first
from .prediction_refusal import PredictionRefused


def name(graph: Graph, deployment: Deployment) -> PredictedName:
    """The name that the provider requests when a session is created.

    Raises `PredictionRefused` for open dims, and for graphs that declare weights as inputs.
    """
    if graph.inputs != graph.real_inputs:
        raise PredictionRefused("it declares weights as inputs, and how this provider handles them is unknown")
    shape = Chain()
    for each in graph.real_inputs:
        dims = closed(graph.shapes.get(each))
        if dims is None:
            raise PredictionRefused(
                f"input {each} has open dims, for which the provider chooses names at the first run"
            )
        shape.update(packed_sizes(list(dims)))
    field = graph_field(graph, deployment)
    return name_of(deployment, field, shape.value, shown(graph, graph.real_inputs))


def graph_field(graph: Graph, deployment: Deployment) -> int:
    """The graph field: file name, inputs and their count, then each node with counts, names and dims."""
    chain = Chain()
    begin(chain, deployment.file_name)
    for each in graph.real_inputs:
        chain.update(each)
    chain.update(_count(len(graph.real_inputs)))
    for at in breadth_first(graph):
        node = graph.nodes[at]
        outputs, inputs = [*filter(None, node.outputs)], [*filter(None, node.inputs)]
        chain.update(_count(len(outputs)))
        for each in outputs:
            chain.update(each)
        chain.update(_count(len(inputs)))
        for each in inputs:
            chain.update(each)
            chain.update(packed_sizes([-1 if size is None else size for size in graph.shapes.get(each) or ()]))
    chain.update(deployment.system)
    return chain.value


def _count(number: int) -> bytes:
    return pack("<Q", number)
