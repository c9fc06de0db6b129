"""May this program come from this ONNX model? What the two files say of themselves, held against each other.

Inputs are bound and compared elsewhere; here are outputs and number types. Of a model that is known by its hash alone
nothing is told, and nothing is contradicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxr.onnxfile import OnnxModel

from .key import Difference, Key

REDUCED = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions that a program has only when they were asked for, or when its model has the type itself."""


def contradictions(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Each field in which the program cannot be this model's: as the model says, and as found in the file."""
    return (*_outputs(model, description), *_types(key, model, description))


def _outputs(model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    made = [row.get("dims") for row in description.get("outputs") or ()]
    if not model.outputs or not made:
        return []
    if len(model.outputs) != len(made):
        return [Difference("outputs", [str(each) for each in model.outputs], made)]
    # Exporters freeze sizes of outputs that follow from open dims, so the sizes of such a model prove nothing.
    fixed = all(isinstance(dim, int) for each in model.inputs for dim in (each.dims or ("",))[1:])
    return [
        Difference(f"outputs.{one.name}", str(one), dims)
        for one, dims in zip(model.outputs, made, strict=True)
        if one.dims and isinstance(dims, list) and not _may_be(one.dims, dims, sizes=fixed)
    ]


def _may_be(declared: tuple[int | str | None, ...], dims: list[Any], *, sizes: bool) -> bool:
    """Whether an output of these dims may be the declared one; the first dim is the batch, which a request chooses."""
    if len(declared) != len(dims):
        return False
    pairs = list(zip(declared, dims, strict=True))[1:]
    return not sizes or all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _types(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    """fp32 means that nothing was asked: then a reduced float type in the program is one of the model's own."""
    if key.precision or model.types is None:
        return []
    seen = description.get("precisions") or ()
    odd = [word for word in seen if word in REDUCED and REDUCED[word] not in model.types]
    return [Difference("precision", "fp32", "+".join(odd))] if odd else []
