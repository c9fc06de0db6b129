"""Compares a program with the ONNX model that it should be compiled from: inputs, outputs and number types.

Only what MIGraphX keeps of a model is evidence: it ignores the declared types and dims of outputs. For a model that is
known only by its hash there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mxr.errors import UsageError
from mxr.onnxfile import Dim, OnnxInput, OnnxModel, OutputDim, bind_inputs

from .key import Difference, Key, value_text
from .program_evidence import inputs_of
from .target import DynamicDim, Inputs, Shape, dim_to_json

REDUCED = {"fp16": "float16", "bf16": "bfloat16"}
"""Precisions that a program has only if they were requested or the model itself has the type."""

COMPUTED_IN_FP16 = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators whose uint8 operands MIGraphX converts to fp16, to shift them to int8.

Source: MIGraphX, src/op/builder/bias_uint8.cpp and convolution.cpp (add_int8_shift).
"""

TYPES = {
    "float32": "float_type",
    "float16": "half_type",
    "float64": "double_type",
    "bfloat16": "bf16_type",
    **{f"{sign}int{bits}": f"{sign}int{bits}_type" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "bool_type",
    "float8e4m3fn": "fp8e4m3fn_type",
    "float8e4m3fnuz": "fp8e4m3fnuz_type",
    "float8e5m2": "fp8e5m2_type",
    "float8e5m2fnuz": "fp8e5m2fnuz_type",
}
"""MIGraphX's number types by the element types of ONNX that it keeps. Source: MIGraphX, src/onnx/onnx_parser.cpp."""


QUANTIZED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv"}
    | {"QLinearMatMul", "QLinearAdd", "QLinearConcat", "QLinearMul", "QLinearSigmoid", "QLinearAveragePool"}
)
"""Operators by which a model itself computes in int8. Source: ONNX and ONNX Runtime, their lists of operators."""

SHOWN = 8
"""Maximum number of outputs that the warnings name."""


