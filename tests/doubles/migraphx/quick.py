"""The small part of the onnx package that a compile needs, imported without the rest: for tests with many compiles.

Parser and shape inference are the package's own. A program that runs returns zeros.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

EXTERNAL = 1


def _package() -> types.ModuleType:
    """The onnx package without the imports of its `__init__`."""
    found = importlib.util.find_spec("onnx")
    made = types.ModuleType("onnx")
    made.__path__, made.__spec__ = list(found.submodule_search_locations), found
    sys.modules["onnx"] = made
    return made


_package()
from onnx import onnx_ml_pb2  # noqa: E402
from onnx.onnx_cpp2py_export import shape_inference  # noqa: E402


def parse(data: bytes) -> onnx_ml_pb2.ModelProto:
    """As `onnx.load` of bytes. Raises protobuf's DecodeError for truncated bytes."""
    return onnx_ml_pb2.ModelProto.FromString(data)


def load(filename: str) -> onnx_ml_pb2.ModelProto:
    """As `onnx.load`, without reading external data. Raises FileNotFoundError where external data is missing."""
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


def zeros(outputs: list, dtypes: dict[str, str]) -> list[Any]:
    """Zero arrays with the shapes of these outputs; a dynamic dim has its minimum."""
    import numpy as np

    return [np.zeros([dim if isinstance(dim, int) else dim[0] for dim in dims], dtypes[kind]) for kind, dims in outputs]
