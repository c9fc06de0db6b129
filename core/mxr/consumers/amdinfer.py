"""AMD Inference Server: its migraphx worker opens `<stem>_b<batch>.mxr` beside the model and checks nothing else.

In a model repository it opens `1/<stem of id>_b64.mxr`: the configuration has no field for the batch, so it is always
64.
"""

from __future__ import annotations

import json

from mxr.artifact.key import Key
from mxr.display.text import shell_quoted
from mxr.errors import UsageError
from mxr.facts import stated

from .consumer import Consumer
from .layout import (
    Delivery,
    Layout,
    LayoutFile,
    need_offload_copy,
    need_outputs,
    one_batch,
    refuse_dynamic,
    tensor_type,
    written,
)

REPOSITORY_BATCH = 64
"""Source: Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp: the default of `batch`."""

SOURCE = "Xilinx/inference-server, src/amdinfer/workers/migraphx.cpp"


def check_key(key: Key) -> None:
    """Raise `UsageError` unless the program has one static batch size, and offload_copy, which the worker requires."""
    need_offload_copy(key, "amdinfer")
    one_batch(key, "amdinfer")


def name_file(stem: str, key: Key) -> str:
    """`<stem>_b<batch>.mxr`. Raises `UsageError` like `fit`."""
    check_key(key)
    return f"{stem}_b{one_batch(key, 'amdinfer')}.mxr"


def lay_out(delivery: Delivery) -> Layout:
    """One file beside `<stem>.onnx`; the ONNX file itself need not exist."""
    name = name_file(delivery.stem, delivery.key)
    settings = (
        f'worker "migraphx", parameter model = "{delivery.folder / delivery.stem}.onnx"',
        f'worker "migraphx", parameter batch = {one_batch(delivery.key, "amdinfer")}',
    )
    return Layout((LayoutFile(name, delivery.program),), name, settings, _dotted(delivery.stem))


def check_repository_key(key: Key) -> None:
    """Raise `UsageError` like `fit`, and for dynamic dims or a batch other than 64."""
    check_key(key)
    refuse_dynamic(key, "An amdinfer model repository")
    if (batch := one_batch(key, "amdinfer")) != REPOSITORY_BATCH:
        raise UsageError(
            f"amdinfer loads only programs of batch {REPOSITORY_BATCH} from a model repository, not {batch}.",
            hint=f"Use {stated('batch', REPOSITORY_BATCH)}, or the plain file: {stated('consumer', 'amdinfer')}.",
        )


def lay_out_repository(delivery: Delivery) -> Layout:
    """`<stem>/1/<stem>_b64.mxr`, then `<stem>/config.toml`: when that file appears, the server loads the model.

    `id` is required: without it the server loads an arbitrary file of `1/`. Source: Xilinx/inference-server,
    src/amdinfer/core/model_config.cpp and model_repository.cpp.
    """
    check_repository_key(delivery.key)
    need_outputs(delivery, "amdinfer's config.toml")
    stem = delivery.stem
    config = f"{stem}/config.toml"
    return Layout(
        pieces=(
            LayoutFile(f"{stem}/1/{stem}_b{REPOSITORY_BATCH}.mxr", delivery.program),
            written(config, _config(delivery)),
        ),
        path=stem,
        settings=(
            f"amdinfer-server --model-repository={shell_quoted(delivery.folder)}",
            f'the name of the model is "{stem}"',
        ),
        notes=_dotted(stem),
        whole=(f"{stem}/1",),
        rivals=(f"{stem}/*.toml", f"{stem}/{stem}/*.toml"),
    )


def _config(delivery: Delivery) -> str:
    head = {"name": delivery.stem, "platform": "migraphx_mxr", "id": f"{delivery.stem}.onnx"}
    lines = [f"{name} = {_quoted(value)}" for name, value in head.items()]
    for kind, rows in (("inputs", delivery.input_dims()), ("outputs", delivery.output_dims())):
        for name, elem_type, dims in rows:
            shape = [dim if isinstance(dim, int) else -1 for dim in (dims or ())[1:]]
            lines += ["", f"[[{kind}]]", f"name = {_quoted(name)}"]
            lines += [f'datatype = "{tensor_type(name, elem_type, "amdinfer")}"', f"shape = {shape}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # TOML's basic strings accept JSON's escapes; in addition, TOML requires DEL to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _dotted(stem: str) -> tuple[str, ...]:
    if "." not in stem:
        return ()
    return (f"amdinfer 0.3.0 and older truncate {stem} at its last dot and do not find this file: use 0.4.0 or newer.",)


AMDINFER = Consumer(
    name="amdinfer",
    summary="AMD Inference Server's migraphx worker",
    offload_copy=True,
    fast_math=True,
    name_file=name_file,
    source=SOURCE,
    check_key=check_key,
    lay_out=lay_out,
    tree="<stem>_b<batch>.mxr",
)

AMDINFER_REPO = Consumer(
    name="amdinfer-repo",
    summary="AMD Inference Server's model repository (batch 64)",
    offload_copy=True,
    fast_math=True,
    name_file=None,
    source=SOURCE + "; src/amdinfer/core/model_repository.cpp",
    check_key=check_repository_key,
    lay_out=lay_out_repository,
    needs_model=True,
    tree="<stem>/1/<stem>_b64.mxr, <stem>/config.toml",
    batch=REPOSITORY_BATCH,
)
