"""MIGraphX's command line tool: `migraphx-driver run model.mxr`."""

from __future__ import annotations

from pathlib import Path

from mxr.artifact.key import Key
from mxr.display.text import shell_quoted

from .consumer import Consumer, plain


def tell(path: Path, key: Key) -> tuple[str, ...]:
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
    tell=tell,
    tree="<stem>.mxr",
)
