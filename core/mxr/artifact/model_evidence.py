"""Compares a program with the ONNX model that it should be compiled from: outputs and number types.

Inputs are compared where they are bound. For a model that is known only by its hash there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxr.onnxfile import OnnxModel

from .key import Difference, Key

REDUCED = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions that a program has only if they were requested or the model itself has the type."""


def contradictions(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Returns each field that shows that the program is not from this model: in the model, and in the program."""
    return (*_outputs(model, description), *_types(key, model, description))


def _outputs(model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    made = [row.get("dims") for row in description.get("outputs") or ()]
    if not model.outputs or not made:
        return []
    if len(model.outputs) != len(made):
        return [Difference("outputs", [str(each) for each in model.outputs], made)]
    # Exporters write fixed sizes for outputs that depend on open dims, so these sizes are not reliable.
    fixed = all(isinstance(dim, int) for each in model.inputs for dim in (each.dims or ("",))[1:])
    return [
        Difference(f"outputs.{one.name}", str(one), dims)
        for one, dims in zip(model.outputs, made, strict=True)
        if one.dims and isinstance(dims, list) and not _may_be(one.dims, dims, sizes=fixed)
    ]


def _may_be(declared: tuple[int | str | None, ...], dims: list[Any], *, sizes: bool) -> bool:
    """Returns whether these dims fit a declared output. The first dim is the batch size, which a request chooses."""
    if len(declared) != len(dims):
        return False
    pairs = list(zip(declared, dims, strict=True))[1:]
    return not sizes or all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _types(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    """With fp32, a reduced float type in the program must come from the model itself."""
    if key.precision or model.types is None:
        return []
    seen = description.get("precisions") or ()
    odd = [word for word in seen if word in REDUCED and REDUCED[word] not in model.types]
    return [Difference("precision", "fp32", "+".join(odd))] if odd else []
