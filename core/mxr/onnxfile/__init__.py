"""Reads ONNX files without reading tensors: inputs, outputs, opset and the locations of external data.

The cost depends on the size of the node list, not on the size of the weights. Source of all field numbers:
onnx/onnx.proto of github.com/onnx/onnx (tests compare them with the onnx package).

    protobuf    wire format, reading              external    external data and its files
    writing     wire format, writing              binding     shapes of a request
    reader      opens and reads a model           freezing    writes a model with fixed dims
    graph       inputs, outputs, opset            structure   digest of the graph without its weights
    writer      writes a model of one node        window      bytes that are read on demand
    values      data types                        file_types  identifies other file types
    weight_dims dims of outputs from the weights
    neighbours  the model of a file with external data
"""

from __future__ import annotations

from .binding import bind_inputs, bind_known_dims, differing_symbols
from .external import MAX_SUBGRAPH_DEPTH, check_folder, check_names, external_files
from .graph import MAX_DIM, Dim, OnnxInput, OnnxModel, OutputDim
from .reader import read_model

__all__ = [
    "MAX_DIM",
    "MAX_SUBGRAPH_DEPTH",
    "Dim",
    "OnnxInput",
    "OnnxModel",
    "OutputDim",
    "bind_inputs",
    "bind_known_dims",
    "check_folder",
    "check_names",
    "differing_symbols",
    "external_files",
    "read_model",
]
