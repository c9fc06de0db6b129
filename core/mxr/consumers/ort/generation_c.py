"""Generation C: ROCm's builds of 2026 with dynamic batches, and B', which hashes every byte of the shape.

The fields are those of B. The shape contains all dims, including the batch, of the inputs in the order of an unordered
map. Source: ROCm/onnxruntime, pull requests 207, 229 and 235. Derived from the source, not tested with these providers;
the order of the map is that of GNU's library.
"""

from __future__ import annotations

from .fields import Deployment, PredictedName, name_of, packed_sizes
from .generation_b import graph_field, short_hash
from .graph import Graph
from .hashes import hashed
from .libstdcxx import map_order
from .order import last_use
from .prediction_refusal import PredictionRefused


def name(graph: Graph, deployment: Deployment, *, whole: bool = False) -> PredictedName:
    """The name for the dims of the deployment; the batch may be open, which is the purpose of this generation.

    `whole` hashes every byte of the shape, as B' does. Raises `PredictionRefused` if other dims are open.
    """
    inputs = last_use(graph.nodes, graph.constants)
    for each in inputs:
        dims = graph.shapes.get(each)
        if dims is None or any(size is None for size in dims[1:]):
            raise PredictionRefused(
                f"input {each} has open dims other than its batch, which are unknown until the first run"
            )
    try:
        order = [each for each in map_order(inputs, len(inputs)) if each in graph.real_inputs]
    except ValueError as problem:
        raise PredictionRefused(str(problem)) from None
    if missing := [each for each in order if each not in deployment.inputs]:
        raise PredictionRefused(f"the dims of input {missing[0]} in the program are unknown")
    sizes = [size for each in order for size in deployment.inputs[each]]
    shape = hashed(packed_sizes(sizes)) if whole else short_hash(sizes)
    shapes = " ".join(f"{each}={list(deployment.inputs[each])}" for each in order)
    return name_of(deployment, graph_field(graph, deployment), shape, shapes)
