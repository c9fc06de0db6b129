"""Triton Inference Server with its Python backend, in which a generated `model.py` loads the program.

The number of a version directory is derived from the artifact. The directory is complete when it appears and never
changes. `config.pbtxt` is written last and pins that version, so a polling server loads either the old or the new
model.
"""

from __future__ import annotations

import json
from pathlib import Path

from mxr.artifact.key import Key
from mxr.display.text import shell_quoted
from mxr.errors import UsageError

from .consumer import Consumer
from .layout import Delivery, Layout, LayoutFile, need_offload_copy, need_outputs, refuse_dynamic, tensor_type, written

WORKER = Path(__file__).with_name("triton_model.py.in")
WHO = "Triton's Python backend"


def check_key(key: Key) -> None:
    """Raise `UsageError` without offload_copy, for dynamic dims, and for scalars: Triton tensors have at least one
    dim.
    """
    need_offload_copy(key, WHO)
    refuse_dynamic(key, WHO)
    for name, shape in key.inputs:
        if not shape:
            raise UsageError(
                f"{WHO} does not support scalars, and {name} is one.", hint="Give the input a dim of size 1."
            )


def lay_out(delivery: Delivery) -> Layout:
    """`<stem>/<version>/{<stem>.mxr,model.py}`, then `<stem>/config.pbtxt`. Raises `UsageError`.

    Source: triton-inference-server/server, docs/user_guide/model_repository.md (versions are numbers that do not start
    with zero, other folders are ignored) and model_configuration.md (version_policy).
    """
    check_key(delivery.key)
    need_outputs(delivery, "Triton's config.pbtxt")
    stem = delivery.stem
    version = int(delivery.artifact.id[:8], 16) + 1
    folder = f"{stem}/{version}"
    batch = _batch(delivery)
    return Layout(
        pieces=(
            LayoutFile(f"{folder}/{stem}.mxr", delivery.program),
            written(f"{folder}/model.py", WORKER.read_bytes()),
            written(f"{stem}/config.pbtxt", _config(delivery, version, batch)),
        ),
        path=stem,
        settings=(
            f"tritonserver --model-repository={shell_quoted(delivery.folder)}",
            "PYTHONPATH=/opt/rocm/lib (the folder that holds the migraphx Python module)",
        ),
        notes=()
        if batch
        else ("Not every input and output has an open first dim, so Triton will not batch requests.",),
        whole=(folder,),
    )


def _batch(delivery: Delivery) -> int:
    """The batch size if every input and output has an open first dim in the model, else 0.

    `model.py` pads requests with fewer rows.
    """
    rows = [dims[0] for _, _, dims in delivery.input_dims() if dims]
    ends = (*delivery.inputs, *delivery.outputs)
    opened = all(each.dims and not isinstance(each.dims[0], int) for each in ends)
    same = len(set(rows)) == 1 and all(dims and dims[0] == rows[0] for _, _, dims in delivery.output_dims())
    return rows[0] if rows and opened and same else 0


def _config(delivery: Delivery, version: int, batch: int) -> str:
    lines = [
        "# Written by mxr, replaced by the next `mxr fetch --for triton` of this model.",
        f"name: {json.dumps(delivery.stem)}",
        'backend: "python"',
        f"max_batch_size: {batch}",
        f"version_policy: {{ specific: {{ versions: [{version}] }} }}",
        f'parameters: {{ key: "program" value: {{ string_value: {json.dumps(delivery.stem + ".mxr")} }} }}',
        f'parameters: {{ key: "mxr_artifact" value: {{ string_value: "{delivery.artifact.id}" }} }}',
    ]
    for kind, rows in (("input", delivery.input_dims()), ("output", delivery.output_dims())):
        for name, elem_type, dims in rows:
            shape = [dim if isinstance(dim, int) else -1 for dim in (dims or ())[1 if batch else 0 :]]
            if not shape:
                # A tensor whose only dim is the batch has no other dims, and the text format has no empty list.
                lines.append(_scalar(kind, name, elem_type))
                continue
            lines.append(f"{kind} {{ name: {json.dumps(name)} data_type: {_type(name, elem_type)} dims: {shape} }}")
    if batch:
        lines.append("dynamic_batching { }")
    return "\n".join(lines) + "\n"


def _scalar(kind: str, name: str, elem_type: str) -> str:
    return (
        f"{kind} {{ name: {json.dumps(name)} data_type: {_type(name, elem_type)} dims: [1] reshape: {{ shape: [] }} }}"
    )


def _type(name: str, elem_type: str) -> str:
    return "TYPE_" + tensor_type(name, elem_type, WHO)


TRITON = Consumer(
    name="triton",
    summary="Triton Inference Server, with its Python backend",
    offload_copy=True,
    fast_math=True,
    name_file=None,
    source="triton-inference-server/python_backend, README; server, docs/user_guide/model_repository.md",
    check_key=check_key,
    lay_out=lay_out,
    needs_model=True,
    tree="<stem>/<version>/{<stem>.mxr,model.py}, <stem>/config.pbtxt",
)
