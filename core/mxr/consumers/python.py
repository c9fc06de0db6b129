"""MIGraphX's own ways to load a program: `migraphx.load("model.mxr")` in Python, and `migraphx-driver run`."""

from __future__ import annotations

from pathlib import Path

from mxr.artifact.key import Key
from mxr.display.text import python_quoted, shell_quoted

from .consumer import Consumer, plain


def _tell_python(path: Path, key: Key) -> tuple[str, ...]:
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
    tell=_tell_python,
    tree="<stem>.mxr",
)


def _tell_driver(path: Path, key: Key) -> tuple[str, ...]:
    """The command line. Its offload_copy flag must match the program: otherwise the driver aborts.

    Source: ROCm/AMDMIGraphX issue 2478.
    """
    flag = " --enable-offload-copy" if key.offload_copy else ""
    return (f"migraphx-driver run {shell_quoted(path)}{flag}{' --ref' if key.kind == 'ref' else ''}",)


DRIVER = Consumer(
    name="driver",
    summary="migraphx-driver, and C++ programs that keep their buffers on the GPU",
    offload_copy=False,
    fast_math=True,
    name_file=plain,
    source="MIGraphX, src/driver/main.cpp: --enable-offload-copy is off, fast math on unless --disable-fast-math",
    tell=_tell_driver,
    tree="<stem>.mxr",
)
