"""ONNX Runtime's MIGraphX provider: it loads programs from a folder by hashed file names and checks nothing else.

contract                        the naming contract (generation) of an ONNX Runtime
generation_a, generation_b      the naming contracts that are known
hashes, order                   the parts of a name: hash function, node order
graph, skeleton, optimizer      the graph as the provider receives it
partition                       whether the provider takes the whole graph as one file
prediction                      the predicted name, or why there is none (prediction_refusal)
layout, verification            the folder, and what the provider changed in it
recording, recording_form       files that a run wrote, and the key of a recorded set
options                         the options of `mxr fetch` that apply to ONNX Runtime only
"""

from __future__ import annotations

from mxr.artifact.key import Key
from mxr.consumers.consumer import Consumer
from mxr.consumers.layout import Delivery, Layout, refuse_dynamic
from mxr.errors import UsageError

WHO = "ONNX Runtime"


def fit(key: Key) -> None:
    """Raise `UsageError` for programs of the ref target, with offload_copy or fast_math, or with dynamic dims."""
    if key.kind != "gpu":
        raise UsageError(f"{WHO}'s provider supports only GPU programs.", hint="Leave --kind ref out.")
    for name, flag in (("offload_copy", key.offload_copy), ("fast_math", key.fast_math)):
        if flag:
            option = name.replace("_", "-")
            raise UsageError(
                f"{WHO}'s provider compiles with {name} off, and would load a program with {name} on all the same.",
                hint=f"Leave --{option} out: --for ort implies --no-{option}.",
            )
    refuse_dynamic(key, WHO)


def lay_out(delivery: Delivery) -> Layout:
    """The program under its predicted name, in a folder for its model. Raises `UsageError`."""
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
