"""Shapes as JSON, and generated input tensors."""

from __future__ import annotations

from typing import Any

DTYPES = {"bool_type": "bool", "half_type": "float16", "float_type": "float32", "double_type": "float64"}
DTYPES.update({f"{sign}int{bits}_type": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)})
"""The numpy dtype of each MIGraphX type that numpy has. Python code cannot pass the others (bf16, fp8)."""


def is_dynamic(shape: Any) -> bool:
    """Whether a shape has dynamic dims. The first releases of MIGraphX had none."""
    return bool(hasattr(shape, "dynamic") and shape.dynamic())


def static_dims(shape: Any) -> list[int]:
    """The dims of a shape; the maximum for a dynamic dim."""
    return [dim.max for dim in shape.dyn_dims()] if is_dynamic(shape) else list(shape.lens())


def array_dims(shape: Any) -> list[int]:
    """The dims that a numpy array for this shape must have.

    MIGraphX describes a scalar as one element with stride 0, and accepts only an array without dims for it.
    Source: ROCm/AMDMIGraphX, src/py/migraphx_py.cpp, to_shape.
    """
    dims = static_dims(shape)
    return [] if dims == [1] and not is_dynamic(shape) and list(shape.strides()) == [0] else dims


def shape_to_json(shape: Any) -> dict[str, Any]:
    """`{"type","dims"}`; a dynamic dim is `[min,max,[optimals]]`."""
    if not is_dynamic(shape):
        return {"type": shape.type_string(), "dims": list(shape.lens())}
    dims = [dim.min if dim.min == dim.max else [dim.min, dim.max, sorted(dim.optimals)] for dim in shape.dyn_dims()]
    return {"type": shape.type_string(), "dims": dims}


def random_input(np: Any, random: Any, shape: Any) -> Any:
    """A random array for an input of a MIGraphX program; see `random_array` for the values."""
    return random_array(np, random, array_dims(shape), DTYPES[shape.type_string()])


def random_array(np: Any, random: Any, dims: list[int], dtype: str) -> Any:
    """Floats in [0, 1); integers 0 or 1, which are valid for almost any index."""
    values = random.random(dims) if dtype.startswith("float") else random.integers(0, 2, dims)
    return np.array(values, dtype=dtype, order="C")


def output_array(np: Any, argument: Any) -> Any:
    """A copy of an output as an array. A type that numpy does not have is converted to float64."""
    if argument.get_shape().type_string() in DTYPES:
        return np.array(argument)
    return np.array(argument.tolist(), dtype="float64").reshape(argument.get_shape().lens())
