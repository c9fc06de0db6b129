"""Known failures of AMD Inference Server (amdinfer)."""

from __future__ import annotations

from mxr.known_failures.record import KnownFailure

AMDINFER: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="amdinfer-model-file",
        who="amdinfer",
        kind="usage",
        level="cause",
        needles=(b"migraphx worker cannot open the model file", b"not found or can't be opened"),
        pattern=(
            r"(?:migraphx worker cannot open the model file|model file) (?P<file>\S{1,300}?)\.? (?: ?does this "
            r"path exist|"
            r"not found or can.{0,2}t be opened)"
        ),
        means=(
            "The server found neither the compiled NAME_b64.mxr (64 or the requested batch size) nor the ONNX "
            "file {file}. It never loads a file named NAME.mxr."
        ),
        fix=(
            "`mxr fetch MODEL --for amdinfer --batch 64 -o FOLDER` writes the file under the name that the "
            "server expects."
        ),
        source="Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
    ),
    KnownFailure(
        name="amdinfer-no-model",
        who="amdinfer",
        kind="usage",
        level="cause",
        needles=(b"model file argument missing from model load", b"migraphxworker parameters required"),
        pattern=r"model file argument missing from model load request|migraphxworker parameters required",
        means="The request to load a model does not name a file.",
        fix=(
            'Set the parameter "model" to the path. The suffix does not matter: the server looks for '
            "NAME_b64.mxr next to it."
        ),
        source="Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
    ),
    KnownFailure(
        name="amdinfer-type",
        who="amdinfer",
        kind="usage",
        level="cause",
        needles=(b"model and input data types don't match",),
        pattern=r"model and input data types don't match: (?P<want>\S{1,40}) vs (?P<got>\S{1,40})",
        means="The tensor in the request has type {got}, and the program expects {want}.",
        fix="Send that type. `mxr inspect FILE` lists the inputs.",
        source="Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doRun",
    ),
    KnownFailure(
        name="amdinfer-gpu",
        who="amdinfer",
        kind="permanent",
        level="catch-all",
        needles=(b"server could not connect to a gpu",),
        pattern=r"server could not connect to a gpu",
        means=(
            "The server adds this sentence to every MIGraphX error, so the GPU need not be the cause: a file for "
            "a different GPU or a different MIGraphX produces the same text."
        ),
        fix=(
            "Run `mxr check NAME_b64.mxr` in the server's container to find the cause. `mxr host` shows whether "
            "a GPU is present."
        ),
        source="Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
        covers=("failed-to-call",),
    ),
)
