"""The little of the onnx package that a compile needs, without importing all of it: for tests of many compiles.

Its parser and its shapes are the package's own; a program that runs gives zeros.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np

EXTERNAL = 1


def _package() -> types.ModuleType:
    """The package without what its `__init__` imports."""
    found = importlib.util.find_spec("onnx")
    made = types.ModuleType("onnx")
    made.__path__, made.__spec__ = list(found.submodule_search_locations), found
    sys.modules["onnx"] = made
    return made


_package()
from onnx import onnx_ml_pb2  # noqa: E402
from onnx.onnx_cpp2py_export import shape_inference  # noqa: E402


def parse(data: bytes) -> onnx_ml_pb2.ModelProto:
    """As `onnx.load` of bytes. Raises protobuf's DecodeError for those that were cut."""
    return onnx_ml_pb2.ModelProto.FromString(data)


def load(filename: str) -> onnx_ml_pb2.ModelProto:
    """As `onnx.load`, but that external data stay outside. Raises FileNotFoundError for those that are not there."""
    model = parse(Path(filename).read_bytes())
    for tensor in model.graph.initializer:
        places = {entry.key: entry.value for entry in tensor.external_data if tensor.data_location == EXTERNAL}
        if "location" in places:
            Path(filename).with_name(places["location"]).stat()
    return model


def infer(model: onnx_ml_pb2.ModelProto) -> onnx_ml_pb2.ModelProto:
    """As `onnx.shape_inference.infer_shapes`."""
    return onnx_ml_pb2.ModelProto.FromString(
        shape_inference.infer_shapes(model.SerializeToString(), False, False, False)
    )


def zeros(outputs: list, numpy_names: dict[str, str]) -> list[np.ndarray]:
    """Arrays of the shapes of these outputs; a range is at its least."""
    return [
        np.zeros([dim if isinstance(dim, int) else dim[0] for dim in dims], numpy_names[kind]) for kind, dims in outputs
    ]
