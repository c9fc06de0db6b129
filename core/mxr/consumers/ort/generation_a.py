"""Generation A: ONNX Runtime 1.19 to 1.22. It loads a path from its options, and hashes and checks nothing.

Source: microsoft/onnxruntime v1.19 to v1.22, onnxruntime/core/providers/migraphx. Derived from the
source, not tested with this provider.
"""

from __future__ import annotations

from mxr.display.text import shell_quoted

FILE = "compiled_model.mxr"


def settings(path: str) -> tuple[str, ...]:
    """Settings that load `path` and never write it. Two names of the path variable occur in releases and documents."""
    return (
        "ORT_MIGRAPHX_LOAD_COMPILED_MODEL=1",
        f"ORT_MIGRAPHX_LOAD_COMPILE_PATH={shell_quoted(path)}",
        f"ORT_MIGRAPHX_LOAD_COMPILED_PATH={shell_quoted(path)}",
        "ORT_MIGRAPHX_SAVE_COMPILED_MODEL=0",
    )
