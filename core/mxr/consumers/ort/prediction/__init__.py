"""Predicts the name of the file that ONNX Runtime's provider will request: `predict` is the way in.

naming       the prediction, or why there is none: whether the provider takes the whole graph, and its name then
name_fields  the parts of a name, and why it cannot be predicted
skeleton     a model without its weights
optimizer    lets ONNX Runtime optimize it, in `child`
graph        nodes, and their orders
"""

from __future__ import annotations

from .name_fields import PredictedName, Unpredictable
from .naming import PredictionRequest, predict, unknown_names

__all__ = ["PredictedName", "PredictionRequest", "Unpredictable", "predict", "unknown_names"]
