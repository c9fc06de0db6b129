"""ONNX Runtime's MIGraphX provider: it compiles with offload_copy and fast_math off."""

from __future__ import annotations

from .consumer import Consumer

ORT = Consumer(
    name="ort",
    summary="ONNX Runtime's MIGraphX execution provider",
    offload_copy=False,
    fast_math=False,
    name_file=None,
    source="microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc",
)