def contradictions(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return each field that shows that the program is not from this model: in the model, and in the program."""
    return (*inputs(model, key.inputs), *outputs(model, description), *_types(key, model, description))


def of_program(model: OnnxModel, description: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the contradictions that need no key: those of inputs and outputs."""
    found = inputs_of_program(model, description)
    unknown = set(description.get("inputs") or ()) - {name for name, _ in found} - {item.name for item in model.inputs}
    foreign = [Difference(f"inputs.{name}", None, None) for name in sorted(unknown)]
    return (*foreign, *inputs(model, found), *outputs(model, description))


def inputs_of_program(model: OnnxModel, description: Mapping[str, Any]) -> Inputs:
    """Return the inputs in a file, as far as they have complete shapes, in the terms of the model.

    MIGraphX stores a scalar as one element. A program that can be reshaped does not show which dims vary: those that
    the model fixes do not.
    """
    known = {item.name: item.dims for item in model.inputs}
    return tuple((name, _in_terms_of(known.get(name), shape)) for name, shape in inputs_of(description))


def _in_terms_of(own: tuple[int | str | None, ...] | None, shape: Shape) -> Shape:
    if own == () and shape == (1,):
        return ()
    if own is None or len(own) != len(shape):
        return shape
    return tuple(
        dim.most if isinstance(dim, DynamicDim) and dim.least == 1 and dim.most == fixed else dim
        for dim, fixed in zip(shape, own, strict=True)
    )


def inputs(model: OnnxModel, shapes: Inputs) -> list[Difference]:
    """Return the differences in the inputs: their names, and what the model fixes of their dims.

    `shapes` are those of a key or a program. MIGraphX drops unused inputs, so inputs that only the model has are none.
    """
    asked = dict(shapes)
    own = tuple(item for item in model.inputs if item.name in asked)
    known = {each.name for each in own}
    foreign = [
        Difference(f"inputs.{name}", None, [*map(dim_to_json, asked[name])]) for name in asked if name not in known
    ]
    if foreign:
        return foreign
    dims = {name: tuple(map(_plain, shape)) for name, shape in shapes}
    try:
        bind_inputs(replace(model, inputs=own), batch=None, inputs=dims)
    except UsageError as problem:
        return [Difference("inputs", [str(item) for item in model.inputs], problem.message)]
    return []


def _plain(dim: int | DynamicDim) -> Dim:
    return dim if isinstance(dim, int) else (dim.least, dim.most, dim.optimals)


def outputs(model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    """Return the differences in what MIGraphX keeps of the outputs: their number, and dims from weights."""
    made = description.get("outputs") or ()
    if not model.outputs or not made:
        return []
    if len(model.outputs) != len(made):
        return [Difference("outputs", [str(output) for output in model.outputs], [row.get("dims") for row in made])]
    weights = dict(model.weight_dims)
    return [
        Difference(f"outputs.{one.name}", f"{weights[one.name].size} (from the weights)", row["dims"])
        for one, row in zip(model.outputs, made, strict=True)
        if one.name in weights and isinstance(row.get("dims"), list) and not _has(row["dims"], weights[one.name])
    ]


def _has(dims: list[Any], needed: OutputDim) -> bool:
    """Return whether these dims have a dim that follows from the weights. MIGraphX keeps it, unlike a declared one."""
    if needed.rank not in (None, len(dims)) or not dims:
        return False
    found = dims[needed.axis]
    return not isinstance(found, int) or found == needed.size


def warnings(model: OnnxModel, description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each output that the model declares with another type or dims than the program returns.

    MIGraphX ignores what is declared, so it proves nothing. Many of its own test models declare other dims, and 35 of
    them other types. Source: AMDMIGraphX, test/onnx, compared with the shape inference of onnx.
    """
    made = description.get("outputs") or ()
    # Exporters write fixed sizes for outputs that depend on open dims, so these sizes are not reliable.
    fixed = all(isinstance(dim, int) for item in model.inputs for dim in (item.dims or ("",))[1:])
    odd = [(one, row) for one, row in zip(model.outputs, made, strict=False) if not _as_declared(one, row, sizes=fixed)]
    more = [f"The same holds for {len(odd) - SHOWN} more outputs."] if len(odd) > SHOWN else []
    return (*(_warning(*each) for each in odd[:SHOWN]), *more)


def _warning(declared: OnnxInput, row: Mapping[str, Any]) -> str:
    returned = f"{row.get('type')}{value_text(row.get('dims'))}"
    return (
        f"The model declares the output {declared}, but the program returns {returned}. "
        "MIGraphX ignores what is declared: check that the program was compiled from this model."
    )


def _as_declared(declared: OnnxInput, row: Mapping[str, Any], *, sizes: bool) -> bool:
    kind, dims = row.get("type"), row.get("dims")
    if kind in TYPES.values() and TYPES.get(declared.elem_type, kind) != kind:
        return False
    return not declared.dims or not isinstance(dims, list) or _may_be(declared.dims, dims, sizes=sizes)


def _may_be(declared: tuple[int | str | None, ...], dims: list[Any], *, sizes: bool) -> bool:
    """Return whether these dims fit a declared output. The first dim is the batch size, which a request chooses."""
    if len(declared) != len(dims):
        return False
    pairs = list(zip(declared, dims, strict=True))[1:]
    return not sizes or all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _types(key: Key, model: OnnxModel, description: Mapping[str, Any]) -> list[Difference]:
    """With fp32, a reduced float type in the program must come from the model itself."""
    if key.precision or model.types is None:
        return []
    own = {*model.types, *(["float16"] if COMPUTED_IN_FP16 & (model.operators or frozenset()) else [])}
    seen = description.get("precisions") or ()
    odd = [word for word in seen if word in REDUCED and REDUCED[word] not in own]
    return [Difference("precision", "fp32", "+".join(odd))] if odd else []


def has_own_precisions(model: OnnxModel, precisions: Sequence[str]) -> bool:
    """Return whether a model itself computes in these precisions, so that no compile has to have asked for them.

    A model that has float32, too, does not tell: a compile with fp16 would have changed the rest of it.
    """
    types, operators = model.types or frozenset(), model.operators or frozenset()
    own = {word for word, name in REDUCED.items() if name in types and "float32" not in types}
    if operators & QUANTIZED:
        own.add("int8")
        own |= {"fp16"} if operators & COMPUTED_IN_FP16 else set()
    if any(name.startswith("float8") for name in types):
        own.add("fp8")
    if types & {"int4", "uint4"}:
        own.add("int4w")
    return own.issuperset(precisions)
