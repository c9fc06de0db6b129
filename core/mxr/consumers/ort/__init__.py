"""ONNX Runtime's MIGraphX provider: a folder of programs whose names it makes by hashing, and never checks.

hashes, order, libstdcxx   the pieces of a name      generation_a .. d   the contracts      contract   which one it is
graph, skeleton, optimiser the graph as it is hashed partition           is it one file     prediction the name
laying    the folder       proof   what became of it     recording   sets of files that a run has left
form      the key of such a set, and what of it workers can record
"""

from __future__ import annotations

from mxr.artifact.key import Key
from mxr.consumers.consumer import Consumer
from mxr.consumers.layout import Delivery, Layout, refuse_dynamic
from mxr.errors import Usage

WHO = "ONNX Runtime"


def fit(key: Key) -> None:
    """Raises `Usage` for programs of the reference target, with offload_copy or fast_math, or with dynamic dims."""
    if key.kind != "gpu":
        raise Usage(f"{WHO}'s provider is for GPUs.", hint="Leave --kind ref out.")
    for name, flag in (("offload_copy", key.offload_copy), ("fast_math", key.fast_math)):
        if flag:
            option = name.replace("_", "-")
            raise Usage(
                f"{WHO}'s provider compiles with {name} off, and would take a program with it on for its own.",
                hint=f"Leave --{option} out: --for ort asks for --no-{option}.",
            )
    refuse_dynamic(key, WHO)


def lay_out(delivery: Delivery) -> Layout:
    """The program under its predicted name, in a folder of its own. Raises `Usage`."""
    from .layout import lay_out

    return lay_out(delivery)


ORT = Consumer(
    name="ort",
    summary="ONNX Runtime's MIGraphX execution provider",
    offload_copy=False,
    fast_math=False,
    name_file=None,
    source="microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc",
    fit=fit,
    lay_out=lay_out,
    tree="<stem>-<digest>/<version>-<graph>-<arch>-<shape>.mxr",
)
