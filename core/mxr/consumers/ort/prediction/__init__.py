"""Predicts the name of the file that ONNX Runtime's provider will request: `predict` is the way in.

naming        the prediction, or why there is none     generation_b  the name of ONNX Runtime 1.23 to 1.27
skeleton      a model without its weights              optimizer     lets ONNX Runtime optimize it, in `child`
graph, order  nodes, and their order                   subgraphs     what the provider takes of a graph
name_fields   the parts of a name                      refusal       why a name cannot be predicted
"""

from __future__ import annotations

from .name_fields import PredictedName
from .naming import PredictionRequest, predict, unknown_names
from .refusal import Unpredictable

__all__ = ["PredictedName", "PredictionRequest", "Unpredictable", "predict", "unknown_names"]
