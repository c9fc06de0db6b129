"""AMD Inference Server: its migraphx worker opens `<stem>_b<batch>.mxr` beside the model and checks nothing else."""

from __future__ import annotations

from mxr.errors import Usage
from mxr.keys import Key

from .consumer import Consumer


def name_file(stem: str, key: Key) -> str:
    """`<stem>_b<batch>.mxr`. Raises `Usage` without one static batch, or without offload_copy, which it relies on."""
    if not key.offload_copy:
        raise Usage("amdinfer needs a program with offload_copy on.", hint="Leave --no-offload-copy out.")
    batches = {shape[0] for _, shape in key.inputs if shape}
    if len(batches) != 1 or not isinstance(batch := next(iter(batches)), int):
        raise Usage("amdinfer needs one static batch size over all inputs.", hint="Ask with --batch N.")
    return f"{stem}_b{batch}.mxr"


AMDINFER = Consumer(
    name="amdinfer",
    summary="AMD Inference Server's migraphx worker",
    offload_copy=True,
    fast_math=True,
    name_file=name_file,
    source="Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp",
)
