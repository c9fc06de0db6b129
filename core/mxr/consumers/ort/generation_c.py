"""Generation C: ROCm's builds of 2026 with dynamic batches, and B', the same with the shape hashed whole.

The fields are those of B; the shape has all dims, batch too, of the inputs in the order of an unordered map.
Source: ROCm/onnxruntime, pull requests 207, 229 and 235. Read, not run: the map's order is that of GNU's library.
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
    """The name for the dims of the deployment; open batch dims are fine, they are what this generation is for.

    `whole` hashes every byte of the shape, as B' does. Raises `Refused` where other dims are open.
    """
    inputs = last_use(graph.nodes, graph.constants)
    for each in inputs:
        dims = graph.shapes.get(each)
        if dims is None or any(size is None for size in dims[1:]):
            raise PredictionRefused(
                f"input {each} has open dims beside its batch, which are known at the first run only"
            )
    try:
        order = [each for each in map_order(inputs, len(inputs)) if each in graph.real_inputs]
    except ValueError as problem:
        raise PredictionRefused(str(problem)) from None
    if missing := [each for each in order if each not in deployment.inputs]:
        raise PredictionRefused(f"the program's dims of input {missing[0]} are not known")
    sizes = [size for each in order for size in deployment.inputs[each]]
    shape = hashed(packed_sizes(sizes)) if whole else short_hash(sizes)
    words = " ".join(f"{each}={list(deployment.inputs[each])}" for each in order)
    return name_of(deployment, graph_field(graph, deployment), shape, words)
