"""ONNX files of models that a test makes."""

from __future__ import annotations

from pathlib import Path

import onnx

from mxr.onnxfile import OnnxModel, read_model


def saved(folder: Path, model: onnx.ModelProto | bytes, name: str = "model.onnx") -> Path:
    """The path of a new file with this model."""
    path = folder / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def read(folder: Path, model: onnx.ModelProto | bytes) -> OnnxModel:
    """The model as `mxr` reads it."""
    return read_model(saved(folder, model))
