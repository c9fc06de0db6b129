"""MIGraphX's Python module: `migraphx.load("model.mxr")`."""

from __future__ import annotations

from pathlib import Path

from mxr.artifact.key import Key
from mxr.display.text import python_quoted

from .consumer import Consumer, plain


def tell(path: Path, key: Key) -> tuple[str, ...]:
    """One line of Python; without offload_copy, a second line: the caller allocates the buffers."""
    load = f"program = migraphx.load({python_quoted(path)})"
    if key.offload_copy or key.kind != "gpu":
        return (load,)
    return (load, "copy every argument to the GPU first: migraphx.to_gpu(migraphx.argument(array))")


PYTHON = Consumer(
    name="python",
    summary="migraphx.load() in Python, with numpy arrays in and out",
    offload_copy=True,
    fast_math=True,
    name_file=plain,
    source="MIGraphX, src/py/migraphx_py.cpp: program.compile defaults to offload_copy and fast_math on",
    tell=tell,
    tree="<stem>.mxr",
)
