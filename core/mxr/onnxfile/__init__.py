"""The walk over an ONNX file: its inputs, its outputs and where the rest of its data lies; no tensor is ever read.

A model of any size costs only its node list. Source of all field numbers: onnx/onnx.proto of github.com/onnx/onnx
(tests compare them with the onnx package).

protobuf   the wire format        graph      inputs, outputs, opset      external   external data and its files
reader     opening and walking    binding    the shapes of a request     foreign    what another file looks like
structure  a digest of the graph without its weights                     window     bytes that are read as needed
"""

from __future__ import annotations

from .binding import bind_inputs
from .external import DEEPEST_SUBGRAPH, external_files
from .reader import read_model
from .values import LARGEST_DIM, Dim, OnnxInput, OnnxModel

__all__ = [
    "DEEPEST_SUBGRAPH",
    "LARGEST_DIM",
    "Dim",
    "OnnxInput",
    "OnnxModel",
    "bind_inputs",
    "external_files",
    "read_model",
]
