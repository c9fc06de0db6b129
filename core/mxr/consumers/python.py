"""MIGraphX's Python module: `migraphx.load("model.mxr")`."""

from __future__ import annotations

from .consumer import Consumer, plain

PYTHON = Consumer(
    name="python",
    summary="migraphx.load() in Python, with numpy arrays in and out",
    offload_copy=True,
    fast_math=True,
    name_file=plain,
    source="MIGraphX, src/py/migraphx_py.cpp: program.compile defaults to offload_copy and fast_math on",
)
