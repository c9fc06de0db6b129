"""Shapes as JSON, and values made up for an input."""

from __future__ import annotations

from typing import Any

DTYPES = {"bool_type": "bool", "half_type": "float16", "float_type": "float32", "double_type": "float64"}
DTYPES.update({f"{sign}int{bits}_type": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)})
"""MIGraphX's types that numpy has too. The others (bf16, fp8) cannot be handed over from Python."""


def is_open(shape: Any) -> bool:
    """Whether a shape has dynamic dims; the first releases knew none."""
    return bool(hasattr(shape, "dynamic") and shape.dynamic())


def static_dims(shape: Any) -> list[int]:
    """The dims of a shape, those of a dynamic one at their largest."""
    return [dim.max for dim in shape.dyn_dims()] if is_open(shape) else list(shape.lens())


def handed_dims(shape: Any) -> list[int]:
    """The dims that an array for this shape must have.

    A scalar has one element and the stride 0 in MIGraphX's words, and only an array without dims is taken as such.
    Source: ROCm/AMDMIGraphX, src/py/migraphx_py.cpp, to_shape.
    """
    dims = static_dims(shape)
    return [] if dims == [1] and not is_open(shape) and list(shape.strides()) == [0] else dims


def described(shape: Any) -> dict[str, Any]:
    """`{"type","dims"}`, a dynamic dim as `[min,max,[optimals]]`."""
    if not is_open(shape):
        return {"type": shape.type_string(), "dims": list(shape.lens())}
    dims = [dim.min if dim.min == dim.max else [dim.min, dim.max, sorted(dim.optimals)] for dim in shape.dyn_dims()]
    return {"type": shape.type_string(), "dims": dims}


def generated(np: Any, random: Any, shape: Any) -> Any:
    """Values for an input: reals in [0, 1), and integers 0 or 1, which are in range for almost any index."""
    return made_up(np, random, handed_dims(shape), DTYPES[shape.type_string()])


def made_up(np: Any, random: Any, dims: list[int], dtype: str) -> Any:
    """The same for dims and a type of numpy."""
    values = random.random(dims) if dtype.startswith("float") else random.integers(0, 2, dims)
    return np.array(values, dtype=dtype, order="C")


def as_array(np: Any, argument: Any) -> Any:
    """An output, copied. What numpy has no type for comes as doubles."""
    if argument.get_shape().type_string() in DTYPES:
        return np.array(argument)
    return np.array(argument.tolist(), dtype="float64").reshape(argument.get_shape().lens())
