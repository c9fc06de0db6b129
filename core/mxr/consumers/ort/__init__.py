"""ONNX Runtime's MIGraphX provider: it loads programs from a folder by hashed file names and checks nothing else.

requirements                    what a program must be for the provider
contract                        the naming contract (generation) of an ONNX Runtime
hashes                          the hash function of the names, and their fields
prediction                      the predicted name, or why there is none
layout, verification            the folder, and what the provider changed in it
recording, recording_form       files that a run wrote, and the key of a recorded set
options                         the options of `mxr fetch` that apply to ONNX Runtime only
"""

from __future__ import annotations

from mxr.consumers.consumer import Consumer
from mxr.consumers.layout import Delivery, Layout

from .requirements import check_key


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
    check_key=check_key,
    lay_out=lay_out,
    tree="<stem>-<digest>/<version>-<graph>-<arch>-<shape>.mxr",
    records=True,
)
