"""MIGraphX's command line: `migraphx-driver run model.mxr`."""

from __future__ import annotations

from .consumer import Consumer, plain

DRIVER = Consumer(
    name="driver",
    summary="migraphx-driver, and C++ programs that keep their buffers on the GPU",
    offload_copy=False,
    fast_math=True,
    name_file=plain,
    source="MIGraphX, src/driver/main.cpp: --enable-offload-copy is off, fast math on unless --disable-fast-math",
)
