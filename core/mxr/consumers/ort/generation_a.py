"""Generation A: ONNX Runtime 1.19 to 1.22. One literal path, which options give; nothing is hashed and nothing checked.

Source: microsoft/onnxruntime v1.19 to v1.22, onnxruntime/core/providers/migraphx. Read, not run.
"""

from __future__ import annotations

FILE = "compiled_model.mxr"


def settings(path: str) -> tuple[str, ...]:
    """Loads `path` and never writes it. Releases and documents spell the path's variable in two ways."""
    return (
        "ORT_MIGRAPHX_LOAD_COMPILED_MODEL=1",
        f"ORT_MIGRAPHX_LOAD_COMPILE_PATH={path}",
        f"ORT_MIGRAPHX_LOAD_COMPILED_PATH={path}",
        "ORT_MIGRAPHX_SAVE_COMPILED_MODEL=0",
    )
